// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "operands.hpp"
#include "python_communicator.hpp"
#include "tutti/error.hpp"
#include "work.hpp"

#include <cstdint>
#include <optional>
#include <vector>

#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

/// Collectives of a communicator without a root, in which every member gives an input and gets an output.
namespace tutti::python {
namespace {

using Sizes = std::vector<std::int64_t>;
using SizesOfMembers = std::vector<Sizes>;
using Use = Operands::Use;

/// Makes a call with a tensor of each member, with given outputs or with returned ones.
template <class Given, class Returned>
nb::object call_tensors(const PythonCommunicator& self, const TensorsArgument& inputs,
                        const TensorsArgument& out, const StreamsArgument& streams, Given&& given,
                        Returned&& returned) {
  Operands operands(self.get().devices());
  const std::vector<Tensor> sources = operands.tensors(inputs, Use::read, "inputs");
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.results(self.call([&](Communicator& c) { return returned(c, sources); }));
  }
  const std::vector<Tensor> targets = operands.tensors(out, Use::write, "out");
  operands.make_current(streams);
  self.call([&](Communicator& c) { given(c, sources, targets); });
  operands.finish();
  return out.object;
}

/// Makes a call with a list of tensors of each member.
template <class Given, class Returned>
nb::object call_lists(const PythonCommunicator& self, const TensorsArgument& inputs,
                      const TensorsArgument& out, const StreamsArgument& streams, Given&& given,
                      Returned&& returned) {
  Operands operands(self.get().devices());
  const auto sources = operands.lists(inputs, Use::read, "inputs");
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.results(self.call([&](Communicator& c) { return returned(c, sources); }));
  }
  const auto targets = operands.lists(out, Use::write, "out");
  operands.make_current(streams);
  self.call([&](Communicator& c) { given(c, sources, targets); });
  operands.finish();
  return out.object;
}

nb::object all_reduce(const PythonCommunicator& self, const TensorsArgument& inputs,
                      const TensorsArgument& out, const OperationArgument& op,
                      const StreamsArgument& streams) {
  const ReduceOp operation = op.get();
  return call_tensors(
      self, inputs, out, streams,
      [&](Communicator& c, const auto& in, const auto& to) { c.all_reduce(in, to, operation); },
      [&](Communicator& c, const auto& in) { return c.all_reduce(in, operation); });
}

nb::object all_reduce_coalesced(const PythonCommunicator& self, const TensorsArgument& inputs,
                                const TensorsArgument& out, const OperationArgument& op,
                                const StreamsArgument& streams) {
  const ReduceOp operation = op.get();
  return call_lists(
      self, inputs, out, streams,
      [&](Communicator& c, const auto& in, const auto& to) { c.all_reduce_coalesced(in, to, operation); },
      [&](Communicator& c, const auto& in) { return c.all_reduce_coalesced(in, operation); });
}

nb::object all_gather(const PythonCommunicator& self, const TensorsArgument& inputs,
                      const TensorsArgument& out, const std::optional<Sizes>& sizes, std::optional<int> dim,
                      const StreamsArgument& streams) {
  return call_tensors(
      self, inputs, out, streams,
      [&](Communicator& c, const auto& in, const auto& to) {
        if (!sizes) return c.all_gather(in, to);
        if (!dim) return c.all_gather(in, to, ListOf<std::int64_t>(*sizes));
        c.all_gather(in, to, ListOf<std::int64_t>(*sizes), *dim);
      },
      [&](Communicator& c, const auto& in) {
        if (!sizes) return c.all_gather(in);
        if (!dim) return c.all_gather(in, *sizes);
        return c.all_gather(in, *sizes, *dim);
      });
}

nb::object all_gather_coalesced(const PythonCommunicator& self, const TensorsArgument& inputs,
                                const TensorsArgument& out, const StreamsArgument& streams) {
  return call_lists(
      self, inputs, out, streams,
      [](Communicator& c, const auto& in, const auto& to) { c.all_gather_coalesced(in, to); },
      [](Communicator& c, const auto& in) { return c.all_gather_coalesced(in); });
}

nb::object reduce_scatter(const PythonCommunicator& self, const TensorsArgument& inputs,
                          const TensorsArgument& out, const OperationArgument& op,
                          const std::optional<Sizes>& sizes, std::optional<int> dim,
                          const StreamsArgument& streams) {
  const ReduceOp operation = op.get();
  return call_tensors(
      self, inputs, out, streams,
      [&](Communicator& c, const auto& in, const auto& to) {
        if (!sizes) return c.reduce_scatter(in, to, operation);
        if (!dim) return c.reduce_scatter(in, to, operation, ListOf<std::int64_t>(*sizes));
        c.reduce_scatter(in, to, operation, ListOf<std::int64_t>(*sizes), *dim);
      },
      [&](Communicator& c, const auto& in) {
        if (!sizes) return c.reduce_scatter(in, operation);
        if (!dim) return c.reduce_scatter(in, operation, *sizes);
        return c.reduce_scatter(in, operation, *sizes, *dim);
      });
}

