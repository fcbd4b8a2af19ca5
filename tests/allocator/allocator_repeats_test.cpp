// SPDX-License-Identifier: Apache-2.0
// Requests that one thread repeats: that they cost little is to be seen nowhere else.

#include "support/errors.hpp"
#include "support/memory/allocator_fixture.hpp"
#include "support/stream_gate.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"
#include "tutti/memory.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::books_balance;
using test::refuses;
using test::StreamGate;

class AllocatorRepeatsTest : public test::AllocatorTest {
 protected:
  static constexpr std::size_t mib = std::size_t{1} << 20;
  static constexpr int times = 10;

  /// Returns the address that all get.
  void* repeat(std::size_t bytes) {
    void* address = nullptr;
    for (int time = 0; time < times; ++time) {
      void* const given = caching_allocator_alloc(bytes, 0, stream_);
      if (time > 0) {
        EXPECT_EQ(given, address);
      }
      address = given;
      caching_allocator_delete(given);
    }
    return address;
  }

  Stream stream_{0};
};

TEST_F(AllocatorRepeatsTest, AreAllCounted) {
  const MemoryStats before = memory_stats(0);
  repeat(1000);
  const MemoryStats after = memory_stats(0);
  EXPECT_EQ(after.allocation.all.current, before.allocation.all.current);
  EXPECT_EQ(after.allocation.all.allocated, before.allocation.all.allocated + times);
  EXPECT_EQ(after.allocation.small_pool.freed, before.allocation.small_pool.freed + times);
  EXPECT_EQ(after.requested_bytes.all.allocated, before.requested_bytes.all.allocated + times * 1000);
  EXPECT_EQ(after.allocated_bytes.all.freed, before.allocated_bytes.all.freed + times * 1024);
  EXPECT_EQ(after.segment.all.current, before.segment.all.current + 1);
  EXPECT_TRUE(books_balance(after, allocator().snapshot()));
}

TEST_F(AllocatorRepeatsTest, LeaveMemoryToLargerRequests) {
  void* const neighbour = caching_allocator_alloc(9 * mib, 0, stream_);
  void* const repeated = repeat(6 * mib);
  const std::size_t reserved = memory_reserved(0);
  repeat(6 * mib);
  void* const larger = caching_allocator_alloc(9 * mib, 0, stream_);
  EXPECT_EQ(larger, repeated);
  EXPECT_EQ(memory_reserved(0), reserved);
  caching_allocator_delete(larger);
  caching_allocator_delete(neighbour);
}

TEST_F(AllocatorRepeatsTest, LeaveNothingThatCannotBeFreed) {
  const std::size_t reserved = memory_reserved(0);
  repeat(1000);
  repeat(30 * mib);
  empty_cache();
  EXPECT_EQ(memory_reserved(0), reserved);
}

TEST_F(AllocatorRepeatsTest, ServeTheirOwnStreamAlone) {
  void* const repeated = repeat(4096);
  const Stream other(0);
  void* const elsewhere = caching_allocator_alloc(4096, 0, other);
  EXPECT_NE(elsewhere, repeated);
  caching_allocator_delete(elsewhere);
  EXPECT_EQ(repeat(4096), repeated);
}

TEST_F(AllocatorRepeatsTest, WaitForOtherStreamsThatHaveUsedTheMemory) {
  const Stream reader(0);
  const StreamGuard current(stream_);
  const auto make = [] { return empty({1 << 20}, {.device = 0}); };  // a large one: events are asked for
  const void* repeated = nullptr;
  for (int time = 0; time < times; ++time) repeated = make().data();
  StreamGate gate(reader);
  make().record_stream(reader);
  EXPECT_NE(make().data(), repeated) << "the reader may not be done with it";
  gate.open();
  reader.synchronize();
  EXPECT_EQ(make().data(), repeated);
}

TEST_F(AllocatorRepeatsTest, LeaveGraphsMemoryOfTheirOwn) {
  const StreamGuard current(stream_);
  const auto make = [] { return zeros({256}, {.device = 0}); };
  const void* repeated = nullptr;
  for (int time = 0; time < times; ++time) repeated = make().data();
  const void* captured = nullptr;
  {
    Tensor outer = make();
    const Graph graph = Graph::capture(stream_, [&] {
      for (int time = 0; time < times; ++time) captured = make().data();
      outer.fill_(1);
      outer = Tensor();
    });
    EXPECT_NE(captured, repeated);
    EXPECT_NE(make().data(), captured);
    EXPECT_NE(make().data(), repeated) << "the graph uses it";
  }
  stream_.synchronize();
}

TEST_F(AllocatorRepeatsTest, TakeEachBlockBackOnce) {
  void* const repeated = repeat(4096);
  const auto refuses_it = [&] {
    return refuses([&] { caching_allocator_delete(repeated); }, ErrorCode::invalid_argument, {"address is"});
  };
  EXPECT_TRUE(refuses_it());
  const StreamGuard current(stream_);
  const Tensor tensor = empty({1024}, {.device = 0});
  ASSERT_EQ(tensor.data(), repeated);
  EXPECT_TRUE(refuses_it()) << "it is a tensor's now";
}

TEST_F(AllocatorRepeatsTest, OfManyThreadsAreAllCounted) {
  constexpr int threads = 3;
  constexpr int rounds = 300;
  const MemoryStats before = memory_stats(0);
  std::vector<std::thread> repeating;
  for (int thread = 0; thread < threads; ++thread) {
    repeating.emplace_back([thread] {
      const Stream stream(0);
      for (int round = 0; round < rounds; ++round) {
        const std::size_t bytes = std::size_t{512} << (thread + round / 100);
        caching_allocator_delete(caching_allocator_alloc(bytes, 0, stream));
      }
    });
  }
  for (int look = 0; look < 100; ++look) {
    const CachingAllocator::Books books = allocator().books();
    EXPECT_TRUE(books_balance(books.stats, books.segments));
  }
  for (std::thread& thread : repeating) thread.join();
  const MemoryStats after = memory_stats(0);
  EXPECT_EQ(after.allocation.all.allocated, before.allocation.all.allocated + threads * rounds);
  EXPECT_EQ(after.allocation.all.freed, before.allocation.all.freed + threads * rounds);
}

}  // namespace
}  // namespace tutti
