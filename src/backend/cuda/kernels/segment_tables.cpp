// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/segment_tables.hpp"

#include "base/rounding.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>

#include <fmt/format.h>

namespace tutti::backend::cuda {

namespace {

constexpr std::uint64_t shortest_strip = 256;  // a shorter row leaves most lanes of a warp idle

/// Tiles that hold `bytes` bytes, without a division: tables have thousands of entries, and a tile is a
/// power of two of bytes.
std::uint64_t tiles_for(std::uint64_t bytes, std::uint32_t tile_bytes) {
  return (bytes + tile_bytes - 1) >> static_cast<unsigned>(std::countr_zero(tile_bytes));
}

std::uintptr_t address_of(const std::byte* pointer) {
  return reinterpret_cast<std::uintptr_t>(pointer);
}

/// Small tiles for small payloads, so that they spread over the chip; large ones once every warp has work.
std::uint32_t tile_bytes_for(std::uint64_t total_bytes, Cut cut) {
  const std::uint64_t share = std::min<std::uint64_t>(total_bytes / cut.warps, largest_tile);
  return std::max(std::bit_ceil(static_cast<std::uint32_t>(share)), cut.least_bytes);
}

/// Returns the cut for a kernel that has the chip to itself.
Cut cut_for(int multiprocessors) {
  constexpr std::uint32_t resident_warps = 32;
  return {resident_warps * static_cast<std::uint32_t>(std::max(multiprocessors, 1)), smallest_tile};
}

/// Lays out a table of `segments` entries, the task's pointers and its factors; returns where the entries go.
template <class Entry>
Entry* lay_out(TableBlob& blob, TableShape& shape, std::size_t segments, std::span<std::byte* const> pointers,
               std::span<const double> factors = {}) {
  static_assert(sizeof(double) == sizeof(std::byte*));
  const std::size_t entry_bytes = segments * sizeof(Entry);
  const std::size_t pointers_end = entry_bytes + pointers.size_bytes();
  std::byte* const table = extend(blob, pointers_end + factors.size_bytes());
  if (!pointers.empty()) std::memcpy(table + entry_bytes, pointers.data(), pointers.size_bytes());
  if (!factors.empty()) std::memcpy(table + pointers_end, factors.data(), factors.size_bytes());
  shape.segment_count = static_cast<std::uint32_t>(segments);
  shape.pointers_offset = static_cast<std::uint32_t>(entry_bytes);
  return reinterpret_cast<Entry*>(table);
}

/// Once all tiles have been handed out.
void set_tile_count(TableShape& shape, std::uint32_t tiles) {
  shape.tile_count = tiles;
  shape.segments_per_tile =
      tiles == 0 ? 0 : static_cast<float>(shape.segment_count) / static_cast<float>(tiles);
}

/// Hands out consecutive tile numbers.
class TileCounter {
 public:
  explicit TileCounter(const char* operation) : operation_(operation) {}

  std::uint32_t take(std::uint64_t tiles) {
    const std::uint64_t first = count_;
    count_ += tiles;
    if (count_ > std::numeric_limits<std::uint32_t>::max()) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("{}: segments: too much work for one call ({} tiles or more, at most 2^32 - 1)",
                              operation_, count_));
    }
    return static_cast<std::uint32_t>(first);
  }
  [[nodiscard]] std::uint32_t count() const { return static_cast<std::uint32_t>(count_); }

 private:
  const char* operation_;
  std::uint64_t count_ = 0;
};

bool is_empty(const FanOutSegment& segment) {
  return segment.row_bytes == 0 || segment.rows == 0 || segment.target_count == 0;
}

FanOutPath path_of_words(std::uintptr_t alignment_bits) {
  if (alignment_bits % 16 == 0) return FanOutPath::words_16;
  if (alignment_bits % 8 == 0) return FanOutPath::words_8;
  if (alignment_bits % 4 == 0) return FanOutPath::words_4;
  return alignment_bits % 2 == 0 ? FanOutPath::words_2 : FanOutPath::words_1;
}

