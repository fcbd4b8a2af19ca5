// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/operations.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// Divides segment lists into work for warps.
///
/// The bytes of all segments are divided into tiles of at most `largest_tile` bytes; a warp takes one tile at
/// a time and searches for its segment among the first tiles of each. Cutting by bytes, not by segment, keeps
/// one big tensor among a thousand tiny ones from running alone; using warps, not blocks, lets a thousand
/// tiny ones run at once.
///
/// A table is one blob: all entries, then all pointers. Everything here runs on the host and needs no GPU.
namespace tutti::backend::cuda {

inline constexpr std::uint32_t smallest_tile = 512;  // one 16-byte access per lane
inline constexpr std::uint32_t largest_tile = 8192;
inline constexpr std::uint32_t vector_bytes = 16;
/// The bytes that memory and links move at a time. Tiles except the first of a segment or row begin at such a
/// boundary: a warp that began elsewhere would touch one more, and return for the bytes before the first
/// vector.
inline constexpr std::uint32_t transaction_bytes = 128;

/// The side of a fan-out to whose transactions tiles are aligned: the memory that is further away. Shifted
/// strips have aligned stores in any case.
enum class FarSide : std::uint8_t { targets, source };

/// The way in which a warp moves one tile of a fan-out.
enum class FanOutPath : std::uint8_t {
  strips,          ///< row by row; source and targets are equally aligned modulo 16
  shifted_strips,  ///< row by row; they are not equally aligned: 16-byte accesses with a shift in registers
  loads,           ///< row by row; they are aligned to 4 bytes: 16-byte loads, stores in words of 4
  words_1,         ///< many short rows at once, by words of the size that divides all addresses and pitches
  words_2,
  words_4,
  words_8,
  words_16,
};

struct FanOutEntry {
  std::uint64_t row_bytes;
  std::uint64_t source_pitch;
  std::uint64_t target_pitch;
  std::uint32_t rows;
  std::uint32_t source;
  std::uint32_t first_target;
  std::uint32_t target_count;
  std::uint32_t first_tile;
  std::uint32_t tiles_per_row;
  std::uint16_t tile_width;     ///< bytes of a row in one tile, where a row has several
  std::uint16_t rows_per_tile;  ///< 1 where a row has several tiles
  FanOutPath path;
  FarSide far_side;
  Swap swap;
};
static_assert(sizeof(FanOutEntry) == 56);

/// The way in which a warp adds one tile.
enum class ReductionPath : std::uint8_t {
  vectors,   ///< all inputs and outputs are equally aligned modulo 16: 16-byte accesses
  loads,     ///< all inputs are, and outputs to the element: 16-byte loads, stores element by element
  elements,  ///< inputs are aligned to the element only
  bytes,     ///< not even that
};

struct SumEntry {
  std::uint64_t count;  ///< elements
  std::uint32_t first_input;
  std::uint32_t first_output;
  std::uint32_t first_tile;
  ReductionPath path;
};
static_assert(sizeof(SumEntry) == 24);

/// A table's description for its kernel; passed by value beside it.
struct TableShape {
  std::uint32_t segment_count = 0;
  std::uint32_t tile_count = 0;
  std::uint32_t tile_bytes = 0;
  std::uint32_t pointers_offset = 0;  ///< bytes from the start of the table
  float segments_per_tile = 0;        ///< on average: if all are alike, it gives the segment of a tile
};

/// The arguments, beside the table, of kernels for reductions other than sums: factors follow the pointers of
/// the table, as numbers of the same width.
struct ReduceArguments {
  ReduceKind kind = ReduceKind::sum;
  bool are_unsigned = false;  ///< elements, in kernels for signed integers of their width
  std::uint32_t factor_count = 0;
  std::uint32_t first_factor = 0;
};
/// Returns the signed integers whose sums, products and bits are those of `dtype`, or `dtype` itself: int16
/// for uint16, …, but uint8 for itself.
[[nodiscard]] constexpr DType with_sign(DType dtype) noexcept {
  switch (dtype) {
    case DType::uint16:
      return DType::int16;
    case DType::uint32:
      return DType::int32;
    case DType::uint64:
      return DType::int64;
    default:
      return dtype;
  }
}
[[nodiscard]] inline ReduceArguments reduce_arguments(const OrderedReduction& task) noexcept {
  return {task.reducing.kind, with_sign(task.dtype) != task.dtype,
          static_cast<std::uint32_t>(task.reducing.factors.size()),
          static_cast<std::uint32_t>(task.pointers.size())};
}

/// The least size of a blob: a launch that passes a table in a kernel's parameters copies as many bytes as
/// the parameter has, whatever the table's size.
inline constexpr std::size_t smallest_blob = std::size_t{32} << 10U;

/// The first `bytes` bytes of `blob`, which is reused from call to call.
struct TableBlob {
  std::vector<std::byte> blob;
  std::size_t bytes = 0;
};

/// A table and its shape.
struct SegmentTable : TableBlob {
  TableShape shape;
};

/// The granularity of the cut: about one tile for each of so many warps, or, if all segments are single rows,
/// exactly one.
struct Cut {
  std::uint32_t warps = 1;
  std::uint32_t least_bytes = smallest_tile;  ///< of a tile, a power of two from smallest to largest
  std::uint32_t exact_bytes = 0;              ///< of all tiles but the last of each segment; 0: none given
  FarSide far_side = FarSide::targets;        ///< of copies
};

/// Extends `blob` by `bytes`, rounded up to whole pointers; returns where they go.
std::byte* extend(TableBlob& blob, std::size_t bytes);
/// Appends the table of `task` to `blob`; the shape counts from there. Otherwise like `build_table`.
[[nodiscard]] TableShape append_table(const FanOut& task, Cut cut, TableBlob& blob);
[[nodiscard]] TableShape append_table(const OrderedReduction& task, Cut cut, TableBlob& blob);

/// Fills `table` for `task`; empty segments are dropped. `multiprocessors` determines how finely the work is
/// cut. Throws Error(invalid_argument) if the work has more than 2^32 - 1 tiles.
void build_table(const FanOut& task, int multiprocessors, SegmentTable& table);
/// Fills `table` for a reduction. Complex elements are summed as twice as many real ones, but otherwise
/// reduced as they are.
void build_table(const OrderedReduction& task, int multiprocessors, SegmentTable& table);

/// Returns the real type whose sums give, component by component, the sums of `dtype`: float32 for complex64,
/// uint8 for int8, int16 for uint16, …
[[nodiscard]] constexpr DType summed_as(DType dtype) noexcept {
  switch (dtype) {
    case DType::complex64:
      return DType::float32;
    case DType::complex128:
      return DType::float64;
    case DType::int8:
      return DType::uint8;  // wrapping sums do not see the sign
    default:
      return with_sign(dtype);
  }
}
/// Returns the type as which a task's kernel takes its elements.
[[nodiscard]] inline DType component_of(const OrderedReduction& task) noexcept {
  return task.reducing.kind == ReduceKind::sum ? summed_as(task.dtype) : task.dtype;
}

}  // namespace tutti::backend::cuda
