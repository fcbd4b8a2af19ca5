#pragma once

#include "backend/cuda/kernels.hpp"
#include "backend/cuda/segment_tables.hpp"

#include <cstddef>
#include <cstdint>
#include <type_traits>

/// How kernels receive and read segment tables.
namespace tutti::backend::cuda {

/// A table that travels in the kernel's parameters: no copy before the launch, and read through the constant
/// cache.
template <std::size_t Capacity>
struct alignas(16) ParameterTable {
  std::byte bytes[Capacity];
  TUTTI_HOST_DEVICE const std::byte* data() const { return bytes; }
};

/// A table in device memory.
struct MemoryTable {
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

inline constexpr std::uint32_t warp_lanes = 32;
inline constexpr int threads_per_block = 256;

/// The launch of a kernel whose warps take one tile each and stride.
struct TileLaunch {
  dim3 grid;
  dim3 block;
};

/// Few tiles spread over many multiprocessors; many tiles get a grid that fills the chip once.
inline TileLaunch launch_for(std::uint32_t tile_count, int multiprocessors,
                             unsigned blocks_per_multiprocessor) {
  constexpr unsigned small_block = 128;
  const auto chip = static_cast<unsigned>(multiprocessors);
  const bool few = tile_count <= small_block / warp_lanes * chip;
  const unsigned block = few ? small_block : static_cast<unsigned>(threads_per_block);
  const unsigned warps = block / warp_lanes;
  const unsigned wanted = tile_count / warps + (tile_count % warps != 0 ? 1U : 0U);
  const unsigned most = chip * blocks_per_multiprocessor;
  return {dim3(wanted < most ? wanted : most), dim3(block)};
}

/// The entry whose tiles include `tile`: the last one that does not start after it.
template <class Entry>
TUTTI_HOST_DEVICE inline const Entry& find_entry(const Entry* entries, std::uint32_t count,
                                                 std::uint32_t tile) {
  std::uint32_t low = 0;
  std::uint32_t high = count;
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

/// Views of a table's two parts.
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
