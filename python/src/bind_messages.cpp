// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "operands.hpp"
#include "python_communicator.hpp"
#include "tutti/error.hpp"

#include <string>
#include <vector>

#include <nanobind/stl/string.h>

/// Messages between members of a communicator.
namespace tutti::python {
namespace {

using Use = Operands::Use;

void send(const PythonCommunicator& self, const TensorsArgument& tensor, int to,
          const StreamsArgument& streams) {
  Operands operands(self.get().devices());
  const Tensor source = operands.tensor(tensor.object, 0, Use::read, "tensor");
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.send(source, to); });
}

nb::object recv(const PythonCommunicator& self, const TensorsArgument& out, int from,
                const StreamsArgument& streams) {
  Operands operands(self.get().devices());
  const Tensor target = operands.tensor(out.object, 0, Use::write, "out");
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.recv(target, from); });
  operands.finish();
  return out.object;
}

nb::object sendrecv(const PythonCommunicator& self, const TensorsArgument& tensor, int to, int from,
                    const TensorsArgument& out, const StreamsArgument& streams) {
  Operands operands(self.get().devices());
  const Tensor source = operands.tensor(tensor.object, 0, Use::read, "tensor");
  if (out.object.is_none()) {
    operands.make_current(streams);
    return operands.result(self.call([&](Communicator& c) { return c.sendrecv(source, to, from); }));
  }
  const Tensor target = operands.tensor(out.object, 0, Use::write, "out");
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.sendrecv(source, to, target, from); });
  operands.finish();
  return out.object;
}

/// Takes ('send', tensor, to) and ('recv', out, from).
Message message_of(Operands& operands, nb::handle given) {
  const auto kind = nb::cast<std::string>(given[0]);
  const auto peer = nb::cast<int>(given[2]);
  if (kind == "send") return Message::send(operands.tensor(given[1], 0, Use::read, "tensor"), peer);
  if (kind == "recv") return Message::recv(operands.tensor(given[1], 0, Use::write, "out"), peer);
  throw Error(ErrorCode::invalid_argument, "batch_send_recv: a message begins with '" + kind +
                                               "', expected ('send', tensor, to) or ('recv', out, from)");
}

void batch_send_recv(const PythonCommunicator& self, const nb::list& given, const StreamsArgument& streams) {
  Operands operands(self.get().devices());
  std::vector<Message> messages;
  for (const nb::handle one : given) messages.push_back(message_of(operands, one));
  operands.make_current(streams);
  self.call([&](Communicator& c) { c.batch_send_recv(messages); });
  operands.finish();
}

}  // namespace

void bind_messages(CommunicatorClass& communicators) {
  communicators
      .def("send", &send, nb::arg("tensor"), nb::arg("to"), nb::arg("streams") = nb::none(),
           "Sends to member `to`.")
      .def("recv", &recv, nb::arg("out"), nb::arg("from_"), nb::arg("streams") = nb::none(),
           "Receives what member `from_` sends.")
      .def("sendrecv", &sendrecv, nb::arg("tensor"), nb::arg("to"), nb::arg("from_"),
           nb::arg("out") = nb::none(), nb::arg("streams") = nb::none(),
           "Sends and receives at the same time.")
      .def("batch_send_recv", &batch_send_recv, nb::arg("messages"), nb::arg("streams") = nb::none(),
           "Moves ('send', tensor, to) and ('recv', out, from) at the same time, in any order.");
}

}  // namespace tutti::python
