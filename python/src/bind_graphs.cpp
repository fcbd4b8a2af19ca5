// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "bind.hpp"
#include "tutti/cuda_graph.hpp"
#include "tutti/graph.hpp"
#include "tutti/persistent.hpp"

#include <memory>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

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

}  // namespace

void bind_graphs(nb::module_& module) {
  bind_cuda_graph(module);
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
      .def_prop_ro("home_device", &PersistentCollective::home_device)
      .def("explain", &PersistentCollective::explain)
      .def("summary", &PersistentCollective::summary);
}

}  // namespace tutti::python
