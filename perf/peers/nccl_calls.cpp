// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/nccl_calls.hpp"

#include "perf/operations/found_in.hpp"
#include "perf/operations/reductions.hpp"
#include "tutti/error.hpp"
#include "tutti/float_types.hpp"

#include <array>
#include <cstring>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

/// What NCCL sums: the type, and how many of them make an element.
struct SummedType {
  ncclDataType_t type;
  std::size_t per_element;
};
constexpr std::pair<DType, SummedType> summed_types[] = {
    {DType::float16, {ncclFloat16, 1}},   {DType::bfloat16, {ncclBfloat16, 1}},
    {DType::float32, {ncclFloat32, 1}},   {DType::float64, {ncclFloat64, 1}},
    {DType::int8, {ncclInt8, 1}},         {DType::uint8, {ncclUint8, 1}},
    {DType::int32, {ncclInt32, 1}},       {DType::uint32, {ncclUint32, 1}},
    {DType::int64, {ncclInt64, 1}},       {DType::uint64, {ncclUint64, 1}},
    {DType::complex64, {ncclFloat32, 2}}, {DType::complex128, {ncclFloat64, 2}}};
/// NCCL's operations, other than those that are made for each communicator.
constexpr std::pair<ReduceKind, ncclRedOp_t> operations[] = {{ReduceKind::sum, ncclSum},
                                                             {ReduceKind::avg, ncclAvg},
                                                             {ReduceKind::min, ncclMin},
                                                             {ReduceKind::max, ncclMax},
                                                             {ReduceKind::prod, ncclProd}};

/// What inputs are multiplied with, as one of their elements.
std::array<std::byte, sizeof(double)> factor_of(ncclDataType_t type) {
  std::array<std::byte, sizeof(double)> element{};
  const auto put = [&element](auto value) { std::memcpy(element.data(), &value, sizeof value); };
  constexpr auto factor = static_cast<float>(premul_factor);
  if (type == ncclFloat16) {
    put(Float16(factor));
  } else if (type == ncclBfloat16) {
    put(BFloat16(factor));
  } else if (type == ncclFloat32) {
    put(factor);
  } else if (type == ncclFloat64) {
    put(static_cast<double>(factor));
  } else {
    put(static_cast<std::int64_t>(premul_factor));  // its first bytes are every shorter integer's
  }
  return element;
}

/// A tensor as NCCL sums it.
struct Summand {
  explicit Summand(const Tensor& tensor) : data(tensor.data()) {
    const SummedType summed = found_in(summed_types, tensor.dtype()).value();
    type = summed.type;
    count = static_cast<std::size_t>(tensor.numel()) * summed.per_element;
  }

  const void* data;
  ncclDataType_t type;
  std::size_t count;
};

std::byte* bytes_of(const Tensor& tensor) {
  return static_cast<std::byte*>(tensor.data());
}

/// Calls `visit(place, bytes, member)` for every member's part of a tensor that is cut into so many bytes.
template <class Visit>
void for_each_part(const Tensor& whole, const std::vector<std::size_t>& bytes, const Visit& visit) {
  std::byte* place = bytes_of(whole);
  for (std::size_t member = 0; member < bytes.size(); ++member) {
    visit(place, bytes[member], static_cast<int>(member));
    place += bytes[member];
  }
}

/// Returns the bytes of parts of so many elements.
std::vector<std::size_t> bytes_of_parts(const std::vector<std::int64_t>& sizes, DType dtype) {
  std::vector<std::size_t> bytes;
  for (const std::int64_t size : sizes) bytes.push_back(static_cast<std::size_t>(size) * size_of(dtype));
  return bytes;
}

}  // namespace

std::string NcclCalls::refusal(const Operation& operation, const Call& call) {
  if (call.dim != 0) return "NCCL sends contiguous memory only";
  if (!operation.moves_tensors()) return fmt::format("NCCL has no {}", operation.name());
  if (operation.is(Collective::all_to_all) && call.count != 0 &&
      call.inputs[0][0].data() == call.outputs[0][0].data())
    return "NCCL exchanges nothing in place";
  if (!operation.sums()) return "";
  const bool multiplies = call.reduce_kind == ReduceKind::premul_sum;
  if (!multiplies && !found_in(operations, call.reduce_kind))
    return fmt::format("NCCL has no {}", name_of_reduction(call.reduce_kind));
  const bool is_plain_sum =
      multiplies || call.reduce_kind == ReduceKind::sum || call.reduce_kind == ReduceKind::avg;
  for (const Buffer& input : call.input_buffers) {  // every rank has one
    const DType dtype = input.tensor.dtype();
    const std::optional<SummedType> type = found_in(summed_types, dtype);
    if (!type || (type->per_element != 1 && !is_plain_sum))
      return fmt::format("NCCL has no {} of {}", name_of_reduction(call.reduce_kind), name_of(dtype));
  }
  return "";
}

