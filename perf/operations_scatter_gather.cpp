#include "operation.hpp"

#include <algorithm>

namespace tutti::perf::operations {
namespace {

/// One device's part of the whole: equal parts along a dimension, the last ones smaller or empty.
struct Chunk {
  std::int64_t start = 0;
  std::int64_t length = 0;
};

Chunk chunk_of(std::int64_t size, int index, int count) {
  const std::int64_t most = (size + count - 1) / count;
  const std::int64_t start = std::min(size, most * index);
  return {start, std::min(most, size - start)};
}

/// A whole tensor on the root and its chunks, one per device: the two ends of scatter and gather. Chunks may
/// not share memory with the whole, so there is no in-place form.
class ChunkedBase : public Operation {
 public:
  [[nodiscard]] bool has_in_place() const override { return false; }
  [[nodiscard]] double bus_factor(int device_count) const override {
    return static_cast<double>(device_count - 1) / static_cast<double>(device_count);
  }

  [[nodiscard]] Call prepare(const Case& what, Placement placement) const override {
    const TensorSpec spec = payload_tensors(what, false).front();
    const Content content = whole_content(spec, what, 0, Pattern::bits);
    Call call;
    call.root = what.root;
    call.devices = devices_of(what);
    call.dim = what.dim;
    call.bytes = Layout(*spec.dtype, spec.sizes).nbytes();
    call.count = static_cast<std::int64_t>(call.bytes / size_of(*spec.dtype));
    add(call, whole_is_input(), placement, {spec, content, what.root});
    for (int device = 0; device < what.device_count; ++device) {
      const Chunk chunk = chunk_of(spec.sizes.back(), device, what.device_count);
      Content part = content;
      part.offset = chunk.start;
      part.row_stride = std::max<std::int64_t>(spec.sizes.back(), 1);
      part.row_length = std::max<std::int64_t>(chunk.length, 1);
      TensorSpec shape = spec;
      shape.sizes.back() = chunk.length;
      add(call, !whole_is_input(), placement, {shape, part, device});
    }
    return call;
  }

 protected:
  [[nodiscard]] virtual bool whole_is_input() const = 0;

 private:
  struct Part {
    TensorSpec spec;
    Content content;
    int device = 0;
  };
  static void add(Call& call, bool is_input, Placement placement, const Part& part) {
    if (is_input) {
      call.add_input(0, make_tensor(part.spec, part.device), part.content);
    } else if (placement == Placement::returned) {
      call.expect_output(0, part.content);
    } else {
      call.add_output(0, make_tensor(part.spec, part.device), part.content);
    }
  }
};

class Scatter final : public ChunkedBase {
 public:
  [[nodiscard]] std::string_view name() const override { return "scatter"; }
  [[nodiscard]] OperationKind kind() const override { return OperationKind::scatter; }
  [[nodiscard]] std::optional<Collective> collective() const override { return Collective::scatter; }
  void run(const Call& call, const CollectiveOptions& options) const override {
    tutti::scatter(call.inputs[0][0], call.outputs[0], call.dim, {}, options);
  }
  [[nodiscard]] Lists run_returning(const Call& call, const CollectiveOptions& options) const override {
    return {tutti::scatter(call.inputs[0][0], call.devices, {}, call.dim, {}, options)};
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const CollectiveOptions& options) const override {
    return persistent_scatter(call.inputs[0][0], call.outputs[0], call.dim, options);
  }

 private:
  [[nodiscard]] bool whole_is_input() const override { return true; }
};

class Gather final : public ChunkedBase {
 public:
  [[nodiscard]] std::string_view name() const override { return "gather"; }
  [[nodiscard]] OperationKind kind() const override { return OperationKind::gather; }
  [[nodiscard]] std::optional<Collective> collective() const override { return Collective::gather; }
  void run(const Call& call, const CollectiveOptions& options) const override {
    tutti::gather(call.inputs[0], call.outputs[0][0], call.dim, options);
  }
  [[nodiscard]] Lists run_returning(const Call& call, const CollectiveOptions& options) const override {
    return {{tutti::gather(call.inputs[0], call.dim, call.root, options)}};
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const CollectiveOptions& options) const override {
    return persistent_gather(call.inputs[0], call.outputs[0][0], call.dim, options);
  }

 private:
  [[nodiscard]] bool whole_is_input() const override { return false; }
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
