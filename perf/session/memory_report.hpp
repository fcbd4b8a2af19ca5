// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/processes/processes.hpp"
#include "tutti/device.hpp"

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace tutti::perf {

/// What a run has taken of its devices' memory, in bytes, each figure on the device where it is the most.
struct MemoryReport {
  std::size_t total = 0;      ///< of the device
  std::size_t taken = 0;      ///< at the end, from when devices could be used
  std::size_t in_use = 0;     ///< by tensors at a time
  std::size_t reserved = 0;   ///< by the caching allocator at a time
  std::size_t elsewhere = 0;  ///< of what is taken, not by the caching allocator: windows, graphs, NCCL
};

/// "# memory: ...", a line.
[[nodiscard]] std::string format_memory(const MemoryReport& report);

/// Looks after the memory of this process's devices, from when it is made. Other processes on the same
/// devices are in `taken`, too.
class MemoryWatch {
 public:
  explicit MemoryWatch(const std::vector<Device>& devices);
  /// Of all ranks. Collective.
  [[nodiscard]] MemoryReport report(Processes& processes) const;

 private:
  std::vector<Device> devices_;
  std::vector<std::size_t> free_;
};

}  // namespace tutti::perf