NcclCallKind NcclCalls::kind_of(const Operation& operation) {
  const bool sends = operation.is_copy() || operation.goes_around() || operation.is(Collective::all_to_all) ||
                     operation.is(Collective::scatter) || operation.is(Collective::gather);
  return sends ? NcclCallKind::messages : NcclCallKind::collective;
}

void NcclCalls::enqueue(const Operation& operation, const Call& call) {
  check(nccl_.group_start(), "ncclGroupStart");
  for (std::size_t tensor = 0; tensor < call.tensors; ++tensor) {
    for (std::size_t local = 0; local < streams_.size(); ++local) {
      const Part part{call, operation.is_coalesced(), local, tensor};
      if (operation.is_copy()) {
        enqueue_copy(part);
      } else if (operation.goes_around()) {
        pass_on(part);
      } else {
        enqueue_one(*operation.collective(), part);
      }
    }
  }
  check(nccl_.group_end(), "ncclGroupEnd");
}

ncclRedOp_t NcclCalls::operation_of(ReduceKind kind, std::size_t local, ncclDataType_t type) {
  if (kind != ReduceKind::premul_sum) return found_in(operations, kind).value();
  return communicators_.premultiplied_sum(local, type, factor_of(type));
}

void NcclCalls::send(const std::byte* data, std::size_t bytes, std::size_t from, int to) const {
  if (bytes == 0) return;
  check(nccl_.send(data, bytes, ncclUint8, to, communicators_[from], stream(from)), "ncclSend");
}

void NcclCalls::receive(std::byte* data, std::size_t bytes, std::size_t at, int from) const {
  if (bytes == 0) return;
  check(nccl_.receive(data, bytes, ncclUint8, from, communicators_[at], stream(at)), "ncclRecv");
}

void NcclCalls::enqueue_one(Collective collective, const Part& part) {
  const Call& call = part.call;
  const bool is_root = members_.number_of(part.local) == call.root;
  ncclComm_t const communicator = communicators_[part.local];
  cudaStream_t const stream = this->stream(part.local);
  switch (collective) {
    case Collective::broadcast: {
      const Tensor& copy = part.each(call.outputs);
      const void* const source = is_root ? part.root(call.inputs).data() : copy.data();
      check(nccl_.broadcast(source, copy.data(), copy.nbytes(), ncclUint8, call.root, communicator, stream),
            "ncclBroadcast");
      return;
    }
    case Collective::reduce: {
      const Summand summand(part.each(call.inputs));
      const ncclRedOp_t operation = operation_of(call.reduce_kind, part.local, summand.type);
      void* const sum = is_root ? part.root(call.outputs).data() : nullptr;
      check(nccl_.reduce(summand.data, sum, summand.count, summand.type, operation, call.root, communicator,
                         stream),
            "ncclReduce");
      return;
    }
    case Collective::all_reduce: {
      const Summand summand(part.each(call.inputs));
      const ncclRedOp_t operation = operation_of(call.reduce_kind, part.local, summand.type);
      check(nccl_.all_reduce(summand.data, part.each(call.outputs).data(), summand.count, summand.type,
                             operation, communicator, stream),
            "ncclAllReduce");
      return;
    }
    case Collective::all_to_all:
      return exchange(part);
    case Collective::all_gather: {
      if (!call.sizes.empty()) return gather_unequal(part);
      const Tensor& input = part.each(call.inputs);
      check(nccl_.all_gather(input.data(), part.each(call.outputs).data(), input.nbytes(), ncclUint8,
                             communicator, stream),
            "ncclAllGather");
      return;
    }
    case Collective::reduce_scatter: {
      if (!call.sizes.empty()) return reduce_unequal(part);
      const Summand summand(part.each(call.inputs));
      const ncclRedOp_t operation = operation_of(call.reduce_kind, part.local, summand.type);
      check(nccl_.reduce_scatter(summand.data, part.each(call.outputs).data(),
                                 summand.count / static_cast<std::size_t>(members_.count), summand.type,
                                 operation, communicator, stream),
            "ncclReduceScatter");
      return;
    }
    case Collective::scatter:
      return scatter(part, is_root);
    case Collective::gather:
      return gather(part, is_root);
    default:
      throw Error(ErrorCode::internal, "--peer nccl: not a collective");
  }
}

