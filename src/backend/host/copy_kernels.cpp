#include "backend/host/kernels.hpp"

#include <algorithm>
#include <cstring>

namespace tutti::backend::host {

namespace {

/// Bytes read by one target's copy and still in the first-level cache for the next one's.
constexpr std::size_t block_bytes = 16 * 1024;

}  // namespace

void copy_rows(std::byte* target, std::size_t target_pitch, const std::byte* source, std::size_t source_pitch,
               std::size_t row_bytes, std::size_t rows) {
  if (row_bytes == 0) return;
  if (row_bytes == target_pitch && row_bytes == source_pitch) {
    row_bytes *= rows;
    rows = 1;
  }
  const std::size_t last = (rows == 0 ? 0 : rows - 1) * std::max(target_pitch, source_pitch) + row_bytes;
  const bool overlap = target < source + last && source < target + last;
  const Stores stores = stores_for_rows(stores_for(row_bytes * rows), row_bytes);
  for (std::size_t row = 0; row < rows; ++row) {
    std::byte* const to = target + row * target_pitch;
    const std::byte* const from = source + row * source_pitch;
    if (overlap) {
      std::memmove(to, from, row_bytes);
    } else {
      put(to, from, row_bytes, stores);
    }
  }
  finish(stores);
}

void fan_out_segment(const FanOutSegment& segment, const std::byte* source,
                     std::span<std::byte* const> targets, Stores stores) {
  std::uint64_t row_bytes = segment.row_bytes;
  std::uint64_t rows = segment.rows;
  if (row_bytes == 0) return;
  if (row_bytes == segment.source_pitch && row_bytes == segment.target_pitch) {
    row_bytes *= rows;
    rows = 1;
  }
  stores = stores_for_rows(stores, row_bytes);
  for (std::uint64_t row = 0; row < rows; ++row) {
    const std::byte* source_row = source + row * segment.source_pitch;
    if (targets.size() == 1) {
      put(targets.front() + row * segment.target_pitch, source_row, row_bytes, stores);
      continue;
    }
    for (std::uint64_t begin = 0; begin < row_bytes; begin += block_bytes) {
      const std::size_t bytes = std::min<std::uint64_t>(block_bytes, row_bytes - begin);
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
