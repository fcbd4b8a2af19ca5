// SPDX-License-Identifier: Apache-2.0
#include "perf/session/operand_arena.hpp"

#include "tutti/error.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tutti::perf {

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
