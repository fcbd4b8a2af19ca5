// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace tutti {

/// The implementation of this process's devices.
enum class BackendKind : std::uint8_t {
  host,  ///< virtual devices on the CPU
  cuda,  ///< NVIDIA GPUs
};

/// Returns the enumerator's name: "host" or "cuda".
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(BackendKind kind) noexcept;

/// Properties of a device. Sizes are bytes, rates kHz. Properties that virtual devices lack are 0 or empty.
struct DeviceProperties {
  std::string name;
  int major = 0;  ///< compute capability; 0.0 for virtual devices
  int minor = 0;
  std::size_t total_memory = 0;
  int multiprocessor_count = 0;
  int warp_size = 0;  ///< threads that a multiprocessor executes in lockstep; 1 for virtual devices
  std::size_t l2_cache_size = 0;
  int max_threads_per_block = 0;
  int max_threads_per_multiprocessor = 0;
  int registers_per_block = 0;  ///< registers of 32 bits
  int registers_per_multiprocessor = 0;
  std::size_t shared_memory_per_block = 0;        ///< without opting in
  std::size_t shared_memory_per_block_optin = 0;  ///< the most a kernel can opt in to
  std::size_t shared_memory_per_multiprocessor = 0;
  std::size_t constant_memory = 0;
  int clock_rate = 0;         ///< maximum of the multiprocessors
  int memory_clock_rate = 0;  ///< maximum
  int memory_bus_width = 0;   ///< in bits
  int copy_engine_count = 0;
  bool is_integrated = false;       ///< shares the host's memory instead of having its own
  bool is_multi_gpu_board = false;  ///< one of several GPUs of a board
  std::string uuid = {};   ///< as NVIDIA's tools show it, "GPU-" and 32 hexadecimal digits in five groups
  std::string pci_bus_id;  ///< empty for virtual devices
  int numa_node = -1;      ///< -1 if unknown
};

/// Amounts of a device's memory.
struct MemoryInfo {
  std::size_t free = 0;   ///< bytes
  std::size_t total = 0;  ///< bytes
};

}  // namespace tutti
