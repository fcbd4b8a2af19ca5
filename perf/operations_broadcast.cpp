#include "operation.hpp"

namespace tutti::perf::operations {
namespace {

/// Both forms: one tensor, or a list of them.
class BroadcastBase : public Operation {
 public:
  [[nodiscard]] OperationKind kind() const override { return OperationKind::broadcast; }

  [[nodiscard]] Call prepare(const Case& what, Placement placement) const override {
    const std::vector<TensorSpec> specs = payload_tensors(what, is_coalesced());
    Call call;
    call.root = what.root;
    call.devices = devices_of(what);
    std::vector<Tensor> sources;
    for (const TensorSpec& spec : specs) sources.push_back(make_tensor(spec, what.root));
    const Lists copies = placement == Placement::returned ? Lists() : make_copies(sources, what.device_count);
    for (std::size_t t = 0; t < specs.size(); ++t) {
      const Content content = whole_content(specs[t], what, t, Pattern::bits);
      const Tensor& source = sources[t];
      call.add_input(0, source, content);
      call.bytes += source.nbytes();
      call.count += source.numel();
      for (int device = 0; device < what.device_count; ++device) {
        const std::size_t list = is_coalesced() ? static_cast<std::size_t>(device) : 0;
        if (placement == Placement::in_place && device == what.root) {
          call.add_aliasing_output(list, source, content);
        } else if (placement == Placement::returned) {
          call.expect_output(list, content);
        } else {
          call.add_output(list, copies[static_cast<std::size_t>(device)][t], content);
        }
      }
    }
    return call;
  }
};

class Broadcast final : public BroadcastBase {
 public:
  [[nodiscard]] std::string_view name() const override { return "broadcast"; }
  [[nodiscard]] std::optional<Collective> collective() const override { return Collective::broadcast; }
  void run(const Call& call, const CollectiveOptions& options) const override {
    tutti::broadcast(call.inputs[0][0], call.outputs[0], options);
  }
  [[nodiscard]] Lists run_returning(const Call& call, const CollectiveOptions& options) const override {
    return {tutti::broadcast(call.inputs[0][0], call.devices, options)};
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const CollectiveOptions& options) const override {
    return persistent_broadcast(call.inputs[0][0], call.outputs[0], options);
  }
};

class BroadcastCoalesced final : public BroadcastBase {
 public:
  [[nodiscard]] std::string_view name() const override { return "broadcast_coalesced"; }
  [[nodiscard]] std::optional<Collective> collective() const override {
    return Collective::broadcast_coalesced;
  }
  [[nodiscard]] bool is_coalesced() const override { return true; }
  void run(const Call& call, const CollectiveOptions& options) const override {
    tutti::broadcast_coalesced(call.inputs[0], call.outputs, default_buffer_size, options);
  }
  [[nodiscard]] Lists run_returning(const Call& call, const CollectiveOptions& options) const override {
    return tutti::broadcast_coalesced(call.inputs[0], call.devices, default_buffer_size, options);
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const CollectiveOptions& options) const override {
    return persistent_broadcast_coalesced(call.inputs[0], call.outputs, default_buffer_size, options);
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
