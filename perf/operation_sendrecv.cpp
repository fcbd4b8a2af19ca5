#include "operation.hpp"
#include "tutti/error.hpp"

namespace tutti::perf::operations {
namespace {

/// One device's tensor copied to another device.
class SendReceive final : public Operation {
 public:
  [[nodiscard]] std::string_view name() const override { return "sendrecv"; }
  [[nodiscard]] OperationKind kind() const override { return OperationKind::copy; }
  [[nodiscard]] std::optional<Collective> collective() const override { return std::nullopt; }
  [[nodiscard]] bool has_in_place() const override { return false; }

  [[nodiscard]] Call prepare(const Case& what, Placement) const override {
    const TensorSpec spec = payload_tensors(what, false).front();
    const Content content = whole_content(spec, what, 0, Pattern::bits);
    Call call;
    call.root = what.root;
    call.partner = what.partner;
    call.add_input(0, make_tensor(spec, what.root), content);
    call.add_output(0, make_tensor(spec, what.partner), content);
    call.bytes = call.inputs[0][0].nbytes();
    call.count = call.inputs[0][0].numel();
    return call;
  }

  void run(const Call& call, const CollectiveOptions&) const override {
    call.outputs[0][0].copy_(call.inputs[0][0], Blocking::no);
  }
  [[nodiscard]] Lists run_returning(const Call&, const CollectiveOptions&) const override {
    throw Error(ErrorCode::unsupported, "sendrecv: plain copies return no new tensors");
  }
  [[nodiscard]] PersistentCollective bind(const Call&, const CollectiveOptions&) const override {
    throw Error(ErrorCode::unsupported, "sendrecv: plain copies have no persistent form");
  }
};

}  // namespace

const Operation& sendrecv() {
  static const SendReceive operation;
  return operation;
}

}  // namespace tutti::perf::operations
