// SPDX-License-Identifier: Apache-2.0
#include "stream_sanitizer/touches.hpp"

#include <algorithm>

namespace tutti::stream_sanitizer {
namespace {

using backend::SourcePlace;

/// A place of a round: only if it is the member's own memory.
void add_place(Touches& touches, const std::byte* place, std::size_t bytes, std::size_t pitch,
               std::size_t rows, bool writes) {
  const auto bits = reinterpret_cast<std::uintptr_t>(place);
  if (SourcePlace::is_in_slot(bits) || !SourcePlace::is_own(bits)) return;
  add_rows(touches, reinterpret_cast<const std::byte*>(SourcePlace::address(bits)), bytes, pitch, rows,
           writes);
}

void add_part(Touches& touches, const backend::TeamRound& part) {
  for (const backend::FanOutSegment& copy : part.copies.segments) {
    add_place(touches, part.copies.pointers[copy.source], copy.row_bytes, copy.source_pitch, copy.rows,
              false);
    for (std::uint32_t i = 0; i < copy.target_count; ++i) {
      const auto add = part.is_direct ? add_place : add_rows;
      add(touches, part.copies.pointers[copy.first_target + i], copy.row_bytes, copy.target_pitch, copy.rows,
          true);
    }
    if (copy.swap == backend::Swap::never) continue;
    const std::byte* const source = part.copies.pointers[copy.source];
    const bool is_taken = SourcePlace::is_own(reinterpret_cast<std::uintptr_t>(source));
    add_place(touches, part.copies.pointers[copy.first_target + 1], copy.row_bytes, copy.row_bytes, 1,
              is_taken);
  }
  for (const backend::OrderedReductionSegment& sum : part.reductions.segments) {
    const std::size_t bytes = sum.count * size_of(part.reductions.dtype);
    for (std::uint32_t i = 0; i < part.reductions.input_count; ++i)
      add_place(touches, part.reductions.pointers[sum.first_input + i], bytes, bytes, 1, false);
    for (std::uint32_t i = 0; i < part.reductions.output_count; ++i) {
      const std::byte* const output = part.reductions.pointers[sum.first_output + i];
      if (part.reductions.output_count > 1) {
        add_place(touches, output, bytes, bytes, 1, true);
      } else {
        add_bytes(touches, output, bytes, true);
      }
    }
  }
}

}  // namespace

void add_bytes(Touches& touches, const std::byte* begin, std::size_t bytes, bool writes) {
  if (begin == nullptr || bytes == 0) return;
  const auto address = reinterpret_cast<std::uintptr_t>(begin);
  touches.push_back({.bytes = {address, address + bytes}, .writes = writes});
}

void add_rows(Touches& touches, const std::byte* begin, std::size_t row_bytes, std::size_t pitch,
              std::size_t rows, bool writes) {
  if (rows <= 1 || pitch == row_bytes) return add_bytes(touches, begin, row_bytes * rows, writes);
  const std::size_t shown = std::min(rows, most_pieces_of_array);
  for (std::size_t row = 0; row < shown; ++row) add_bytes(touches, begin + row * pitch, row_bytes, writes);
}

void add_strided(Touches& touches, const std::byte* begin, std::size_t element_bytes,
                 std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides, bool writes) {
  struct Dimension {
    std::int64_t size;
    std::int64_t stride;
  };
  std::vector<Dimension> apart;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) return;
    if (sizes[i] > 1 && strides[i] != 0) apart.push_back({sizes[i], strides[i]});
  }
  std::ranges::sort(apart, {}, &Dimension::stride);
  // Dimensions that continue one another make one piece.
  std::int64_t run = 1;
  std::size_t joined = 0;
  while (joined < apart.size() && apart[joined].stride == run) run *= apart[joined++].size;
  apart.erase(apart.begin(), apart.begin() + static_cast<std::ptrdiff_t>(joined));
  std::vector<std::int64_t> index(apart.size(), 0);
  const std::size_t bytes = static_cast<std::size_t>(run) * element_bytes;
  for (std::size_t piece = 0; piece < most_pieces_of_array; ++piece) {
    std::int64_t offset = 0;
    for (std::size_t i = 0; i < apart.size(); ++i) offset += index[i] * apart[i].stride;
    add_bytes(touches, begin + static_cast<std::size_t>(offset) * element_bytes, bytes, writes);
    std::size_t next = 0;
    while (next < apart.size() && ++index[next] == apart[next].size) index[next++] = 0;
    if (next == apart.size()) return;
  }
}

Touches touches_of(const backend::FanOut& task) {
  Touches touches;
  for (const backend::FanOutSegment& segment : task.segments) {
    add_rows(touches, task.pointers[segment.source], segment.row_bytes, segment.source_pitch, segment.rows,
             false);
    for (std::uint32_t i = 0; i < segment.target_count; ++i) {
      add_rows(touches, task.pointers[segment.first_target + i], segment.row_bytes, segment.target_pitch,
               segment.rows, true);
    }
  }
  return touches;
}

Touches touches_of(const backend::OrderedReduction& task) {
  Touches touches;
  for (const backend::OrderedReductionSegment& segment : task.segments) {
    const std::size_t bytes = segment.count * size_of(task.dtype);
    for (std::uint32_t i = 0; i < task.input_count; ++i)
      add_bytes(touches, task.pointers[segment.first_input + i], bytes, false);
    for (std::uint32_t i = 0; i < task.output_count; ++i)
      add_bytes(touches, task.pointers[segment.first_output + i], bytes, true);
  }
  return touches;
}

Touches touches_of(const backend::Convert& task) {
  Touches touches;
  const auto rank = static_cast<std::size_t>(std::clamp(task.rank, 0, max_dimensions));
  const std::span sizes = std::span(task.sizes).first(rank);
  add_strided(touches, task.source, size_of(task.source_dtype), sizes,
              std::span(task.source_strides).first(rank), false);
  add_strided(touches, task.target, size_of(task.target_dtype), sizes,
              std::span(task.target_strides).first(rank), true);
  return touches;
}

Touches touches_of(const backend::Fill& task) {
  Touches touches;
  add_bytes(touches, task.target, task.count * task.element_bytes, true);
  return touches;
}

Touches touches_of(const backend::RandomFill& task) {
  Touches touches;
  if (task.state != nullptr)
    add_bytes(touches, reinterpret_cast<const std::byte*>(task.state), 2 * sizeof(std::uint64_t), false);
  add_bytes(touches, task.target, task.count * size_of(task.dtype), true);
  return touches;
}

Touches touches_of(const backend::NormPieces& task, bool writes) {
  Touches touches;
  for (const backend::NormPiece& piece : task.pieces)
    add_bytes(touches, piece.address, piece.count * size_of(task.dtype), writes);
  return touches;
}

Touches touches_of(const backend::TeamRound& task) {
  Touches touches;
  for (const backend::TeamRound* part = &task; part != nullptr; part = part->relay) add_part(touches, *part);
  return touches;
}

Touches touches_of(const backend::TeamLinks& task) {
  Touches touches;
  for (const backend::LinkPart& part : task.parts) {
    for (const backend::LinkMessage& message : task.messages.subspan(part.first_message, part.message_count))
      add_bytes(touches, message.address, message.bytes, part.is_sent == 0);
  }
  return touches;
}

}  // namespace tutti::stream_sanitizer
