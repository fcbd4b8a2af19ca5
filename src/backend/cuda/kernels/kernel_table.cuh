// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/segment_tables.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// Passes segment tables to kernels, and reads them there.
namespace tutti::backend::cuda {

/// A table that travels in the kernel's parameters: no copy before the launch, and read through the constant
/// cache.
template <std::size_t Capacity>
struct alignas(16) ParameterTable {
  static constexpr bool is_in_memory = false;
  std::byte bytes[Capacity];
  TUTTI_HOST_DEVICE const std::byte* data() const { return bytes; }
};

/// A table in device memory.
struct MemoryTable {
  static constexpr bool is_in_memory = true;
  const std::byte* address;
  TUTTI_HOST_DEVICE const std::byte* data() const { return address; }
};

/// Calls `visitor(std::type_identity<Table>, argument)` with the smallest kind of table that holds `table`.
template <class Visitor>
cudaError_t visit_table(const TableArgument& table, Visitor&& visitor) {
  if (table.in_memory != nullptr) return visitor(std::type_identity<MemoryTable>{}, &table.in_memory);
  if (table.bytes <= small_parameter_table) {
    return visitor(std::type_identity<ParameterTable<small_parameter_table>>{}, table.blob);
  }
  if (table.bytes <= medium_parameter_table) {
    return visitor(std::type_identity<ParameterTable<medium_parameter_table>>{}, table.blob);
  }
  return visitor(std::type_identity<ParameterTable<large_parameter_table>>{}, table.blob);
}

/// Calls `visitor` as `visit_table` does, but with only the smaller kinds of parameters.
template <class Visitor>
cudaError_t visit_small_table(const TableArgument& table, Visitor&& visitor) {
  if (table.in_memory != nullptr) return visitor(std::type_identity<MemoryTable>{}, &table.in_memory);
  if (table.bytes <= small_parameter_table)
    return visitor(std::type_identity<ParameterTable<small_parameter_table>>{}, table.blob);
  return visitor(std::type_identity<ParameterTable<medium_parameter_table>>{}, table.blob);
}

/// Calls `visitor` for kernels of reductions, which have only two kinds of tables: in parameters, at most
/// `medium_parameter_table` bytes.
template <class Visitor>
cudaError_t visit_reduction_table(const TableArgument& table, Visitor&& visitor) {
  if (table.in_memory != nullptr) return visitor(std::type_identity<MemoryTable>{}, &table.in_memory);
  return visitor(std::type_identity<ParameterTable<medium_parameter_table>>{}, table.blob);
}

inline constexpr std::uint32_t warp_lanes = 32;
inline constexpr int threads_per_block = 256;

/// The launch of a kernel whose warps take one tile each and stride.
struct TileLaunch {
  dim3 grid;
  dim3 block;
};

/// Returns the launch for a number of tiles: few tiles are spread over many multiprocessors; many tiles get a
/// grid that fills the chip once.
inline TileLaunch launch_for(std::uint32_t tile_count, const LaunchSite& where,
                             unsigned blocks_per_multiprocessor) {
  constexpr unsigned small_block = 128;
  const auto chip = static_cast<unsigned>(where.multiprocessors);
  const bool few = tile_count <= small_block / warp_lanes * chip;
  const unsigned block = few ? small_block : static_cast<unsigned>(threads_per_block);
  const unsigned warps = block / warp_lanes;
  const unsigned wanted = tile_count / warps + (tile_count % warps != 0 ? 1U : 0U);
  const unsigned most = chip * (where.is_bounded ? 1 : blocks_per_multiprocessor);
  return {dim3(wanted < most ? wanted : most), dim3(block)};
}

/// Returns the index of the tile's entry if all entries had as many tiles, as in a list of small tensors.
TUTTI_HOST_DEVICE inline std::uint32_t likely_entry(const TableShape& shape, std::uint32_t tile) {
  const std::uint32_t last = shape.segment_count - 1;
  const auto expected =
      static_cast<std::uint32_t>((static_cast<float>(tile) + 0.5F) * shape.segments_per_tile);
  return expected < last ? expected : last;
}

/// Returns the entry whose tiles include `tile`: the last one that does not start after it. Every step of a
/// search waits for the one before, and a table is read only once: so the likely entry is tried first.
template <class Entry>
TUTTI_HOST_DEVICE inline const Entry& find_entry(const Entry* entries, const TableShape& shape,
                                                 std::uint32_t tile) {
  const std::uint32_t last = shape.segment_count - 1;
  if (last == 0) return entries[0];
  const std::uint32_t guess = likely_entry(shape, tile);
  const std::uint32_t begin = entries[guess].first_tile;
  const std::uint32_t end = guess == last ? shape.tile_count : entries[guess + 1].first_tile;
  if (begin <= tile && tile < end) return entries[guess];

  std::uint32_t low = tile < begin ? 0 : guess + 1;
  std::uint32_t high = tile < begin ? guess : last + 1;
  while (high - low > 1) {
    const std::uint32_t middle = low + (high - low) / 2;
    if (entries[middle].first_tile <= tile) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return entries[low];
}

/// Pointers to a table's two parts.
template <class Entry>
struct TableView {
  const Entry* entries;
  std::byte* const* pointers;
};
template <class Entry>
TUTTI_HOST_DEVICE inline TableView<Entry> view_of(const std::byte* table, const TableShape& shape) {
  return {reinterpret_cast<const Entry*>(table),
          reinterpret_cast<std::byte* const*>(table + shape.pointers_offset)};
}

}  // namespace tutti::backend::cuda