nb::object reduce_scatter_coalesced(const PythonCommunicator& self, const TensorsArgument& inputs,
                                    const TensorsArgument& out, const OperationArgument& op,
                                    const StreamsArgument& streams) {
  const ReduceOp operation = op.get();
  return call_lists(
      self, inputs, out, streams,
      [&](Communicator& c, const auto& in, const auto& to) { c.reduce_scatter_coalesced(in, to, operation); },
      [&](Communicator& c, const auto& in) { return c.reduce_scatter_coalesced(in, operation); });
}

/// Lets a process with one member give its sizes without a list around them.
std::optional<SizesOfMembers> sizes_of_members(nb::handle given) {
  if (given.is_none()) return std::nullopt;
  const bool is_nested = nb::len(given) > 0 && nb::isinstance<nb::sequence>(given[0]);
  if (is_nested) return nb::cast<SizesOfMembers>(given);
  return SizesOfMembers{nb::cast<Sizes>(given)};
}

nb::object all_to_all(const PythonCommunicator& self, const TensorsArgument& inputs,
                      const TensorsArgument& out, nb::object input_sizes, nb::object out_sizes,
                      const StreamsArgument& streams) {
  const std::optional<SizesOfMembers> from = sizes_of_members(input_sizes);
  const std::optional<SizesOfMembers> to_sizes = sizes_of_members(out_sizes);
  if (from.has_value() != to_sizes.has_value()) {
    throw Error(ErrorCode::invalid_argument,
                "all_to_all: one of input_sizes and out_sizes is None, expected both or neither");
  }
  return call_tensors(
      self, inputs, out, streams,
      [&](Communicator& c, const auto& in, const auto& to) {
        if (from) return c.all_to_all(in, to, *from, *to_sizes);
        c.all_to_all(in, to);
      },
      [&](Communicator& c, const auto& in) {
        if (from) return c.all_to_all(in, *from, *to_sizes);
        return c.all_to_all(in);
      });
}

nb::object all_to_all_coalesced(const PythonCommunicator& self, const TensorsArgument& inputs,
                                const TensorsArgument& out, const StreamsArgument& streams) {
  return call_lists(
      self, inputs, out, streams,
      [](Communicator& c, const auto& in, const auto& to) { c.all_to_all_coalesced(in, to); },
      [](Communicator& c, const auto& in) { return c.all_to_all_coalesced(in); });
}

void barrier(const PythonCommunicator& self, const StreamsArgument& streams) {
  Operands operands(self.get().devices());
  operands.make_current(streams);
  self.call([](Communicator& c) { c.barrier(); });
  for (const Device device : self.get().devices()) {
    if (Work::current() != nullptr) Work::current()->add(device);
  }
}

}  // namespace

void bind_rootless_calls(CommunicatorClass& communicators) {
  communicators
      .def("all_reduce", &all_reduce, nb::arg("inputs"), nb::arg("out") = nb::none(), nb::arg("op") = "sum",
           nb::arg("streams") = nb::none(),
           "Combines all members' inputs, in ascending order of members, into every `out`, which may be the "
           "input.")
      .def("all_reduce_coalesced", &all_reduce_coalesced, nb::arg("inputs"), nb::arg("out") = nb::none(),
           nb::arg("op") = "sum", nb::arg("streams") = nb::none(),
           "All-reduces lists of tensors as one operation.")
      .def("all_gather", &all_gather, nb::arg("inputs"), nb::arg("out") = nb::none(),
           nb::arg("sizes") = nb::none(), nb::arg("dim") = nb::none(), nb::arg("streams") = nb::none(),
           "Concatenates all members' inputs. `sizes` are those of all members' inputs if they differ: "
           "elements, or along "
           "`dim`.")
      .def("all_gather_coalesced", &all_gather_coalesced, nb::arg("inputs"), nb::arg("out") = nb::none(),
           nb::arg("streams") = nb::none())
      .def("reduce_scatter", &reduce_scatter, nb::arg("inputs"), nb::arg("out") = nb::none(),
           nb::arg("op") = "sum", nb::arg("sizes") = nb::none(), nb::arg("dim") = nb::none(),
           nb::arg("streams") = nb::none(),
           "Combines all members' inputs and cuts the result into one part per member.")
      .def("reduce_scatter_coalesced", &reduce_scatter_coalesced, nb::arg("inputs"),
           nb::arg("out") = nb::none(), nb::arg("op") = "sum", nb::arg("streams") = nb::none())
      .def("all_to_all", &all_to_all, nb::arg("inputs"), nb::arg("out") = nb::none(),
           nb::arg("input_sizes") = nb::none(), nb::arg("out_sizes") = nb::none(),
           nb::arg("streams") = nb::none(),
           "Cuts every input into parts, one for each member: part j of member i becomes part i of member j. "
           "Sizes count "
           "elements of each part.")
      .def("all_to_all_coalesced", &all_to_all_coalesced, nb::arg("inputs"), nb::arg("out") = nb::none(),
           nb::arg("streams") = nb::none())
      .def("barrier", &barrier, nb::arg("streams") = nb::none(),
           "Makes later work on the members' streams run after all earlier work there, on all ranks. Does "
           "not wait.");
}

}  // namespace tutti::python
