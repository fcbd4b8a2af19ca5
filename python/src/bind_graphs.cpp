// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "bind.hpp"
#include "python_communicator.hpp"
#include "shared_object.hpp"
#include "tutti/cuda_graph.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"
#include "tutti/graphed_callables.hpp"
#include "tutti/persistent.hpp"

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

namespace tutti::python {
namespace {

/// The context manager `graph`.
class GraphScope {
 public:
  GraphScope(nb::object graph, GraphPoolHandle pool, const std::optional<Stream>& stream)
      : graph_(std::move(graph)), options_{.pool = std::move(pool), .stream = stream} {}

  void enter() {
    CUDAGraph& graph = nb::cast<CUDAGraph&>(graph_);
    const nb::gil_scoped_release release;
    guard_ = std::make_unique<GraphGuard>(graph, options_);
  }
  /// Ends the capture, unless an exception goes through the block, which abandons it.
  void exit(bool failed) {
    CUDAGraph& graph = nb::cast<CUDAGraph&>(graph_);
    const nb::gil_scoped_release release;
    std::unique_ptr<GraphGuard> guard = std::move(guard_);
    if (!failed) return guard->end();
    guard.reset();
    graph.reset();
  }

 private:
  nb::object graph_;
  GraphGuardOptions options_;
  std::unique_ptr<GraphGuard> guard_;
};

void bind_cuda_graph(nb::module_& module) {
  nb::class_<GraphPoolHandle>(module, "GraphPoolHandle", "Names a private pool of memory that graphs share.")
      .def(nb::init<>())
      .def_prop_ro("id", &GraphPoolHandle::id);
  module.def("graph_pool_handle", &graph_pool_handle, "Makes a new pool for graphs to share.");
  module.def("is_current_stream_capturing", &is_current_stream_capturing);
  nb::class_<CUDAGraph>(module, "CUDAGraph",
                        "Work that is recorded once and replayed many times, on virtual devices too.")
      .def(nb::init<>())
      .def(
          "capture_begin",
          [](CUDAGraph& graph, const std::optional<GraphPoolHandle>& pool) {
            graph.capture_begin({.pool = pool.value_or(GraphPoolHandle())});
          },
          nb::arg("pool") = nb::none(),
          "Starts recording the work queued on the current stream, not a default stream.")
      .def("capture_end", &CUDAGraph::capture_end, nb::call_guard<nb::gil_scoped_release>())
      .def("replay", &CUDAGraph::replay, nb::call_guard<nb::gil_scoped_release>(), "Queues one run.")
      .def("reset", &CUDAGraph::reset, nb::call_guard<nb::gil_scoped_release>())
      .def("pool", &CUDAGraph::pool)
      .def("enable_debug_mode", &CUDAGraph::enable_debug_mode)
      .def("debug_dump", &CUDAGraph::debug_dump, nb::arg("path"),
           "Writes the graph in Graphviz's language DOT.");
}

bool is_sequence(nb::handle object) {
  return nb::isinstance<nb::list>(object) || nb::isinstance<nb::tuple>(object);
}

/// Takes a `tutti.Tensor`, or a list or tuple of such. Tensors of other libraries are refused: their
/// operations do not run on the streams that are captured.
std::vector<Tensor> own_tensors(nb::handle given, const char* name) {
  std::vector<Tensor> tensors;
  const auto take = [&](nb::handle one) {
    if (!nb::isinstance<Tensor>(one)) {
      throw Error(ErrorCode::invalid_argument, std::string("make_graphed_callables: ") + name + " is " +
                                                   nb::cast<std::string>(nb::repr(one.type())) +
                                                   ", expected tutti.Tensor, or a list of these");
    }
    tensors.push_back(nb::cast<Tensor>(one));
  };
  if (!is_sequence(given)) {
    take(given);
    return tensors;
  }
  for (const nb::handle one : given) take(one);
  return tensors;
}

nb::tuple tuple_of(const std::vector<Tensor>& tensors) {
  nb::list list;
  for (const Tensor& tensor : tensors) list.append(nb::cast(tensor));
  return nb::tuple(list);
}

/// A captured function of the program, which gives results in the form in which the function gave them.
class PythonGraphedCallable {
 public:
  PythonGraphedCallable(GraphedCallable callable, bool gives_one)
      : callable_(std::move(callable)), gives_one_(gives_one) {}

  [[nodiscard]] const GraphedCallable& get() const noexcept { return callable_; }
  [[nodiscard]] nb::object call(const nb::args& given) const {
    const std::vector<Tensor> inputs = own_tensors(given, "an input");
    return results([&] {
      const nb::gil_scoped_release release;
      return callable_(inputs);
    }());
  }

 private:
  [[nodiscard]] nb::object results(const std::vector<Tensor>& tensors) const {
    if (gives_one_) return nb::cast(tensors.front());
    return tuple_of(tensors);
  }

