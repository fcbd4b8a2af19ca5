// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/prepare.hpp"
#include "tutti/communicator.hpp"
#include "tutti/error.hpp"

#include <vector>

#include <fmt/format.h>

namespace tutti::perf::operations {
namespace {

/// Of a communicator, and nothing that returns new tensors.
class IntoGivenOutputs : public Operation {
 public:
  [[nodiscard]] bool needs_communicator() const override { return true; }
  [[nodiscard]] bool has(Placement placement) const override { return placement == Placement::out_of_place; }
  [[nodiscard]] Lists run_returning(const Call&, const Case&) const override {
    throw Error(ErrorCode::unsupported, fmt::format("{} returns no new tensors", name()));
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const Case& what) const override {
    return what.members.communicator->persistent([this, call, what] { run(call, what); });
  }
};

/// A message from each member to the next one, and to the first from the last.
class MessagesAround final : public IntoGivenOutputs {
 public:
  [[nodiscard]] std::string_view name() const override { return "sendrecv"; }
  [[nodiscard]] std::optional<CollectiveForm> form() const override { return std::nullopt; }
  [[nodiscard]] bool goes_around() const override { return true; }

  [[nodiscard]] Call prepare(const Case& what, Placement) const override { return prepare_around(what); }
  void run(const Call& call, const Case& what) const override {
    const std::vector<Tensor>& inputs = call.inputs[0];
    const std::vector<Tensor>& outputs = call.outputs[0];
    if (inputs.size() == 1) {
      const int member = what.members.number_of(0);
      what.members.communicator->sendrecv(inputs[0], what.members.after(member), outputs[0],
                                          what.members.before(member));
      return;
    }
    std::vector<Message> messages;
    for (std::size_t local = 0; local < inputs.size(); ++local) {
      const int member = what.members.number_of(local);
      messages.push_back(Message::send(inputs[local], what.members.after(member)));
      messages.push_back(Message::recv(outputs[local], what.members.before(member)));
    }
    what.members.communicator->batch_send_recv(messages);
  }
};

class Barrier final : public IntoGivenOutputs {
 public:
  [[nodiscard]] std::string_view name() const override { return name_of(Collective::barrier); }
  [[nodiscard]] std::optional<CollectiveForm> form() const override { return Collective::barrier; }

  [[nodiscard]] Call prepare(const Case& what, Placement) const override { return prepare_nothing(what); }
  void run(const Call&, const Case& what) const override { what.members.communicator->barrier(); }
};

}  // namespace

const Operation& messages_around() {
  static const MessagesAround operation;
  return operation;
}
const Operation& barrier() {
  static const Barrier operation;
  return operation;
}

}  // namespace tutti::perf::operations
