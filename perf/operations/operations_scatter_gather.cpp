// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/prepare.hpp"

namespace tutti::perf::operations {
namespace {

class Scatter final : public Operation {
 public:
  [[nodiscard]] std::string_view name() const override { return "scatter"; }
  [[nodiscard]] std::optional<CollectiveForm> form() const override { return Collective::scatter; }
  [[nodiscard]] bool has(Placement placement) const override { return placement != Placement::in_place; }
  [[nodiscard]] Call prepare(const Case& what, Placement placement) const override {
    return prepare_collective(Collective::scatter, what, placement);
  }
  void run(const Call& call, const Case& what) const override {
    tutti::scatter(call.inputs[0][0], call.outputs[0], call.dim, {}, what.options);
  }
  [[nodiscard]] Lists run_returning(const Call& call, const Case& what) const override {
    return {tutti::scatter(call.inputs[0][0], call.devices, {}, call.dim, {}, what.options)};
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const Case& what) const override {
    return persistent_scatter(call.inputs[0][0], call.outputs[0], call.dim, what.options);
  }
};

class Gather final : public Operation {
 public:
  [[nodiscard]] std::string_view name() const override { return "gather"; }
  [[nodiscard]] std::optional<CollectiveForm> form() const override { return Collective::gather; }
  [[nodiscard]] bool has(Placement placement) const override { return placement != Placement::in_place; }
  [[nodiscard]] Call prepare(const Case& what, Placement placement) const override {
    return prepare_collective(Collective::gather, what, placement);
  }
  void run(const Call& call, const Case& what) const override {
    tutti::gather(call.inputs[0], call.outputs[0][0], call.dim, what.options);
  }
  [[nodiscard]] Lists run_returning(const Call& call, const Case& what) const override {
    return {{tutti::gather(call.inputs[0], call.dim, call.root, what.options)}};
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const Case& what) const override {
    return persistent_gather(call.inputs[0], call.outputs[0][0], call.dim, what.options);
  }
};

}  // namespace

const Operation& scatter() {
  static const Scatter operation;
  return operation;
}

const Operation& gather() {
  static const Gather operation;
  return operation;
}

}  // namespace tutti::perf::operations