FanOutPath choose_path(const FanOutEntry& entry, std::span<std::byte* const> pointers) {
  const std::uintptr_t source = address_of(pointers[entry.source]);
  std::uintptr_t difference = 0;
  std::uintptr_t common = source;
  for (const std::byte* target : pointers.subspan(entry.first_target, entry.target_count)) {
    difference |= source ^ address_of(target);
    common |= address_of(target);
  }
  if (entry.rows > 1) {
    difference |= entry.source_pitch ^ entry.target_pitch;
    common |= entry.source_pitch | entry.target_pitch | entry.row_bytes;
  }
  const bool rows_are_merged = entry.rows_per_tile > 1;
  if (rows_are_merged && (common % vector_bytes == 0 || entry.row_bytes < shortest_strip)) {
    return path_of_words(common);
  }
  if (difference % vector_bytes == 0) return FanOutPath::strips;
  const bool has_words = difference % sizeof(std::uint32_t) == 0;
  return entry.far_side == FarSide::source && has_words ? FanOutPath::loads : FanOutPath::shifted_strips;
}

/// Fills `entry` but for its path and first tile. Returns how many tiles it has, which may be more than a
/// table can have, and than the entry's fields hold.
std::uint64_t cut_segment(const FanOutSegment& segment, std::uint32_t tile_bytes, FanOutEntry& entry) {
  entry.row_bytes = segment.row_bytes;
  entry.source_pitch = segment.source_pitch;
  entry.target_pitch = segment.target_pitch;
  entry.rows = segment.rows;
  entry.source = segment.source;
  entry.first_target = segment.first_target;
  entry.target_count = segment.target_count;
  entry.swap = segment.swap;
  if (entry.source_pitch == entry.row_bytes && entry.target_pitch == entry.row_bytes) {
    entry.row_bytes *= entry.rows;
    entry.rows = 1;
  }
  if (entry.row_bytes > tile_bytes) {
    // Tiles of nearly equal width: a row a little longer than one tile must not make every other tile tiny.
    std::uint64_t across = tiles_for(entry.row_bytes, tile_bytes);
    std::uint64_t width = tile_bytes;
    if (entry.row_bytes != across * tile_bytes) {
      width = divide_up(divide_up(entry.row_bytes, across), smallest_tile) * smallest_tile;
      across = divide_up(entry.row_bytes, width);
    }
    entry.tile_width = static_cast<std::uint16_t>(width);
    entry.tiles_per_row = static_cast<std::uint32_t>(across);
    entry.rows_per_tile = 1;
    return across * entry.rows;
  }
  entry.tile_width = static_cast<std::uint16_t>(entry.row_bytes);
  entry.tiles_per_row = 1;
  entry.rows_per_tile = 1;
  if (entry.rows == 1) return 1;
  entry.rows_per_tile =
      static_cast<std::uint16_t>(std::min<std::uint64_t>(tile_bytes / entry.row_bytes, entry.rows));
  return divide_up(entry.rows, entry.rows_per_tile);
}

ReductionPath choose_path(const OrderedReduction& task, const OrderedReductionSegment& segment,
                          std::size_t component_bytes) {
  const auto inputs = task.pointers.subspan(segment.first_input, task.input_count);
  const auto outputs = task.pointers.subspan(segment.first_output, task.output_count);
  const std::uintptr_t first = address_of(inputs.front());
  std::uintptr_t common = first;
  const auto differences = [&](const auto& pointers) {
    std::uintptr_t difference = 0;
    for (const std::byte* pointer : pointers) {
      difference |= first ^ address_of(pointer);
      common |= address_of(pointer);
    }
    return difference;
  };
  const std::uintptr_t of_inputs = differences(inputs);
  const std::uintptr_t of_outputs = differences(outputs);
  if ((common & (component_bytes - 1)) != 0) return ReductionPath::bytes;  // a power of two
  if (of_inputs % vector_bytes != 0) return ReductionPath::elements;
  return of_outputs % vector_bytes == 0 ? ReductionPath::vectors : ReductionPath::loads;
}

}  // namespace

