// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

/// How kernels write what they have made.
namespace tutti::backend::host {

enum class Stores : std::uint8_t {
  cached,
  streamed,  ///< past the caches, which then need not read first what is about to be overwritten
};

/// What the processor reads and writes at a time. Streaming a part of one takes as long as streaming many
/// whole ones.
inline constexpr std::size_t line_bytes = 64;

/// What is fastest for a task that writes `bytes` bytes in all: what still fits the caches is likely to be
/// read from there, and the rest would push itself out. Measured on Xeons.
[[nodiscard]] constexpr Stores stores_for(std::uint64_t bytes) noexcept {
  constexpr std::uint64_t streamed_from = std::uint64_t{16} << 20U;
  return bytes >= streamed_from ? Stores::streamed : Stores::cached;
}
/// The same for its rows of `row_bytes` each, which begin and end within lines.
[[nodiscard]] constexpr Stores stores_for_rows(Stores stores, std::uint64_t row_bytes) noexcept {
  constexpr std::uint64_t few_lines = 64 * line_bytes;
  return row_bytes > few_lines ? stores : Stores::cached;
}

/// Writes `bytes` bytes that do not overlap. Others may miss what was streamed until `finish` has been
/// called.
void put(std::byte* target, const std::byte* source, std::size_t bytes, Stores stores) noexcept;
/// What has been put comes before what is written from now on, for all who see the latter.
void finish(Stores stores) noexcept;

}  // namespace tutti::backend::host
