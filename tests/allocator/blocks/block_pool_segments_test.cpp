// SPDX-License-Identifier: Apache-2.0
#include "allocator/blocks/block_pool.hpp"
#include "support/memory/block_pool_fixture.hpp"
#include "support/memory/memory_books.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// Segments that are not cut, that are looked for by an address, and that belong to graphs.
namespace tutti {
namespace {

using test::BlockPoolTest;
using test::books_balance;
using test::first_stream;
using test::mebibyte;
using test::other_stream;

/// A pool that does not cut blocks of 64 MiB and more.
class UncutBlocksTest : public testing::Test {
 protected:
  Block& fresh(std::size_t bytes) {
    next_address_ += std::uintptr_t{1} << 32;
    pool_.add_segment(reinterpret_cast<std::byte*>(next_address_), BlockPool::segment_bytes(bytes),
                      BlockPool::pool_of(bytes), first_stream);
    return *pool_.take(bytes, first_stream);
  }
  void give_back(Block& block) {
    pool_.release(block);
    pool_.give_back(block);
  }

  BlockPool pool_{0, nullptr, 64 * mebibyte};

 private:
  std::uintptr_t next_address_ = std::uintptr_t{1} << 40;
};

TEST_F(UncutBlocksTest, ServeOnlyWhatTheyHardlyExceed) {
  Block& uncut = fresh(100 * mebibyte);
  give_back(uncut);
  EXPECT_EQ(pool_.take(50 * mebibyte, first_stream), nullptr) << "it would be cut, or largely unused";
  EXPECT_EQ(pool_.take(70 * mebibyte, first_stream), nullptr) << "30 MiB would be unused";
  EXPECT_EQ(pool_.take(90 * mebibyte, first_stream), &uncut);
  EXPECT_EQ(uncut.bytes, 100 * mebibyte);
  give_back(uncut);
  Block& shorter = fresh(60 * mebibyte);
  give_back(shorter);
  EXPECT_EQ(pool_.take(20 * mebibyte, first_stream), &shorter);
  EXPECT_EQ(shorter.bytes, 20 * mebibyte);
  EXPECT_TRUE(books_balance(pool_.stats(), pool_.snapshot()));
}

/// Segments that begin and end anywhere.
TEST(SegmentIndexTest, FindsTheSegmentAroundAnAddress) {
  SegmentIndex index;
  std::vector<Segment> segments(4);
  auto* at = reinterpret_cast<std::byte*>((std::uintptr_t{1} << 44) - 3 * mebibyte - 4096);
  for (Segment& segment : segments) {
    segment.address = at;
    segment.bytes = &segment == &segments[1] ? 20 * mebibyte : 2 * mebibyte;
    index.add(segment);
    at += segment.bytes + (&segment == &segments[2] ? 8192 : 0);
  }
  const auto expect_around = [&](const Segment& segment, const Segment* expected) {
    for (const std::size_t offset : {std::size_t{0}, segment.bytes / 2, segment.bytes - 1})
      EXPECT_EQ(index.find(segment.address + offset), expected);
  };
  for (const Segment& segment : segments) expect_around(segment, &segment);
  EXPECT_EQ(index.find(nullptr), nullptr);
  EXPECT_EQ(index.find(reinterpret_cast<void*>(~std::uintptr_t{0})), nullptr);
  index.remove(segments[1]);
  expect_around(segments[0], &segments[0]);
  expect_around(segments[2], &segments[2]);
  EXPECT_EQ(index.find(segments[1].address + 10 * mebibyte), nullptr);
  index.add(segments[1]);
  expect_around(segments[1], &segments[1]);
}

TEST_F(BlockPoolTest, FindsTheBlockInUseAroundAnAddress) {
  Block& small = take(4096);
  Block& next = take(512);
  Block& large = take(9 * mebibyte + 512);
  Block& after = take(9 * mebibyte);
  ASSERT_EQ(after.address, large.address + large.bytes);
  for (Block* block : {&small, &next, &large, &after}) {
    EXPECT_EQ(pool_.find(block->address), block);
    EXPECT_EQ(pool_.find(block->address + 1), block);
    EXPECT_EQ(pool_.find(block->address + block->bytes - 1), block);
  }
  EXPECT_EQ(pool_.find(small.address - 1), nullptr);
  EXPECT_EQ(pool_.find(small.address + 2 * mebibyte), nullptr);
  EXPECT_EQ(pool_.find(nullptr), nullptr);
  give_back(large);
  EXPECT_EQ(pool_.find(large.address), nullptr) << "cached";
  EXPECT_EQ(pool_.find(after.address), &after);
}

TEST_F(BlockPoolTest, KeepsTheMemoryOfGraphsApart) {
  const GraphPool graph{1};
  Block& ordinary = take(4096);
  Block& graphs = take(4096, first_stream, graph);
  EXPECT_NE(ordinary.segment, graphs.segment);
  const std::byte* const address = graphs.address;
  give_back(ordinary);
  give_back(graphs);
  EXPECT_NE(take(4096).address, address);
  EXPECT_EQ(pool_.take(4096, first_stream, GraphPool{2}), nullptr);
  EXPECT_EQ(take(4096, first_stream, graph).address, address)
      << "within the graph its own order keeps it safe";
  EXPECT_TRUE(pool_.has_segments_of(graph));
  EXPECT_FALSE(pool_.has_segments_of(GraphPool{2}));
  for (const MemorySegment& segment : pool_.snapshot())
    EXPECT_EQ(segment.graph_pool, segment.address == address ? 1U : 0U);
}

TEST_F(BlockPoolTest, GivesUpNoSegmentOfAGraphBeforeItIsDissolved) {
  const GraphPool graph{1};
  give_back(take(4096, first_stream, graph));
  EXPECT_TRUE(pool_.remove_segments_cached_before(pool_.now()).empty());
  pool_.dissolve(graph);
  EXPECT_EQ(pool_.remove_segments_cached_before(pool_.now()).size(), 1U);
}

TEST_F(BlockPoolTest, ServesEverybodyWithWhatADissolvedGraphHad) {
  const GraphPool graph{1};
  const GraphPool other{2};
  Block& in_use = take(4096, first_stream, graph);
  Block& large = take(3 * mebibyte, first_stream, graph);
  Block& of_other_stream = take(4096, other_stream, graph);
  Block& of_other_graph = take(4096, first_stream, other);
  const std::byte* const addresses[] = {large.address, of_other_stream.address};
  give_back(large);
  give_back(of_other_stream);
  pool_.dissolve(graph);
  EXPECT_TRUE(books_balance(pool_.stats(), pool_.snapshot()));
  EXPECT_EQ(take(3 * mebibyte).address, addresses[0]);
  EXPECT_EQ(take(4096, other_stream).address, addresses[1]);
  const std::byte* const address = in_use.address;
  EXPECT_EQ(pool_.find(address), &in_use);
  EXPECT_EQ(take(4096).segment, in_use.segment) << "the rest of the segment that it is in";
  give_back(in_use);
  EXPECT_EQ(take(4096).address, address);
  EXPECT_TRUE(pool_.has_segments_of(other));
  give_back(of_other_graph);
}

}  // namespace
}  // namespace tutti
