// SPDX-License-Identifier: Apache-2.0
// The calls of tutti/memory.hpp, for each device and for pinned memory.

#include "tutti/memory.hpp"

#include "allocator/caching_allocator.hpp"
#include "device/runtime.hpp"
#include "stream/event_pool.hpp"
#include "stream/stream_access.hpp"
#include "support/errors.hpp"
#include "support/memory/allocator_fixture.hpp"
#include "support/stream_gate.hpp"
#include "tutti/error.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::refuses;
using test::StreamGate;

constexpr std::size_t mib = std::size_t{1} << 20;

using MemoryTest = test::AllocatorTest;

TEST_F(MemoryTest, GivesRawMemoryOfTheCurrentDeviceAndStream) {
  const std::size_t allocated = memory_allocated(0);
  const DeviceGuard guard(0);
  const Stream stream(0);
  const StreamGuard current(stream);
  void* const first = caching_allocator_alloc(1000);
  EXPECT_EQ(memory_allocated(0), allocated + 1024);
  const std::vector<MemorySegment> segments = memory_snapshot();
  const auto around = std::ranges::find_if(segments, [&](const MemorySegment& segment) {
    return segment.address <= first && first < static_cast<const std::byte*>(segment.address) + segment.bytes;
  });
  ASSERT_NE(around, segments.end());
  EXPECT_EQ(around->device, 0);
  EXPECT_EQ(around->stream, stream.native_handle());
  caching_allocator_delete(first);
  EXPECT_EQ(memory_allocated(0), allocated);
  void* const second = caching_allocator_alloc(1000, 0, stream);
  EXPECT_EQ(second, first) << "the same stream gets it back at once";
  void* const elsewhere = caching_allocator_alloc(1000, 0, Stream(0));
  EXPECT_NE(elsewhere, first);
  caching_allocator_delete(second);
  caching_allocator_delete(elsewhere);
}

TEST_F(MemoryTest, FindsTheDeviceOfRawMemoryByItself) {
  std::vector<void*> addresses;
  std::vector<std::size_t> allocated;
  for (int device = 0; device < device_count(); ++device) {
    allocated.push_back(memory_allocated(device));
    for (const std::size_t bytes : {std::size_t{0}, std::size_t{512}, 3 * mib, 33 * mib})
      addresses.push_back(caching_allocator_alloc(bytes, device));
  }
  std::thread([&] {
    for (void* const address : addresses) caching_allocator_delete(address);
  }).join();
  for (int device = 0; device < device_count(); ++device)
    EXPECT_EQ(memory_allocated(device), allocated[static_cast<std::size_t>(device)]);
  for (int device = 1; device < device_count(); ++device) allocator(device).empty_cache();
}

TEST_F(MemoryTest, TakesBackOnlyWhatItHasGiven) {
  caching_allocator_delete(nullptr);
  auto* const address = static_cast<std::byte*>(caching_allocator_alloc(4096, 0));
  Tensor tensor = empty({1024}, {.device = 0});
  int on_the_stack = 0;
  caching_allocator_delete(address);
  for (void* const other : {static_cast<void*>(address), static_cast<void*>(address + 512), tensor.data(),
                            static_cast<void*>(&on_the_stack), reinterpret_cast<void*>(~std::uintptr_t{0})}) {
    EXPECT_TRUE(
        refuses([&] { caching_allocator_delete(other); }, ErrorCode::invalid_argument,
                {"caching_allocator_delete: address is", "expected one from caching_allocator_alloc"}));
  }
  EXPECT_TRUE(refuses([] { static_cast<void>(caching_allocator_alloc(1, device_count())); },
                      ErrorCode::invalid_argument, {"caching_allocator_alloc: device is"}));
  tensor = Tensor();
  empty_cache();
  EXPECT_TRUE(refuses([&] { caching_allocator_delete(address); }, ErrorCode::invalid_argument,
                      {"caching_allocator_delete"}))
      << "its segment is gone";
}

