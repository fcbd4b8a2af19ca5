// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/prepare.hpp"

namespace tutti::perf::operations {
namespace {

class ReduceAdd final : public Operation {
 public:
  [[nodiscard]] std::string_view name() const override { return "reduce_add"; }
  [[nodiscard]] std::optional<CollectiveForm> form() const override { return Collective::reduce; }
  [[nodiscard]] Call prepare(const Case& what, Placement placement) const override {
    return prepare_collective(Collective::reduce, what, placement);
  }
  void run(const Call& call, const Case& what) const override {
    if (what.reduce_kind == ReduceKind::sum) {
      tutti::reduce_add(call.inputs[0], call.outputs[0][0], what.options);
    } else {
      tutti::reduce(call.inputs[0], call.outputs[0][0], what.operation(), what.options);
    }
  }
  [[nodiscard]] Lists run_returning(const Call& call, const Case& what) const override {
    if (what.reduce_kind == ReduceKind::sum)
      return {{tutti::reduce_add(call.inputs[0], call.root, what.options)}};
    return {{tutti::reduce(call.inputs[0], what.operation(), call.root, what.options)}};
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const Case& what) const override {
    return persistent_reduce(call.inputs[0], call.outputs[0][0], what.operation(), what.options);
  }
};

class ReduceAddCoalesced final : public Operation {
 public:
  [[nodiscard]] std::string_view name() const override { return "reduce_add_coalesced"; }
  [[nodiscard]] std::optional<CollectiveForm> form() const override { return coalesced(Collective::reduce); }
  [[nodiscard]] Call prepare(const Case& what, Placement placement) const override {
    return prepare_collective(coalesced(Collective::reduce), what, placement);
  }
  void run(const Call& call, const Case& what) const override {
    if (what.reduce_kind == ReduceKind::sum) {
      tutti::reduce_add_coalesced(call.inputs, call.outputs[0], default_buffer_size, what.options);
    } else {
      tutti::reduce_coalesced(call.inputs, call.outputs[0], what.operation(), default_buffer_size,
                              what.options);
    }
  }
  [[nodiscard]] Lists run_returning(const Call& call, const Case& what) const override {
    if (what.reduce_kind == ReduceKind::sum)
      return {tutti::reduce_add_coalesced(call.inputs, call.root, default_buffer_size, what.options)};
    return {
        tutti::reduce_coalesced(call.inputs, what.operation(), call.root, default_buffer_size, what.options)};
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const Case& what) const override {
    return persistent_reduce_coalesced(call.inputs, call.outputs[0], what.operation(), default_buffer_size,
                                       what.options);
  }
};

}  // namespace

const Operation& reduce_add() {
  static const ReduceAdd operation;
  return operation;
}

const Operation& reduce_add_coalesced() {
  static const ReduceAddCoalesced operation;
  return operation;
}

}  // namespace tutti::perf::operations
