// SPDX-License-Identifier: Apache-2.0
// The private pools of graphs, in the allocator: on both backends, as it need not know what is captured.

#include "stream/stream_access.hpp"
#include "support/memory/allocator_fixture.hpp"
#include "support/stream_gate.hpp"
#include "tutti/memory.hpp"
#include "tutti/stream.hpp"

#include <cstddef>
#include <cstdint>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::StreamGate;

constexpr std::size_t mebibyte = std::size_t{1} << 20;

using GraphPoolTest = test::AllocatorTest;

TEST_F(GraphPoolTest, KeepsTheMemoryOfAGraphUntilItIsGone) {
  const Stream stream(0);
  const backend::StreamRef ref = StreamAccess::ref(stream);
  const GraphPool graph{~std::uint64_t{0} >> 1U};
  allocator().add_graph_pool(graph);
  const std::size_t reserved = memory_reserved(0);
  Block* const dropped = allocator().allocate(4096, ref, graph);
  Block* const alive = allocator().allocate(3 * mebibyte, ref, graph);
  const void* const address = CachingAllocator::address(dropped);
  allocator().free(dropped, graph);
  EXPECT_EQ(memory_reserved(0), reserved + 22 * mebibyte);
  empty_cache();
  EXPECT_EQ(memory_reserved(0), reserved + 22 * mebibyte) << "the graph will use it";
  Block* const other = allocate(4096, stream);
  EXPECT_NE(other->segment, alive->segment);
  EXPECT_NE(CachingAllocator::address(other), address);
  Block* const again = allocator().allocate(4096, ref, graph);
  EXPECT_EQ(CachingAllocator::address(again), address);
  allocator().free(again);

  allocator().close_graph_pool(graph, GraphWork::done);
  allocator().free(other);
  allocator().free(alive);
  empty_cache();
  EXPECT_EQ(memory_reserved(0), reserved);
}

TEST_F(GraphPoolTest, ReusesTheMemoryOfAGraphThatIsDone) {
  const Stream stream(0);
  const GraphPool graph{~std::uint64_t{0} >> 1U};
  allocator().add_graph_pool(graph);
  Block* const block = allocator().allocate(12 * mebibyte, StreamAccess::ref(stream), graph);
  const void* const address = CachingAllocator::address(block);
  allocator().free(block);
  allocator().close_graph_pool(graph, GraphWork::done);
  Block* const next = allocate(12 * mebibyte, stream);
  EXPECT_EQ(CachingAllocator::address(next), address);
  allocator().free(next);
}

TEST_F(GraphPoolTest, WaitsForAllDevicesBeforeItReusesWhatAGraphOfOthersHad) {
  const Stream stream(0);
  const Stream launched(0);
  const GraphPool graph{~std::uint64_t{0} >> 1U};
  allocator().add_graph_pool(graph);
  const std::size_t reserved = memory_reserved(0);
  Block* const block = allocator().allocate(12 * mebibyte, StreamAccess::ref(stream), graph);
  const void* const address = CachingAllocator::address(block);
  allocator().free(block);
  StreamGate gate(launched);
  const test::StreamFlag done(launched);
  allocator().close_graph_pool(graph, GraphWork::unknown);
  Block* const next = allocate(12 * mebibyte, stream);
  EXPECT_NE(CachingAllocator::address(next), address) << "the last launch may still use it";
  allocator().free(next);
  gate.open_soon();
  empty_cache();
  EXPECT_TRUE(done.is_set());
  EXPECT_EQ(memory_reserved(0), reserved);
}

TEST_F(GraphPoolTest, KeepsWhatIsFreedDuringACaptureUntilTheGraphIsGone) {
  const Stream stream(0);
  const Stream reader(0);
  const GraphPool graph{~std::uint64_t{0} >> 1U};
  allocator().add_graph_pool(graph);
  const std::size_t active = allocator().bytes_active();
  const std::size_t allocated = memory_allocated(0);
  Block* const block = allocate(12 * mebibyte, stream);
  Block* const read = allocate(3 * mebibyte, stream);
  const void* const address = CachingAllocator::address(block);
  record(read, reader);
  allocator().free(block, graph);
  allocator().free(read, graph);
  EXPECT_EQ(memory_allocated(0), allocated);
  EXPECT_EQ(allocator().bytes_active(), active + 15 * mebibyte);
  empty_cache();
  Block* const next = allocate(12 * mebibyte, stream);
  EXPECT_NE(CachingAllocator::address(next), address);
  allocator().free(next);
  {
    StreamGate gate(reader);
    allocator().close_graph_pool(graph, GraphWork::done);
    EXPECT_EQ(allocator().bytes_active(), active + 3 * mebibyte) << "the reader is not done";
  }
  synchronize(0);
  EXPECT_EQ(allocator().bytes_active(), active);
}

}  // namespace
}  // namespace tutti
