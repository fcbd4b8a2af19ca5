// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/plan_builder.hpp"
#include "transport/plan/problem.hpp"

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

/// Cuts flows and reductions into parts of even size.
namespace tutti::transport {

/// A part of one item in a list, in the item's own unit.
struct Slice {
  std::size_t item = 0;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// Cuts items of the given sizes into `parts` runs of nearly equal total, each cut inside an item at a
/// multiple of `alignment`. result[p] lists part p's slices in order; together they cover every item once.
[[nodiscard]] std::vector<std::vector<Slice>> split_evenly(std::span<const std::uint64_t> sizes,
                                                           std::size_t parts, std::uint64_t alignment);

/// A rectangle of a flow; `target_offset` is its place relative to each of the flow's targets.
struct Piece {
  Move move;
  std::uint64_t target_offset = 0;

  [[nodiscard]] std::uint64_t bytes() const noexcept { return move.row_bytes * move.rows; }
};

/// Calls `visit(Piece)` for at most three rectangles that cover the bytes `begin <= b < end` of the flow's
/// payload, rows counted one after another: the rest of a row, whole rows, the start of a row.
template <class Visitor>
void for_each_piece(const Flow& flow, std::uint64_t begin, std::uint64_t end, Visitor&& visit) {
  while (begin < end) {
    const std::uint64_t row = begin / flow.row_bytes;
    const std::uint64_t column = begin % flow.row_bytes;
    const std::uint64_t whole_rows = column == 0 ? (end - begin) / flow.row_bytes : 0;
    Piece piece;
    piece.move.source = {flow.source.buffer, flow.source.offset + row * flow.source_pitch + column};
    piece.move.source_pitch = flow.source_pitch;
    piece.move.target_pitch = flow.target_pitch;
    piece.move.rows = std::clamp<std::uint64_t>(whole_rows, 1, 0xffffffffU);
    piece.move.row_bytes = whole_rows > 0 ? flow.row_bytes : std::min(end - begin, flow.row_bytes - column);
    piece.target_offset = row * flow.target_pitch + column;
    visit(piece);
    begin += piece.bytes();
  }
}

/// Returns the flow's places moved by a piece's offset.
[[nodiscard]] inline std::vector<Place> shifted(std::span<const Place> places, std::uint64_t offset) {
  std::vector<Place> result(places.begin(), places.end());
  for (Place& place : result) place.offset += offset;
  return result;
}

}  // namespace tutti::transport