  GraphedCallable callable_;
  bool gives_one_;
};

/// Returns a function that calls one of the program on any thread; `gives_one` learns whether that returns a
/// tensor rather than several.
TensorFunction tensor_function(nb::handle calls, std::shared_ptr<bool> gives_one) {
  const auto kept = shared_object(calls);
  return [kept, calls, gives_one = std::move(gives_one)](const std::vector<Tensor>& inputs) {
    const nb::gil_scoped_acquire acquire;
    const nb::object result = nb::borrow<nb::callable>(calls)(*tuple_of(inputs));
    *gives_one = !is_sequence(result);
    return own_tensors(result, "a callable's result");
  };
}

std::vector<PythonGraphedCallable> graphed(const nb::list& callables, const nb::list& samples,
                                           const GraphedOptions& options) {
  std::vector<TensorFunction> functions;
  std::vector<std::vector<Tensor>> inputs;
  std::vector<std::shared_ptr<bool>> forms;
  for (const nb::handle one : callables) {
    forms.push_back(std::make_shared<bool>(false));
    functions.push_back(tensor_function(one, forms.back()));
  }
  for (const nb::handle one : samples) inputs.push_back(own_tensors(one, "a sample"));
  std::vector<GraphedCallable> made;
  {
    const nb::gil_scoped_release release;
    made = make_graphed_callables(functions, inputs, options);
  }
  std::vector<PythonGraphedCallable> all;
  for (std::size_t i = 0; i < made.size(); ++i) all.emplace_back(std::move(made[i]), *forms[i]);
  return all;
}

/// Takes one function with its samples, or several with a tuple of samples for each.
nb::object graphed_callables(nb::object callables, nb::object samples, int warmup_iterations,
                             const std::optional<GraphPoolHandle>& pool) {
  const GraphedOptions options{.warmup_iterations = warmup_iterations,
                               .pool = pool.value_or(GraphPoolHandle())};
  if (is_sequence(callables)) {
    nb::list made;
    for (PythonGraphedCallable& one : graphed(nb::list(callables), nb::list(samples), options)) {
      made.append(nb::cast(std::move(one)));
    }
    return nb::tuple(made);
  }
  nb::list only;
  only.append(callables);
  nb::list its_samples;
  its_samples.append(samples);
  return nb::cast(std::move(graphed(only, its_samples, options).front()));
}

void bind_graphed_callables(nb::module_& module) {
  using Callable = PythonGraphedCallable;
  nb::class_<Callable>(
      module, "GraphedCallable",
      "A function that replays a graph instead of computing. Every call returns the same tensors, "
      "whose values the next call overwrites.")
      .def("__call__", &Callable::call, nb::sig("def __call__(self, *inputs: Tensor) -> typing.Any"),
           "Copies the inputs to the graph's own, unless they are these, and launches the graph, ordered "
           "with the "
           "current streams. Inputs have the sizes, element types and devices of the samples.")
      .def_prop_ro(
          "static_inputs", [](const Callable& self) { return self.get().static_inputs(); },
          "The tensors from which the graph reads its inputs.")
      .def_prop_ro(
          "static_outputs", [](const Callable& self) { return self.get().static_outputs(); },
          "The tensors that every call returns.")
      .def("pool", [](const Callable& self) { return self.get().pool(); });
  module.def(
      "make_graphed_callables", &graphed_callables, nb::arg("callables"), nb::arg("sample_args"),
      nb::arg("num_warmup_iters") = 3, nb::arg("pool") = nb::none(),
      "Captures a function of tutti.Tensors, called with copies of `sample_args`, all on devices, after "
      "`num_warmup_iters` calls; returns a function that replays the work. Several functions in a tuple, "
      "with a "
      "tuple of samples for each, share a pool and are to be called in this order. Raises what the function "
      "raises, and InvalidArgumentError for samples on the host, without samples, and for tensors of other "
      "libraries, which have functions like this one themselves.");
}

}  // namespace

void bind_graphs(nb::module_& module) {
  bind_cuda_graph(module);
  bind_graphed_callables(module);
  nb::class_<GraphScope>(module, "graph", "Captures the work of a `with` block into a CUDAGraph.")
      .def(
          "__init__",
          [](GraphScope* self, nb::object graph, const std::optional<GraphPoolHandle>& pool,
             nb::object stream) {
            std::optional<Stream> on;
            if (!stream.is_none()) on = StreamArgument{stream}.get(Device::current());
            new (self) GraphScope(std::move(graph), pool.value_or(GraphPoolHandle()), on);
          },
          nb::arg("cuda_graph"), nb::arg("pool") = nb::none(), nb::arg("stream") = nb::none(),
          nb::sig("def __init__(self, cuda_graph: CUDAGraph, pool: GraphPoolHandle | None = None, stream: "
                  "typing.Any = "
                  "None) -> None"))
      .def("__enter__",
           [](nb::object self) {
             nb::cast<GraphScope&>(self).enter();
             return self;
           })
      .def(
          "__exit__", [](GraphScope& scope, nb::args error) { scope.exit(!error[0].is_none()); },
          nb::sig("def __exit__(self, *args: object) -> None"));
  nb::class_<PersistentCollective>(module, "PersistentCollective",
                                   "Calls that are bound to their operands once and launched many times.")
      .def(
          "launch",
          [](PersistentCollective& calls, nb::object stream) {
            const Device home(calls.home_device());
            const Stream on = stream.is_none() ? current_stream(home) : StreamArgument{stream}.get(home);
            const nb::gil_scoped_release release;
            calls.launch(on);
          },
          nb::arg("stream") = nb::none(), "Queues one run, ordered with the one stream alone.")
      .def(
          "rebind",
          [](PersistentCollective& calls, const PythonCommunicator& communicator) {
            communicator.call([&](Communicator& c) { calls.rebind(c); });
          },
          nb::arg("communicator"), nb::keep_alive<1, 2>(),
          "Binds the calls again after the end of their communicator: runs the function that `persistent` "
          "was given, "
          "whose calls must now be calls of `communicator`. If it raises, nothing has changed.")
      .def_prop_ro("home_device", &PersistentCollective::home_device)
      .def("explain", &PersistentCollective::explain)
      .def("summary", &PersistentCollective::summary);
}

}  // namespace tutti::python