TEST_F(MemoryTest, ForgetsWhatHasBeenCountedSoFar) {
  caching_allocator_delete(caching_allocator_alloc(5000, 0));
  empty_cache();  // so that the books of the device still balance
  reset_accumulated_memory_stats(0);
  MemoryStats stats = memory_stats(0);
  EXPECT_EQ(stats.allocation.all.allocated, 0);
  EXPECT_EQ(stats.allocation.all.freed, 0);
  EXPECT_EQ(stats.num_device_alloc, 0);
  EXPECT_GE(stats.allocated_bytes.all.peak, 5120) << "peaks are another matter";
  caching_allocator_delete(caching_allocator_alloc(2000, 0));
  stats = memory_stats(0);
  EXPECT_EQ(stats.allocated_bytes.small_pool.allocated, 2048);
  EXPECT_EQ(stats.allocated_bytes.all.freed, 2048);
  EXPECT_EQ(stats.num_device_alloc, 1);
}

TEST_F(MemoryTest, CountsWhatIsFreedOfWhatWasThereBefore) {
  Runtime& runtime = Runtime::get();
  CachingAllocator another(runtime.backend(), runtime.part<EventPool>(), 0);
  const backend::StreamRef stream = StreamAccess::ref(Stream(0));
  Block* const kept = another.allocate(1000, stream);
  another.reset_accumulated_stats();
  another.free(another.allocate(2000, stream));
  another.free(kept);
  const MemoryStats stats = another.stats();
  EXPECT_EQ(stats.allocated_bytes.all.allocated, 2048);
  EXPECT_EQ(stats.allocated_bytes.all.freed, 2048 + 1024);
  EXPECT_EQ(stats.allocated_bytes.all.current, 0);
}

TEST_F(MemoryTest, KnowsTheNamesOfFormerYears) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
  caching_allocator_delete(caching_allocator_alloc(3 * mib, 0));
  EXPECT_EQ(memory_cached(0), memory_reserved(0));
  EXPECT_EQ(max_memory_cached(0), max_memory_reserved(0));
  EXPECT_GT(max_memory_allocated(0), memory_allocated(0));
  reset_max_memory_allocated(0);
  EXPECT_EQ(max_memory_allocated(0), memory_allocated(0));
  empty_cache();
  EXPECT_GT(max_memory_cached(0), memory_cached(0));
  reset_max_memory_cached(0);
  EXPECT_EQ(max_memory_cached(0), memory_cached(0));
#pragma GCC diagnostic pop
}

TEST_F(MemoryTest, SummarisesForPeople) {
  void* const address = caching_allocator_alloc(3 * mib, 0);
  const std::string full = memory_summary(0);
  const std::string abbreviated = memory_summary(0, SummaryDetail::abbreviated);
  caching_allocator_delete(address);
  for (const char* part : {"Memory of device 0", "allocated memory", "reserved memory", "current", "peak",
                           "3.00 MiB", "20.00 MiB"}) {
    EXPECT_NE(full.find(part), std::string::npos) << part << " is missing in:\n" << full;
    EXPECT_NE(abbreviated.find(part), std::string::npos) << part << " is missing in:\n" << abbreviated;
  }
  EXPECT_NE(full.find("of the large pool"), std::string::npos) << full;
  EXPECT_EQ(abbreviated.find("of the large pool"), std::string::npos) << abbreviated;
  std::size_t longest = 0;
  std::size_t shortest = std::string::npos;
  std::size_t begin = full.find('\n') + 1;
  for (std::size_t end = 0; (end = full.find('\n', begin)) != std::string::npos; begin = end + 1) {
    longest = std::max(longest, end - begin);
    shortest = std::min(shortest, end - begin);
  }
  EXPECT_EQ(longest, shortest) << "columns that do not line up:\n" << full;
}

