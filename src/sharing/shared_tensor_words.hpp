// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/memory_calls.hpp"
#include "os/shared_memory.hpp"
#include "tutti/layout.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti {

inline constexpr std::size_t longest_bus_id = 32;

/// The words of a `SharedTensor`'s handle, as `seal` writes them.
struct SharedTensorWords {
  static constexpr std::uint64_t mark = 0x336e657469747574;

  std::uint64_t checksum = 0;
  SharedMemory::Handle control;
  std::uint64_t is_on_gpus = 0;
  std::uint64_t is_read_only = 0;
  std::int64_t device = -1;
  std::array<char, longest_bus_id> bus_id{};
  backend::MemoryHandle allocation;
  std::uint64_t offset = 0;  ///< bytes from the allocation's start to the first element
  std::uint64_t bytes = 0;   ///< of the allocation
  std::uint64_t dtype = 0;
  std::uint64_t rank = 0;
  std::array<std::int64_t, max_dimensions> sizes{};
  std::array<std::int64_t, max_dimensions> strides{};
};

}  // namespace tutti
