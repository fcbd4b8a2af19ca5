// SPDX-License-Identifier: Apache-2.0
#include "backend/host/kernels/kernels.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>

namespace tutti::backend::host {

namespace {

/// The bytes that one target's copy reads and that are still in the first-level cache for the next one's.
constexpr std::size_t block_bytes = 16 * 1024;

struct Rows {
  std::size_t bytes;  ///< of each
  std::size_t count;
};
/// Merges rows that are adjacent on both sides into one.
Rows merged(Rows rows, std::size_t target_pitch, std::size_t source_pitch) {
  const bool are_one = rows.bytes == target_pitch && rows.bytes == source_pitch;
  return are_one ? Rows{rows.bytes * rows.count, 1} : rows;
}

}  // namespace

void copy_rows(std::byte* target, std::size_t target_pitch, const std::byte* source, std::size_t source_pitch,
               std::size_t row_bytes, std::size_t rows) {
  if (row_bytes == 0 || rows == 0) return;
  const auto [bytes, count] = merged({row_bytes, rows}, target_pitch, source_pitch);
  const std::size_t extent = (count - 1) * std::max(target_pitch, source_pitch) + bytes;
  const bool overlap = target < source + extent && source < target + extent;
  const Stores stores = stores_for_rows(stores_for(bytes * count), bytes);
  for (std::size_t row = 0; row < count; ++row) {
    std::byte* const to = target + row * target_pitch;
    const std::byte* const from = source + row * source_pitch;
    if (overlap) {
      std::memmove(to, from, bytes);
    } else {
      put(to, from, bytes, stores);
    }
  }
  finish(stores);
}

void swap_bytes(std::size_t bytes, const std::byte* given, std::byte* exposed, std::byte* taken) {
  std::array<std::byte, 4096> kept;
  for (std::size_t begin = 0; begin < bytes; begin += kept.size()) {
    const std::size_t count = std::min(bytes - begin, kept.size());
    std::memcpy(kept.data(), given + begin, count);
    std::memcpy(taken + begin, exposed + begin, count);
    std::memcpy(exposed + begin, kept.data(), count);
  }
}

void fan_out_segment(const FanOutSegment& segment, const std::byte* source,
                     std::span<std::byte* const> targets, Stores stores) {
  const Rows rows = merged({segment.row_bytes, segment.rows}, segment.target_pitch, segment.source_pitch);
  stores = stores_for_rows(stores, rows.bytes);
  for (std::size_t row = 0; row < rows.count; ++row) {
    const std::byte* const source_row = source + row * segment.source_pitch;
    // A single target needs no blocks.
    const std::size_t block = targets.size() == 1 ? rows.bytes : block_bytes;
    for (std::size_t begin = 0; begin < rows.bytes; begin += block) {
      const std::size_t bytes = std::min(block, rows.bytes - begin);
      for (std::byte* target : targets) {
        put(target + row * segment.target_pitch + begin, source_row + begin, bytes, stores);
      }
    }
  }
  finish(stores);
}

void fill_elements(const Fill& task, std::byte* target) {
  const std::size_t bytes = task.count * task.element_bytes;
  if (bytes == 0) return;
  if (task.element_bytes == 1) {
    std::memset(target, std::to_integer<int>(task.value[0]), bytes);
    return;
  }
  // Copies what is already filled behind itself, a first-level cache's worth at most.
  std::memcpy(target, task.value.data(), task.element_bytes);
  for (std::size_t filled = task.element_bytes; filled < bytes;) {
    const std::size_t step = std::min({filled, block_bytes, bytes - filled});
    std::memcpy(target + filled, target, step);
    filled += step;
  }
}

}  // namespace tutti::backend::host