TEST_F(MemoryTest, TellsToolsOfSegmentsAndBlocks) {
  void* const address = caching_allocator_alloc(1000, 0);
  const auto snapshot = nlohmann::json::parse(memory_snapshot_json());
  const std::vector<MemorySegment> segments = memory_snapshot();
  caching_allocator_delete(address);
  EXPECT_EQ(snapshot.at("schema"), "tutti-memory-snapshot/1");
  ASSERT_EQ(snapshot.at("segments").size(), segments.size());
  bool is_listed = false;
  for (std::size_t i = 0; i < segments.size(); ++i) {
    const nlohmann::json& segment = snapshot.at("segments").at(i);
    EXPECT_EQ(segment.at("device"), segments[i].device);
    EXPECT_EQ(segment.at("address"), reinterpret_cast<std::uintptr_t>(segments[i].address));
    EXPECT_EQ(segment.at("total_size"), segments[i].bytes);
    EXPECT_EQ(segment.at("stream"), reinterpret_cast<std::uintptr_t>(segments[i].stream));
    ASSERT_EQ(segment.at("blocks").size(), segments[i].blocks.size());
    std::size_t allocated = 0;
    for (const nlohmann::json& block : segment.at("blocks")) {
      const bool is_in_use = block.at("state") == "active_allocated";
      if (is_in_use) allocated += block.at("size").get<std::size_t>();
      is_listed =
          is_listed || (is_in_use && block.at("address") == reinterpret_cast<std::uintptr_t>(address) &&
                        block.at("size") == 1024 && block.at("requested_size") == 1000);
    }
    EXPECT_EQ(segment.at("allocated_size"), allocated);
  }
  EXPECT_TRUE(is_listed);
}

TEST_F(MemoryTest, BoundsWhatTheProcessMayReserve) {
  const double before = get_per_process_memory_fraction(0);
  EXPECT_EQ(before, 1.0);
  const std::size_t total = mem_get_info(0).total;
  const std::size_t reserved = memory_reserved(0);
  const double room = static_cast<double>(reserved + 50 * mib) / static_cast<double>(total);
  set_per_process_memory_fraction(room, 0);
  EXPECT_EQ(get_per_process_memory_fraction(0), room);
  void* const first = caching_allocator_alloc(30 * mib, 0);
  EXPECT_TRUE(refuses([] { static_cast<void>(caching_allocator_alloc(30 * mib, 0)); },
                      ErrorCode::out_of_memory, {"set_per_process_memory_fraction allows"}));
  caching_allocator_delete(first);
  void* const second = caching_allocator_alloc(40 * mib, 0);
  EXPECT_LE(memory_reserved(0), reserved + 50 * mib) << "what was cached had to go back first";
  caching_allocator_delete(second);
  set_per_process_memory_fraction(1, 0);
  caching_allocator_delete(caching_allocator_alloc(100 * mib, 0));
  for (const double wrong : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_TRUE(refuses([&] { set_per_process_memory_fraction(wrong, 0); }, ErrorCode::invalid_argument,
                        {"set_per_process_memory_fraction: fraction is", "expected 0 to 1"}));
  }
}

TEST_F(MemoryTest, SaysWhoseMemoryTensorsGet) {
  EXPECT_EQ(get_allocator_backend(), "native");
}

TEST_F(MemoryTest, CountsPinnedMemory) {
  empty_pinned_cache();
  const PinnedMemoryStats before = pinned_memory_stats();
  const Stream stream(0);
  {
    const Tensor tensor =
        empty({3000}, {.dtype = DType::uint8, .device = Device::host(), .host_memory = HostMemory::pinned});
    const PinnedMemoryStats during = pinned_memory_stats();
    EXPECT_EQ(during.allocation.current, before.allocation.current + 1);
    EXPECT_EQ(during.allocated_bytes.current, before.allocated_bytes.current + 4096);
    EXPECT_EQ(during.reserved_bytes.current, before.reserved_bytes.current + 4096);
    EXPECT_EQ(during.num_host_alloc, before.num_host_alloc + 1);
  }
  PinnedMemoryStats after = pinned_memory_stats();
  EXPECT_EQ(after.allocation.current, before.allocation.current);
  EXPECT_EQ(after.active_bytes.current, before.active_bytes.current);
  EXPECT_EQ(after.reserved_bytes.current, before.reserved_bytes.current + 4096) << "cached";
  EXPECT_EQ(after.allocation.allocated - after.allocation.freed, after.allocation.current);
  empty_pinned_cache();
  EXPECT_EQ(pinned_memory_stats().num_host_free, after.num_host_free + 1);
  reset_peak_pinned_memory_stats();
  reset_accumulated_pinned_memory_stats();
  after = pinned_memory_stats();
  EXPECT_EQ(after.reserved_bytes.peak, after.reserved_bytes.current);
  EXPECT_EQ(after.segment.allocated, 0);
  EXPECT_EQ(after.num_host_alloc, 0);
}

}  // namespace
}  // namespace tutti
