// SPDX-License-Identifier: Apache-2.0
#include "perf/session/memory_taken.hpp"

#include "tutti/memory.hpp"

#include <cstddef>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

TEST(PerfMemoryTaken, IsWhatIsLessFreeBetweenStartAndStop) {
  constexpr std::size_t size = std::size_t{64} << 20U;  // a segment of its own
  const std::vector<Device> devices{0, 1};
  const std::unique_ptr<Processes> processes = make_single_process();
  empty_cache();  // else blocks may come from there
  std::vector<void*> blocks;
  MemoryTaken taken(devices, *processes);
  EXPECT_EQ(taken.most(), 0U);
  blocks.push_back(caching_allocator_alloc(size, 0));
  taken.start();
  blocks.push_back(caching_allocator_alloc(2 * size, 1));
  taken.stop();
  blocks.push_back(caching_allocator_alloc(size, 1));
  EXPECT_EQ(taken.most(), 2 * size);
  taken.start();
  blocks.push_back(caching_allocator_alloc(size, 1));
  taken.stop();
  EXPECT_EQ(taken.most(), 3 * size);
  for (void* const block : blocks) caching_allocator_delete(block);
  empty_cache();
}

}  // namespace
}  // namespace tutti::perf
