// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/prepare.hpp"
#include "tutti/error.hpp"

namespace tutti::perf::operations {
namespace {

/// One device's tensor copied to another device.
class SendReceive final : public Operation {
 public:
  [[nodiscard]] std::string_view name() const override { return "sendrecv"; }
  [[nodiscard]] std::optional<CollectiveForm> form() const override { return std::nullopt; }
  [[nodiscard]] bool has(Placement placement) const override { return placement == Placement::out_of_place; }
  [[nodiscard]] bool is_copy() const override { return true; }

  [[nodiscard]] Call prepare(const Case& what, Placement) const override { return prepare_copy(what); }

  void run(const Call& call, const Case&) const override {
    call.outputs[0][0].copy_(call.inputs[0][0], Blocking::no);
  }
  [[nodiscard]] Lists run_returning(const Call&, const Case&) const override {
    throw Error(ErrorCode::unsupported, "sendrecv: plain copies return no new tensors");
  }
  [[nodiscard]] PersistentCollective bind(const Call&, const Case&) const override {
    throw Error(ErrorCode::unsupported, "sendrecv: plain copies have no persistent form");
  }
};

}  // namespace

const Operation& sendrecv() {
  static const SendReceive operation;
  return operation;
}

}  // namespace tutti::perf::operations
