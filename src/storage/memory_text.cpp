// SPDX-License-Identifier: Apache-2.0
#include "base/enumerators.hpp"
#include "base/format_bytes.hpp"
#include "device/current_device.hpp"
#include "tutti/memory.hpp"

#include <array>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace tutti {
namespace {

enum class CountedIn : std::uint8_t { bytes, pieces };

struct SummaryRow {
  std::string_view name;
  PooledCounter MemoryStats::*counter;
  CountedIn unit;
};

constexpr std::array summary_rows = {
    SummaryRow{"allocated memory", &MemoryStats::allocated_bytes, CountedIn::bytes},
    SummaryRow{"active memory", &MemoryStats::active_bytes, CountedIn::bytes},
    SummaryRow{"requested memory", &MemoryStats::requested_bytes, CountedIn::bytes},
    SummaryRow{"reserved memory", &MemoryStats::reserved_bytes, CountedIn::bytes},
    SummaryRow{"split and not in use", &MemoryStats::inactive_split_bytes, CountedIn::bytes},
    SummaryRow{"allocations", &MemoryStats::allocation, CountedIn::pieces},
    SummaryRow{"active blocks", &MemoryStats::active, CountedIn::pieces},
    SummaryRow{"segments", &MemoryStats::segment, CountedIn::pieces},
    SummaryRow{"split blocks not in use", &MemoryStats::inactive_split, CountedIn::pieces},
};

std::string in_unit(std::int64_t amount, CountedIn unit) {
  return unit == CountedIn::pieces ? fmt::format("{}", amount)
                                   : format_bytes(static_cast<std::size_t>(amount));
}

void append_row(std::string& text, std::string_view name, const MemoryCounter& counter, CountedIn unit) {
  fmt::format_to(std::back_inserter(text), "| {:<24} | {:>12} | {:>12} | {:>12} | {:>12} |\n", name,
                 in_unit(counter.current, unit), in_unit(counter.peak, unit),
                 in_unit(counter.allocated, unit), in_unit(counter.freed, unit));
}

std::string_view json_name(BlockState state) {
  switch (state) {
    case BlockState::in_use:
      return "active_allocated";
    case BlockState::awaiting_free:
      return "active_awaiting_free";
    case BlockState::cached:
      break;
  }
  return "inactive";
}

nlohmann::ordered_json to_json(const MemorySegment& segment) {
  nlohmann::ordered_json blocks = nlohmann::ordered_json::array();
  std::size_t allocated = 0;
  std::size_t active = 0;
  std::size_t requested = 0;
  for (const MemoryBlock& block : segment.blocks) {
    if (block.state == BlockState::in_use) allocated += block.bytes;
    if (block.state != BlockState::cached) active += block.bytes;
    requested += block.requested_bytes;
    blocks.push_back({{"address", reinterpret_cast<std::uintptr_t>(block.address)},
                      {"size", block.bytes},
                      {"requested_size", block.requested_bytes},
                      {"state", json_name(block.state)}});
  }
  return {{"device", segment.device},
          {"address", reinterpret_cast<std::uintptr_t>(segment.address)},
          {"total_size", segment.bytes},
          {"allocated_size", allocated},
          {"active_size", active},
          {"requested_size", requested},
          {"stream", reinterpret_cast<std::uintptr_t>(segment.stream)},
          {"stream_device", segment.stream_device},
          {"segment_type", segment.pool == MemoryPool::small_pool ? "small" : "large"},
          {"segment_pool_id", segment.graph_pool},
          {"is_expandable", segment.is_expandable},
          {"blocks", std::move(blocks)}};
}

}  // namespace

std::string memory_summary(Device device, SummaryDetail detail) {
  require_enumerator(detail, SummaryDetail::abbreviated, "memory_summary", "detail");
  const MemoryStats stats = memory_stats(device);
  Runtime& runtime = Runtime::get();
  const int index = index_of(runtime, device, "memory_summary");
  std::string text = fmt::format(
      "Memory of device {} ({}): {} allocations of the device, {} frees; {} retries, {} out-of-memory "
      "errors\n",
      index, runtime.backend().properties(index).name, stats.num_device_alloc, stats.num_device_free,
      stats.num_alloc_retries, stats.num_ooms);
  const std::string rule = fmt::format("|{:-<26}|{:->14}|{:->14}|{:->14}|{:->14}|\n", "", "", "", "", "");
  text += fmt::format("| {:<24} | {:>12} | {:>12} | {:>12} | {:>12} |\n", "", "current", "peak", "allocated",
                      "freed");
  for (const SummaryRow& row : summary_rows) {
    if (row.counter == summary_rows.front().counter || detail == SummaryDetail::full) text += rule;
    const PooledCounter& counter = stats.*row.counter;
    append_row(text, row.name, counter.all, row.unit);
    if (detail == SummaryDetail::abbreviated) continue;
    append_row(text, "  of the large pool", counter.large_pool, row.unit);
    append_row(text, "  of the small pool", counter.small_pool, row.unit);
  }
  return text;
}

std::string memory_snapshot_json() {
  nlohmann::ordered_json segments = nlohmann::ordered_json::array();
  for (const MemorySegment& segment : memory_snapshot()) segments.push_back(to_json(segment));
  return nlohmann::ordered_json{{"schema", "tutti-memory-snapshot/1"}, {"segments", std::move(segments)}}
      .dump();
}

}  // namespace tutti
