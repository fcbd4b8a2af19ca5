// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/block_memory.hpp"

#include "tutti/error.hpp"
#include "tutti/layout.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace tutti::perf {

void BlockMemory::start_set(std::size_t set) {
  set_ = set;
  std::ranges::fill(used_, 0);
}

Tensor BlockMemory::make(const std::vector<std::int64_t>& sizes, DType dtype, std::size_t local) {
  const std::size_t taken = taken_by(Layout(dtype, sizes).nbytes());
  std::size_t& used = used_[local];
  if (used + taken > bytes_of_set_)
    throw Error(ErrorCode::internal, "a call has more operands than were announced");
  std::byte* const memory = block(local) + set_ * bytes_of_set_ + used;
  used += taken;
  return Tensor(TensorView(memory, dtype, sizes, devices_[local]));
}

void OperandArena::foresee(std::size_t bytes) noexcept {
  if (bytes <= most_) foreseen_ = std::max(foreseen_, bytes);
}

void OperandArena::reserve(std::size_t sets, std::size_t bytes_of_set) {
  const std::size_t wanted = sets * bytes_of_set;
  if (blocks_.empty()) {
    const std::size_t bytes = std::max({foreseen_, wanted, alignment});
    std::vector<ForeignMemory> blocks;
    for (const Device device : devices()) blocks.emplace_back(choice_, bytes, device);
    blocks_ = std::move(blocks);
    bytes_ = bytes;
  }
  if (wanted > bytes_) {
    throw Error(ErrorCode::out_of_memory,
                fmt::format("operands take {} bytes, and the memory that all share has {}", wanted, bytes_));
  }
  cut(bytes_of_set);
}

}  // namespace tutti::perf
