// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/operands.hpp"

#include "collectives/nccl_api/handle.hpp"
#include "tutti/collectives.hpp"
#include "tutti/dtype.hpp"

#include <cstddef>
#include <cstdint>

namespace tutti::nccl_api {
namespace {

std::size_t input_count(const Call& call) {
  const auto ranks = static_cast<std::size_t>(call.comm->ranks);
  const bool is_cut = call.kind == Kind::reduce_scatter || call.kind == Kind::all_to_all;
  return is_cut ? call.count * ranks : call.count;
}

std::size_t output_count(const Call& call) {
  const auto ranks = static_cast<std::size_t>(call.comm->ranks);
  const bool is_joined = call.kind == Kind::all_gather || call.kind == Kind::all_to_all;
  return is_joined ? call.count * ranks : call.count;
}

/// Multiplies by an element in a device's memory, which is read when the stream comes to it.
Tensor multiplied(const Tensor& tensor, const Factor& factor) {
  const Tensor factors(TensorView(factor.element, factor.dtype, tensor.sizes(), {0}, tensor.device()));
  Tensor result = empty_like(tensor);
  reduce({tensor, factors.contiguous()}, result, ReduceOp::prod);
  return result;
}

}  // namespace

bool needs_input(const Call& call) noexcept {
  if (call.kind == Kind::recv) return false;
  return call.kind != Kind::broadcast || call.peer == call.comm->rank;
}

Tensor input(const Call& call, const Stream& stream) {
  Tensor tensor = call.comm->tensor(call.in, call.dtype, input_count(call));
  if (!call.factor) return tensor;
  const StreamGuard guard(stream);
  if (call.factor->element != nullptr) return multiplied(tensor, *call.factor);
  Tensor result = empty_like(tensor);
  reduce({tensor}, result, ReduceOp::premul_sum(call.factor->value));
  return result;
}

Tensor output(const Call& call) {
  return call.comm->tensor(call.out, call.dtype, output_count(call));
}

Tensor output_or_input(const Call& call) {
  const bool is_ignored = call.kind == Kind::reduce && call.peer != call.comm->rank;
  return is_ignored ? call.comm->tensor(call.in, call.dtype, call.count) : output(call);
}

JoinedPieces::JoinedPieces(std::span<const Call> calls, Pieces pieces, const Stream& stream)
    : stream_(stream) {
  std::size_t count = 0;
  const std::byte* next = nullptr;
  bool is_joined = true;
  for (const Call& call : calls) {
    const Tensor part = pieces == Pieces::inputs ? input(call, stream) : output(call);
    const auto* const data = static_cast<const std::byte*>(part.data());
    is_joined = is_joined && (next == nullptr || data == next) && !call.factor;
    next = data + part.nbytes();
    count += call.count;
    parts_.push_back(part);
  }
  if (is_joined) {
    whole_ = calls.front().comm->tensor(parts_.front().data(), calls.front().dtype, count);
    parts_.clear();
    return;
  }
  const StreamGuard guard(stream);
  whole_ = empty({static_cast<std::int64_t>(count)},
                 {.dtype = calls.front().dtype, .device = parts_.front().device()});
  if (pieces == Pieces::outputs) return;
  std::int64_t start = 0;
  for (const Tensor& part : parts_) {
    whole_.narrow(0, start, part.numel()).copy_(part);
    start += part.numel();
  }
}

void JoinedPieces::give_back() const {
  const StreamGuard guard(stream_);
  std::int64_t start = 0;
  for (const Tensor& part : parts_) {
    part.copy_(whole_.narrow(0, start, part.numel()));
    start += part.numel();
  }
}

}  // namespace tutti::nccl_api
