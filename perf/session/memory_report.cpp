// SPDX-License-Identifier: Apache-2.0
#include "perf/session/memory_report.hpp"

#include "tutti/memory.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace tutti::perf {
namespace {

double mebibytes(std::size_t bytes) {
  return static_cast<double>(bytes) / (1 << 20U);
}

std::size_t less(std::size_t from, std::size_t what) {
  return from - std::min(from, what);
}

}  // namespace

std::string format_memory(const MemoryReport& report) {
  return fmt::format(
      "# memory, MiB on the device with most: at most {:.1f} of tensors at a time, {:.1f} reserved for them; "
      "at the end {:.1f} of {:.1f} taken, {:.1f} of it by windows, graphs and NCCL\n",
      mebibytes(report.in_use), mebibytes(report.reserved), mebibytes(report.taken), mebibytes(report.total),
      mebibytes(report.elsewhere));
}

MemoryWatch::MemoryWatch(const std::vector<Device>& devices) : devices_(devices) {
  for (const Device device : devices_) {
    free_.push_back(mem_get_info(device.index()).free);
    reset_peak_memory_stats(device);
  }
}

MemoryReport MemoryWatch::report(Processes& processes) const {
  std::array<double, 5> most{};
  for (std::size_t i = 0; i < devices_.size(); ++i) {
    const auto [free, total] = mem_get_info(devices_[i].index());
    const std::size_t taken = less(free_[i], free);
    const std::array figures{total, taken, max_memory_allocated(devices_[i]),
                             max_memory_reserved(devices_[i]), less(taken, memory_reserved(devices_[i]))};
    for (std::size_t figure = 0; figure < most.size(); ++figure)
      most[figure] = std::max(most[figure], static_cast<double>(figures[figure]));
  }
  processes.maximum(most);
  const auto bytes = [&most](std::size_t figure) { return static_cast<std::size_t>(most[figure]); };
  return {
      .total = bytes(0), .taken = bytes(1), .in_use = bytes(2), .reserved = bytes(3), .elsewhere = bytes(4)};
}

}  // namespace tutti::perf
