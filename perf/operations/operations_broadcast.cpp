// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/prepare.hpp"

namespace tutti::perf::operations {
namespace {

class Broadcast final : public Operation {
 public:
  [[nodiscard]] std::string_view name() const override { return "broadcast"; }
  [[nodiscard]] std::optional<CollectiveForm> form() const override { return Collective::broadcast; }
  [[nodiscard]] Call prepare(const Case& what, Placement placement) const override {
    return prepare_collective(Collective::broadcast, what, placement);
  }
  void run(const Call& call, const Case& what) const override {
    tutti::broadcast(call.inputs[0][0], call.outputs[0], what.options);
  }
  [[nodiscard]] Lists run_returning(const Call& call, const Case& what) const override {
    return {tutti::broadcast(call.inputs[0][0], call.devices, what.options)};
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const Case& what) const override {
    return persistent_broadcast(call.inputs[0][0], call.outputs[0], what.options);
  }
};

class BroadcastCoalesced final : public Operation {
 public:
  [[nodiscard]] std::string_view name() const override { return "broadcast_coalesced"; }
  [[nodiscard]] std::optional<CollectiveForm> form() const override {
    return coalesced(Collective::broadcast);
  }
  [[nodiscard]] Call prepare(const Case& what, Placement placement) const override {
    return prepare_collective(coalesced(Collective::broadcast), what, placement);
  }
  void run(const Call& call, const Case& what) const override {
    tutti::broadcast_coalesced(call.inputs[0], call.outputs, default_buffer_size, what.options);
  }
  [[nodiscard]] Lists run_returning(const Call& call, const Case& what) const override {
    return tutti::broadcast_coalesced(call.inputs[0], call.devices, default_buffer_size, what.options);
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const Case& what) const override {
    return persistent_broadcast_coalesced(call.inputs[0], call.outputs, default_buffer_size, what.options);
  }
};

}  // namespace

const Operation& broadcast() {
  static const Broadcast operation;
  return operation;
}

const Operation& broadcast_coalesced() {
  static const BroadcastCoalesced operation;
  return operation;
}

}  // namespace tutti::perf::operations
