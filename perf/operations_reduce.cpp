#include "operation.hpp"

namespace tutti::perf::operations {
namespace {

/// Both forms: one tensor per device, or a list of them per device.
class ReduceBase : public Operation {
 public:
  [[nodiscard]] OperationKind kind() const override { return OperationKind::reduce; }

  [[nodiscard]] Call prepare(const Case& what, Placement placement) const override {
    const std::vector<TensorSpec> specs = payload_tensors(what, is_coalesced());
    Call call;
    call.root = what.root;
    call.devices = devices_of(what);
    call.repeatable = placement != Placement::in_place;  // there every call adds to the last one's sum
    std::vector<Tensor> inputs;
    for (const TensorSpec& spec : specs) inputs.push_back(make_tensor(spec, what.root));
    const Lists copies = make_copies(inputs, what.device_count);
    for (std::size_t t = 0; t < specs.size(); ++t) {
      for (int device = 0; device < what.device_count; ++device) {
        const std::size_t list = is_coalesced() ? static_cast<std::size_t>(device) : 0;
        const Tensor& input = copies[static_cast<std::size_t>(device)][t];
        call.add_input(list, input,
                       whole_content(specs[t], what, t, Pattern::integers, device, what.device_count));
        call.bytes += device == what.root ? input.nbytes() : 0;
        call.count += device == what.root ? input.numel() : 0;
      }
      Content sum = whole_content(specs[t], what, t, Pattern::integers, 0, what.device_count);
      sum.source_count = what.device_count;
      switch (placement) {
        case Placement::out_of_place:
          call.add_output(0, make_tensor(specs[t], what.root), sum);
          break;
        case Placement::in_place:
          call.add_aliasing_output(0, copies[static_cast<std::size_t>(what.root)][t], sum);
          break;
        case Placement::returned:
          call.expect_output(0, sum);
          break;
      }
    }
    return call;
  }
};

class ReduceAdd final : public ReduceBase {
 public:
  [[nodiscard]] std::string_view name() const override { return "reduce_add"; }
  [[nodiscard]] std::optional<Collective> collective() const override { return Collective::reduce_add; }
  void run(const Call& call, const CollectiveOptions& options) const override {
    tutti::reduce_add(call.inputs[0], call.outputs[0][0], options);
  }
  [[nodiscard]] Lists run_returning(const Call& call, const CollectiveOptions& options) const override {
    return {{tutti::reduce_add(call.inputs[0], call.root, options)}};
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const CollectiveOptions& options) const override {
    return persistent_reduce_add(call.inputs[0], call.outputs[0][0], options);
  }
};

class ReduceAddCoalesced final : public ReduceBase {
 public:
  [[nodiscard]] std::string_view name() const override { return "reduce_add_coalesced"; }
  [[nodiscard]] std::optional<Collective> collective() const override {
    return Collective::reduce_add_coalesced;
  }
  [[nodiscard]] bool is_coalesced() const override { return true; }
  void run(const Call& call, const CollectiveOptions& options) const override {
    tutti::reduce_add_coalesced(call.inputs, call.outputs[0], default_buffer_size, options);
  }
  [[nodiscard]] Lists run_returning(const Call& call, const CollectiveOptions& options) const override {
    return {tutti::reduce_add_coalesced(call.inputs, call.root, default_buffer_size, options)};
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const CollectiveOptions& options) const override {
    return persistent_reduce_add_coalesced(call.inputs, call.outputs[0], default_buffer_size, options);
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
