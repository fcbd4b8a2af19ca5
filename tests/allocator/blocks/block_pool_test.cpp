// SPDX-License-Identifier: Apache-2.0
#include "allocator/blocks/block_pool.hpp"

#include "support/environment.hpp"
#include "support/memory/block_pool_fixture.hpp"
#include "support/memory/memory_books.hpp"

#include <cstdlib>
#include <new>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace {

thread_local std::size_t heap_allocations = 0;

}  // namespace

// Counts what the code under test takes from the heap. Not to be inlined: compilers would see a `free` of
// what came from `operator new`.
[[gnu::noinline]] void* operator new(std::size_t bytes) {
  ++heap_allocations;
  if (void* memory = std::malloc(bytes == 0 ? 1 : bytes)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t& /*tag*/) noexcept {
  ++heap_allocations;
  return std::malloc(bytes == 0 ? 1 : bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept {
  std::free(memory);
}
[[gnu::noinline]] void operator delete(void* memory, std::size_t /*bytes*/) noexcept {
  std::free(memory);
}

namespace tutti {
namespace {

using test::BlockPoolTest;
using test::books_balance;
using test::first_stream;
using test::mebibyte;
using test::other_stream;
using test::stream_of;

TEST_F(BlockPoolTest, RoundsRequestsUpTo512Bytes) {
  EXPECT_EQ(take(0).bytes, 512U);
  EXPECT_EQ(take(1).bytes, 512U);
  EXPECT_EQ(take(512).bytes, 512U);
  EXPECT_EQ(take(513).bytes, 1024U);
  EXPECT_EQ(pool_.stats().requested_bytes.all.current, 0 + 1 + 512 + 513);
  EXPECT_EQ(pool_.stats().allocated_bytes.all.current, 3 * 512 + 1024);
}

TEST_F(BlockPoolTest, GetsSegmentsBySizeOfTheRequest) {
  EXPECT_EQ(BlockPool::segment_bytes(0), 2 * mebibyte);
  EXPECT_EQ(BlockPool::segment_bytes(mebibyte), 2 * mebibyte);
  EXPECT_EQ(BlockPool::segment_bytes(mebibyte + 1), 20 * mebibyte);
  EXPECT_EQ(BlockPool::segment_bytes(10 * mebibyte - 512), 20 * mebibyte);
  EXPECT_EQ(BlockPool::segment_bytes(10 * mebibyte), 10 * mebibyte);
  EXPECT_EQ(BlockPool::segment_bytes(10 * mebibyte + 1), 12 * mebibyte);
  EXPECT_EQ(BlockPool::segment_bytes(33 * mebibyte), 34 * mebibyte);
}

TEST_F(BlockPoolTest, KeepsSmallAndLargeRequestsApart) {
  Block& large = take(5 * mebibyte);
  Block& small = take(mebibyte);
  EXPECT_NE(large.segment, small.segment);
  EXPECT_EQ(large.segment->pool, MemoryPool::large_pool);
  EXPECT_EQ(small.segment->pool, MemoryPool::small_pool);
  give_back(large);
  EXPECT_EQ(pool_.take(mebibyte, other_stream), nullptr);
  EXPECT_EQ(take(2 * mebibyte).segment, large.segment);
}

TEST_F(BlockPoolTest, CutsSmallBlocksToSize) {
  const Block& first = take(512);
  const Block& second = take(1024);
  const Block& third = take(mebibyte);
  EXPECT_EQ(second.address, first.address + 512);
  EXPECT_EQ(third.address, second.address + 1024);
  EXPECT_EQ(pool_.stats().segment.all.current, 1);
  EXPECT_EQ(pool_.stats().inactive_split_bytes.all.current, static_cast<std::int64_t>(mebibyte - 1536));
}

TEST_F(BlockPoolTest, LeavesNoLargeRemainderOfOneMebibyteOrLess) {
  Block& exact = take(12 * mebibyte);
  give_back(exact);
  EXPECT_EQ(take(11 * mebibyte).bytes, 12 * mebibyte);
  EXPECT_EQ(take(9 * mebibyte).bytes, 9 * mebibyte);  // of 20: 11 remain
}

TEST_F(BlockPoolTest, TakesTheBestFit) {
  std::vector<Block*> blocks;
  for (const std::size_t bytes : {4096U, 1024U, 2048U, 1024U}) {
    blocks.push_back(&take(bytes));
    take(512);  // keeps neighbours from joining
  }
  for (Block* block : blocks) give_back(*block);
  EXPECT_EQ(&take(1500), blocks[2]);
  EXPECT_EQ(&take(1024), blocks[3]) << "of equal ones the one that was given back last";
  EXPECT_EQ(&take(513), blocks[1]);
  EXPECT_EQ(&take(2049), blocks[0]);
}

TEST_F(BlockPoolTest, ServesEachStreamFromItsOwnSegments) {
  Block& mine = take(4096, first_stream);
  give_back(mine);
  Block& theirs = take(4096, other_stream);
  EXPECT_NE(theirs.segment, mine.segment);
  EXPECT_EQ(&take(4096, first_stream), &mine);
  const Block& same_handle = take(4096, stream_of(1, 1));
  EXPECT_NE(same_handle.segment, mine.segment) << "equal handles on different devices are different streams";
}

TEST_F(BlockPoolTest, JoinsCachedNeighboursOnBothSides) {
  Block& left = take(4096);
  Block& middle = take(4096);
  Block& right = take(4096);
  Block& rest = take(mebibyte - 3 * 4096);
  Block& last = take(mebibyte);
  give_back(left);
  give_back(right);
  EXPECT_EQ(pool_.stats().inactive_split.all.current, 2);
  give_back(middle);
  EXPECT_EQ(pool_.stats().inactive_split.all.current, 1);
  EXPECT_EQ(pool_.stats().inactive_split_bytes.all.current, 3 * 4096);
  give_back(last);
  give_back(rest);
  EXPECT_EQ(pool_.stats().inactive_split.all.current, 0) << "a whole segment is not split";
}

TEST_F(BlockPoolTest, DoesNotJoinBlocksThatAwaitTheirFree) {
  Block& pending = take(4096);
  Block& neighbour = take(4096);
  pool_.release(pending);
  give_back(neighbour);
  EXPECT_EQ(pool_.stats().active.all.current, 1);
  EXPECT_EQ(pool_.stats().allocation.all.current, 0);
  EXPECT_NE(&take(4096), &pending);
  EXPECT_TRUE(books_balance(pool_.stats(), pool_.snapshot()));
  pool_.give_back(pending);
  EXPECT_EQ(&take(4096), &pending);
}

TEST_F(BlockPoolTest, GivesUpOnlyWholeSegments) {
  Block& part = take(4096);
  Block& whole = take(40 * mebibyte);
  EXPECT_TRUE(pool_.remove_segments_cached_before(pool_.now()).empty());
  std::byte* address = whole.address;
  give_back(whole);
  const std::vector<Segment> removed = pool_.remove_segments_cached_before(pool_.now());
  ASSERT_EQ(removed.size(), 1U);
  EXPECT_EQ(removed[0].address, address);
  EXPECT_EQ(removed[0].bytes, 40 * mebibyte);
  EXPECT_EQ(removed[0].stream, first_stream);
  give_back(part);
  EXPECT_EQ(pool_.remove_segments_cached_before(pool_.now()).size(), 1U);
  EXPECT_EQ(pool_.stats().reserved_bytes.all.current, 0);
  EXPECT_EQ(pool_.stats().num_device_free, 2);
}

TEST_F(BlockPoolTest, KeepsSegmentsThatWereCachedLater) {
  Block& early = take(20 * mebibyte);
  Block& late = take(40 * mebibyte);
  EXPECT_TRUE(pool_.devices_of_cached_segments().empty());
  give_back(early);
  EXPECT_EQ(pool_.devices_of_cached_segments(), std::vector<int>{first_stream.device});
  Block& again = take(20 * mebibyte);
  const BlockPool::Moment moment = pool_.now();
  give_back(again);
  give_back(late);
  EXPECT_TRUE(pool_.remove_segments_cached_before(moment).empty());
  const BlockPool::Moment later = pool_.now();
  Block& in_use = take(40 * mebibyte);
  EXPECT_EQ(pool_.remove_segments_cached_before(later).size(), 1U);
  give_back(in_use);
  EXPECT_EQ(pool_.remove_segments_cached_before(later).size(), 0U);
  EXPECT_EQ(pool_.remove_segments_cached_before(pool_.now()).size(), 1U);
}

TEST_F(BlockPoolTest, GivesUpFirstWhatHasBeenUnusedForLongest) {
  std::vector<Block*> blocks;
  for (int i = 0; i < 3; ++i) blocks.push_back(&take(20 * mebibyte));
  std::vector<const std::byte*> addresses;
  for (const std::size_t index : {1U, 2U, 0U}) {
    addresses.push_back(blocks[index]->address);
    give_back(*blocks[index]);
    static_cast<void>(pool_.now());
  }
  const std::vector<Segment> removed = pool_.remove_segments_cached_before(pool_.now(), 21 * mebibyte);
  ASSERT_EQ(removed.size(), 2U);
  EXPECT_EQ(removed[0].address, addresses[0]);
  EXPECT_EQ(removed[1].address, addresses[1]);
  EXPECT_EQ(take(20 * mebibyte).address, addresses[2]);
}

TEST_F(BlockPoolTest, FindsTheBestFitAmongManySizes) {
  std::mt19937_64 random(test::test_seed());
  std::vector<Block*> blocks;
  for (int i = 0; i < 300; ++i) {
    blocks.push_back(&take(1 + random() % (8 * mebibyte)));
    take(blocks.back()->segment->pool == MemoryPool::small_pool ? 1 : 2 * mebibyte);  // keeps them apart
  }
  const auto sizes_cached = [&] {
    std::vector<std::size_t> sizes;
    for (const MemorySegment& segment : pool_.snapshot()) {
      for (const MemoryBlock& block : segment.blocks) {
        const bool is_large = segment.pool == MemoryPool::large_pool;
        if (block.state == BlockState::cached && is_large) sizes.push_back(block.bytes);
      }
    }
    return sizes;
  };
  for (Block* block : blocks) give_back(*block);
  for (int i = 0; i < 100; ++i) {
    const std::size_t request = 2 * mebibyte + 512 * (random() % 8192);
    std::size_t best = SIZE_MAX;
    for (const std::size_t size : sizes_cached()) {
      if (size >= request) best = std::min(best, size);
    }
    Block* const block = pool_.take(request, first_stream);
    if (best == SIZE_MAX) {
      EXPECT_EQ(block, nullptr);
    } else {
      ASSERT_NE(block, nullptr);
      const bool is_cut = best - request > mebibyte;
      EXPECT_EQ(block->bytes, is_cut ? request : best);
      EXPECT_TRUE(!is_cut || (block->next != nullptr && block->next->bytes == best - request));
    }
  }
}

TEST_F(BlockPoolTest, ForgetsPeaksOnRequest) {
  Block& block = take(8192);
  give_back(block);
  EXPECT_EQ(pool_.stats().allocated_bytes.all.peak, 8192);
  EXPECT_EQ(pool_.stats().allocated_bytes.small_pool.peak, 8192);
  pool_.counts().reset_peaks();
  EXPECT_EQ(pool_.stats().allocated_bytes.all.peak, 0);
  EXPECT_EQ(pool_.stats().reserved_bytes.all.peak, static_cast<std::int64_t>(2 * mebibyte));
}

TEST_F(BlockPoolTest, TakesNothingFromTheHeapOnAHit) {
  take(512);
  give_back(take(4096));  // cut and joined once
  const std::size_t before = heap_allocations;
  for (int i = 0; i < 100; ++i) give_back(take(4096));
  EXPECT_EQ(heap_allocations, before);
}

TEST_F(BlockPoolTest, KeepsItsBooksThroughRandomRequests) {
  std::mt19937_64 random(test::test_seed());
  std::vector<Block*> in_use;
  std::vector<Block*> released;
  const auto pick = [&](std::vector<Block*>& blocks) {
    const std::size_t index = random() % blocks.size();
    std::swap(blocks[index], blocks.back());
    Block* block = blocks.back();
    blocks.pop_back();
    return block;
  };
  for (std::int64_t step = test::scaled(20000); step > 0; --step) {
    switch (random() % 8) {
      case 0:
      case 1:
      case 2:
      case 3:
        in_use.push_back(&take((random() % 4 == 0 ? 1 + random() % (30 * mebibyte) : random() % 65536),
                               stream_of(static_cast<int>(random() % 2), 1 + random() % 2)));
        break;
      case 4:
      case 5:
        if (!in_use.empty()) give_back(*pick(in_use));
        break;
      case 6:
        if (!in_use.empty()) {
          released.push_back(pick(in_use));
          pool_.release(*released.back());
        }
        break;
      default:
        if (!released.empty()) pool_.give_back(*pick(released));
    }
    if (in_use.size() > 100) give_back(*pick(in_use));
    if (random() % 50 == 0) static_cast<void>(pool_.remove_segments_cached_before(pool_.now()));
    if (!in_use.empty()) {
      Block* block = in_use[random() % in_use.size()];
      ASSERT_EQ(pool_.find(block->address + random() % block->bytes), block);
    }
    if (step % 10 == 0) {
      ASSERT_TRUE(books_balance(pool_.stats(), pool_.snapshot()));
    }
  }
  for (Block* block : in_use) give_back(*block);
  for (Block* block : released) pool_.give_back(*block);
  static_cast<void>(pool_.remove_segments_cached_before(pool_.now()));
  EXPECT_EQ(pool_.stats().reserved_bytes.all.current, 0);
  EXPECT_EQ(pool_.stats().active_bytes.all.current, 0);
}

}  // namespace
}  // namespace tutti