void NcclCalls::enqueue_copy(const Part& part) const {
  const Call& call = part.call;
  const int member = members_.number_of(part.local);
  if (member == call.root) send(bytes_of(call.inputs[0][0]), call.bytes, part.local, call.partner);
  if (member == call.partner) receive(bytes_of(call.outputs[0][0]), call.bytes, part.local, call.root);
}

void NcclCalls::pass_on(const Part& part) const {
  const int member = members_.number_of(part.local);
  const Tensor& input = part.each(part.call.inputs);
  const Tensor& out = part.each(part.call.outputs);
  send(bytes_of(input), input.nbytes(), part.local, members_.after(member));
  receive(bytes_of(out), out.nbytes(), part.local, members_.before(member));
}

void NcclCalls::send_parts(const Tensor& whole, const std::vector<std::size_t>& bytes,
                           std::size_t local) const {
  for_each_part(whole, bytes,
                [&](std::byte* place, std::size_t part, int member) { send(place, part, local, member); });
}

void NcclCalls::receive_parts(const Tensor& whole, const std::vector<std::size_t>& bytes,
                              std::size_t local) const {
  for_each_part(whole, bytes,
                [&](std::byte* place, std::size_t part, int member) { receive(place, part, local, member); });
}

void NcclCalls::exchange(const Part& part) const {
  const Tensor& input = part.each(part.call.inputs);
  const auto members = static_cast<std::size_t>(members_.count);
  const auto bytes_of_side = [&](const std::vector<std::vector<std::int64_t>>& sizes) {
    return sizes.empty() ? std::vector<std::size_t>(members, input.nbytes() / members)
                         : bytes_of_parts(sizes[part.local], input.dtype());
  };
  send_parts(input, bytes_of_side(part.call.input_sizes), part.local);
  receive_parts(part.each(part.call.outputs), bytes_of_side(part.call.out_sizes), part.local);
}

void NcclCalls::gather_unequal(const Part& part) const {
  const Tensor& input = part.each(part.call.inputs);
  const auto gather_part = [&](std::byte* place, std::size_t bytes, int member) {
    if (bytes == 0) return;
    const bool is_own = members_.number_of(part.local) == member;
    check(nccl_.broadcast(is_own ? bytes_of(input) : place, place, bytes, ncclUint8, member,
                          communicators_[part.local], stream(part.local)),
          "ncclBroadcast");
  };
  for_each_part(part.each(part.call.outputs), bytes_of_parts(part.call.sizes, input.dtype()), gather_part);
}

void NcclCalls::reduce_unequal(const Part& part) {
  const Tensor& input = part.each(part.call.inputs);
  const Tensor& out = part.each(part.call.outputs);
  const SummedType summed = found_in(summed_types, input.dtype()).value();
  const ncclRedOp_t operation = operation_of(part.call.reduce_kind, part.local, summed.type);
  const auto reduce_part = [&](std::byte* place, std::size_t bytes, int member) {
    if (bytes == 0) return;
    const bool is_own = members_.number_of(part.local) == member;
    check(nccl_.reduce(place, is_own ? out.data() : nullptr,
                       bytes / size_of(input.dtype()) * summed.per_element, summed.type, operation, member,
                       communicators_[part.local], stream(part.local)),
          "ncclReduce");
  };
  for_each_part(input, bytes_of_parts(part.call.sizes, input.dtype()), reduce_part);
}

void NcclCalls::scatter(const Part& part, bool is_root) const {
  if (is_root) send_parts(part.call.inputs[0][0], part.call.part_bytes, part.local);
  const Tensor& own = part.each(part.call.outputs);
  receive(bytes_of(own), own.nbytes(), part.local, part.call.root);
}

void NcclCalls::gather(const Part& part, bool is_root) const {
  const Tensor& own = part.each(part.call.inputs);
  send(bytes_of(own), own.nbytes(), part.local, part.call.root);
  if (is_root) receive_parts(part.call.outputs[0][0], part.call.part_bytes, part.local);
}

}  // namespace tutti::perf
