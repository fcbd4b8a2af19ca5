// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "operands.hpp"
#include "python_communicator.hpp"

#include <utility>
#include <vector>

/// Collectives of a communicator that have a root. Each takes operands, makes the call without the GIL, and
/// gives results back.
namespace tutti::python {
namespace {

using Use = Operands::Use;

bool is_root(const Communicator& communicator, int root) {
  const int first = communicator.first_member();
  return root >= first && root < first + static_cast<int>(communicator.devices().size());
}

/// Returns the local number of the root, or of the first member where the root is another rank's, whose
/// operand is ignored.
std::size_t index_of_root(const Communicator& communicator, int root) {
  return is_root(communicator, root) ? static_cast<std::size_t>(root - communicator.first_member()) : 0;
}

nb::object broadcast(const PythonCommunicator& self, const TensorsArgument& tensor, int root,
                     const TensorsArgument& out, const StreamsArgument& streams) {
  Operands operands(self.get().devices());
  const Tensor source = operands.tensor(tensor.object, index_of_root(self.get(), root), Use::read, "tensor");
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.results(self.call([&](Communicator& c) { return c.broadcast(source, root); }));
  }
  const std::vector<Tensor> targets = operands.tensors(out, Use::write, "out");
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.broadcast(source, targets, root); });
  operands.finish();
  return out.object;
}

nb::object broadcast_in_place(const PythonCommunicator& self, const TensorsArgument& tensors, int root,
                              const StreamsArgument& streams) {
  Operands operands(self.get().devices());
  const std::vector<Tensor> all = operands.tensors(tensors, Use::read_write, "tensors");
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.broadcast(all, root); });
  operands.finish();
  return tensors.object;
}

nb::object broadcast_coalesced_in_place(const PythonCommunicator& self, const TensorsArgument& tensors,
                                        int root, const StreamsArgument& streams) {
  Operands operands(self.get().devices());
  const auto all = operands.lists(tensors, Use::read_write, "tensors");
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.broadcast_coalesced(all, root); });
  operands.finish();
  return tensors.object;
}

nb::object broadcast_coalesced(const PythonCommunicator& self, const TensorsArgument& tensors, int root,
                               const StreamsArgument& streams) {
  Operands operands(self.get().devices());
  std::vector<Tensor> sources;
  if (!tensors.object.is_none()) {
    const std::size_t index = index_of_root(self.get(), root);
    for (const nb::handle one : tensors.object)
      sources.push_back(operands.tensor(one, index, Use::read, "tensors"));
  }
  operands.make_current(streams);
  return operands.results(self.call([&](Communicator& c) { return c.broadcast_coalesced(sources, root); }));
}

nb::object reduce(const PythonCommunicator& self, const TensorsArgument& inputs, int root,
                  const TensorsArgument& out, const OperationArgument& op, const StreamsArgument& streams) {
  Operands operands(self.get().devices());
  const std::vector<Tensor> sources = operands.tensors(inputs, Use::read, "inputs");
  const ReduceOp operation = op.get();
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.result(self.call([&](Communicator& c) { return c.reduce(sources, operation, root); }));
  }
  // Only the root's output is written.
  const bool writes = is_root(self.get(), root);
  const std::vector<Tensor> targets =
      writes ? operands.tensors(out, Use::read_write, "out") : std::vector<Tensor>{};
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.reduce(sources, targets, operation, root); });
  operands.finish();
  return out.object;
}

nb::object reduce_coalesced(const PythonCommunicator& self, const TensorsArgument& inputs, int root,
                            const TensorsArgument& out, const OperationArgument& op,
                            const StreamsArgument& streams) {
  Operands operands(self.get().devices());
  const auto sources = operands.lists(inputs, Use::read, "inputs");
  const ReduceOp operation = op.get();
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.list(
        self.call([&](Communicator& c) { return c.reduce_coalesced(sources, operation, root); }));
  }
  const bool writes = is_root(self.get(), root);
  const auto targets =
      writes ? operands.lists(out, Use::read_write, "out") : std::vector<std::vector<Tensor>>{};
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.reduce_coalesced(sources, targets, operation, root); });
  operands.finish();
  return out.object;
}

nb::object scatter(const PythonCommunicator& self, const TensorsArgument& tensor, int root,
                   const TensorsArgument& out, int dim, const StreamsArgument& streams) {
  Operands operands(self.get().devices());
  const Tensor source = operands.tensor(tensor.object, index_of_root(self.get(), root), Use::read, "tensor");
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.results(self.call([&](Communicator& c) { return c.scatter(source, root, dim); }));
  }
  const std::vector<Tensor> targets = operands.tensors(out, Use::write, "out");
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.scatter(source, targets, root, dim); });
  operands.finish();
  return out.object;
}

nb::object gather(const PythonCommunicator& self, const TensorsArgument& tensors, int root,
                  const TensorsArgument& out, int dim, const StreamsArgument& streams) {
  Operands operands(self.get().devices());
  const std::vector<Tensor> sources = operands.tensors(tensors, Use::read, "tensors");
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.result(self.call([&](Communicator& c) { return c.gather(sources, root, dim); }));
  }
  const bool writes = is_root(self.get(), root);
  const Tensor target =
      writes ? operands.tensor(out.object, index_of_root(self.get(), root), Use::write, "out") : Tensor();
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.gather(sources, target, root, dim); });
  operands.finish();
  return out.object;
}

}  // namespace

void bind_rooted_calls(CommunicatorClass& communicators) {
  communicators
      .def("broadcast", &broadcast, nb::arg("tensor").none(), nb::arg("root"), nb::arg("out") = nb::none(),
           nb::arg("streams") = nb::none(),
           "Copies the root's tensor into every `out`. Without `out`, returns a copy for each local member, "
           "and waits for "
           "the sizes; other ranks may give None.")
      .def("broadcast_", &broadcast_in_place, nb::arg("tensors"), nb::arg("root"),
           nb::arg("streams") = nb::none(),
           "Copies the root's tensor into all others, which have its sizes and element type.")
      .def("broadcast_coalesced", &broadcast_coalesced, nb::arg("tensors").none(), nb::arg("root"),
           nb::arg("streams") = nb::none(), "Returns copies of the root's list of tensors.")
      .def("broadcast_coalesced_", &broadcast_coalesced_in_place, nb::arg("tensors"), nb::arg("root"),
           nb::arg("streams") = nb::none(), "Copies the root's list of tensors into all others.")
      .def("reduce", &reduce, nb::arg("inputs"), nb::arg("root"), nb::arg("out") = nb::none(),
           nb::arg("op") = "sum", nb::arg("streams") = nb::none(),
           "Combines all members' inputs, in ascending order of members, at the root; None elsewhere.")
      .def("reduce_coalesced", &reduce_coalesced, nb::arg("inputs"), nb::arg("root"),
           nb::arg("out") = nb::none(), nb::arg("op") = "sum", nb::arg("streams") = nb::none())
      .def("scatter", &scatter, nb::arg("tensor").none(), nb::arg("root"), nb::arg("out") = nb::none(),
           nb::arg("dim") = 0, nb::arg("streams") = nb::none(),
           "Cuts the root's tensor along `dim`: a part for each member. Other ranks give None.")
      .def("gather", &gather, nb::arg("tensors"), nb::arg("root"), nb::arg("out") = nb::none(),
           nb::arg("dim") = 0, nb::arg("streams") = nb::none(),
           "Joins all members' tensors along `dim` at the root; None elsewhere.");
}

}  // namespace tutti::python