std::byte* extend(TableBlob& blob, std::size_t bytes) {
  const std::size_t begin = blob.bytes;
  blob.bytes += (bytes + sizeof(std::byte*) - 1) / sizeof(std::byte*) * sizeof(std::byte*);
  const std::size_t needed = std::max(blob.bytes, smallest_blob);
  if (blob.blob.size() < needed) blob.blob.resize(needed);
  return blob.blob.data() + begin;
}

TableShape append_table(const FanOut& task, Cut cut, TableBlob& blob) {
  std::uint64_t total = 0;
  std::size_t kept = 0;
  for (const FanOutSegment& segment : task.segments) {
    if (is_empty(segment)) continue;
    total += segment.row_bytes * segment.rows;
    ++kept;
  }
  TableShape shape;
  FanOutEntry* entry = lay_out<FanOutEntry>(blob, shape, kept, task.pointers);
  shape.tile_bytes = cut.exact_bytes != 0 ? cut.exact_bytes : tile_bytes_for(total, cut);
  TileCounter tiles("fan_out");
  for (const FanOutSegment& segment : task.segments) {
    if (is_empty(segment)) continue;
    const std::uint64_t count = cut_segment(segment, shape.tile_bytes, *entry);
    entry->far_side = cut.far_side;
    entry->path = choose_path(*entry, task.pointers);
    if (entry->path == FanOutPath::shifted_strips)
      entry->far_side = FarSide::targets;  // whose stores are aligned
    entry->first_tile =
        tiles.take(cut.exact_bytes != 0 ? divide_up(entry->row_bytes, cut.exact_bytes) : count);
    ++entry;
  }
  set_tile_count(shape, tiles.count());
  return shape;
}

TableShape append_table(const OrderedReduction& task, Cut cut, TableBlob& blob) {
  const std::size_t component_bytes = size_of(component_of(task));
  const std::size_t components = size_of(task.dtype) / component_bytes;
  std::uint64_t total = 0;
  std::size_t kept = 0;
  for (const OrderedReductionSegment& segment : task.segments) {
    if (segment.count == 0 || task.output_count == 0) continue;
    total += segment.count * size_of(task.dtype);
    ++kept;
  }
  TableShape shape;
  SumEntry* entry = lay_out<SumEntry>(blob, shape, kept, task.pointers, task.reducing.factors);
  shape.tile_bytes = cut.exact_bytes != 0 ? cut.exact_bytes : tile_bytes_for(total, cut);
  TileCounter tiles("ordered_reduction");
  for (const OrderedReductionSegment& segment : task.segments) {
    if (segment.count == 0 || task.output_count == 0) continue;
    entry->count = segment.count * components;
    entry->first_input = segment.first_input;
    entry->first_output = segment.first_output;
    entry->path = choose_path(task, segment, component_bytes);
    const std::uint64_t bytes = entry->count * component_bytes;
    entry->first_tile = tiles.take(cut.exact_bytes != 0 ? divide_up(bytes, cut.exact_bytes)
                                                        : tiles_for(bytes, shape.tile_bytes));
    ++entry;
  }
  set_tile_count(shape, tiles.count());
  return shape;
}

void build_table(const FanOut& task, int multiprocessors, SegmentTable& table) {
  table.bytes = 0;
  table.shape = append_table(task, cut_for(multiprocessors), table);
}

void build_table(const OrderedReduction& task, int multiprocessors, SegmentTable& table) {
  table.bytes = 0;
  table.shape = append_table(task, cut_for(multiprocessors), table);
}

}  // namespace tutti::backend::cuda
