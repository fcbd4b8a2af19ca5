// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// The way in which kernels write their results.
namespace tutti::backend::host {

enum class Stores : std::uint8_t {
  cached,
  streamed,  ///< past the caches, so that overwritten lines need not be read first
};

/// The unit in which the processor reads and writes. Streaming a part of a line takes as long as streaming
/// many whole ones.
inline constexpr std::size_t line_bytes = 64;

/// Returns the fastest way for a task that writes `bytes` bytes in all: results that fit the caches are
/// likely to be read from there, and larger ones would evict themselves. Measured on Xeons.
[[nodiscard]] constexpr Stores stores_for(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t streamed_from = std::uint64_t{16} << 20U;
  return bytes >= streamed_from ? Stores::streamed : Stores::cached;
}
/// Returns the same for rows of `row_bytes` each, which begin and end within lines.
[[nodiscard]] constexpr Stores stores_for_rows(Stores stores, std::uint64_t row_bytes) noexcept {
  constexpr std::uint64_t few_lines = 64 * line_bytes;
  return row_bytes > few_lines ? stores : Stores::cached;
}

/// Writes `bytes` bytes that do not overlap. Others may miss streamed bytes until `finish` has been called.
void put(std::byte* target, const std::byte* source, std::size_t bytes, Stores stores) noexcept;
/// Makes all that was put visible before what is written from now on.
void finish(Stores stores) noexcept;

}  // namespace tutti::backend::host
