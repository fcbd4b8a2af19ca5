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

  [[nodiscard]] Call prepare(const Case& what, Placement) const override {
    const TensorSpec spec = payload_tensors(what, false).front();
    const Content content = whole_content(spec, what, 0, Pattern::bits);
    const Tensor whole = make_tensor(spec, what.root);
    Call call;
    call.root = what.root;
    call.dim = what.dim;
    call.bytes = whole.nbytes();
    call.count = whole.numel();
    add_whole(call, whole, content);
    for (int device = 0; device < what.device_count; ++device) {
      const Chunk chunk = chunk_of(spec.sizes.back(), device, what.device_count);
      Content part = content;
      part.offset = chunk.start;
      part.row_stride = std::max<std::int64_t>(spec.sizes.back(), 1);
      part.row_length = std::max<std::int64_t>(chunk.length, 1);
      TensorSpec shape = spec;
      shape.sizes.back() = chunk.length;
      add_chunk(call, make_tensor(shape, device), part);
    }
    return call;
  }

 protected:
  virtual void add_whole(Call& call, const Tensor& whole, const Content& content) const = 0;
  virtual void add_chunk(Call& call, const Tensor& chunk, const Content& content) const = 0;
};

class Scatter final : public ChunkedBase {
 public:
  [[nodiscard]] std::string_view name() const override { return "scatter"; }
  [[nodiscard]] OperationKind kind() const override { return OperationKind::scatter; }
  [[nodiscard]] std::optional<Collective> collective() const override { return Collective::scatter; }
  void run(const Call& call, const CollectiveOptions& options) const override {
    tutti::scatter(call.inputs[0][0], call.outputs[0], call.dim, {}, options);
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const CollectiveOptions& options) const override {
    return persistent_scatter(call.inputs[0][0], call.outputs[0], call.dim, options);
  }

 private:
  void add_whole(Call& call, const Tensor& whole, const Content& content) const override {
    call.add_input(0, whole, content);
  }
  void add_chunk(Call& call, const Tensor& chunk, const Content& content) const override {
    call.add_output(0, chunk, content);
  }
};

class Gather final : public ChunkedBase {
 public:
  [[nodiscard]] std::string_view name() const override { return "gather"; }
  [[nodiscard]] OperationKind kind() const override { return OperationKind::gather; }
  [[nodiscard]] std::optional<Collective> collective() const override { return Collective::gather; }
  void run(const Call& call, const CollectiveOptions& options) const override {
    tutti::gather(call.inputs[0], call.outputs[0][0], call.dim, options);
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const CollectiveOptions& options) const override {
    return persistent_gather(call.inputs[0], call.outputs[0][0], call.dim, options);
  }

 private:
  void add_whole(Call& call, const Tensor& whole, const Content& content) const override {
    call.add_output(0, whole, content);
  }
  void add_chunk(Call& call, const Tensor& chunk, const Content& content) const override {
    call.add_input(0, chunk, content);
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
