// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/found_in.hpp"
#include "tutti/device.hpp"
#include "tutti/registered_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>

namespace tutti::perf {

/// The memory in which operands lie.
enum class MemoryChoice : std::uint8_t {
  tutti,       ///< of tutti's own allocator
  cuda,        ///< `cudaMalloc`'s, and that of virtual devices, of which tutti is told nothing
  registered,  ///< the same, registered with tutti (`register_memory`)
  expandable,  ///< mapped by pieces, as PyTorch's `expandable_segments` are, and registered
};
inline constexpr Named<MemoryChoice> memory_names[] = {{"tutti", MemoryChoice::tutti},
                                                       {"cuda", MemoryChoice::cuda},
                                                       {"registered", MemoryChoice::registered},
                                                       {"expandable", MemoryChoice::expandable}};

/// A block of device memory as a program gets it that has an allocator of its own.
class ForeignMemory {
 public:
  /// Allocates the block, aligned to 512 bytes at least. Throws Error(out_of_memory), and what
  /// `register_memory` throws.
  ForeignMemory(MemoryChoice choice, std::size_t bytes, Device device);

  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(block_.get()); }

 private:
  struct Free {
    Device device;
    void operator()(void* address) const;
  };

  std::unique_ptr<void, Free> block_;
  MemoryRegistration registration_;  ///< which ends before the block is freed
};

}  // namespace tutti::perf
