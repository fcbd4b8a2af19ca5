// SPDX-License-Identifier: Apache-2.0
// When blocks that other streams have used are free again.

#include "support/memory/allocator_fixture.hpp"
#include "support/stream_gate.hpp"
#include "support/timing.hpp"
#include "tutti/event.hpp"
#include "tutti/memory.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::becomes_true;
using test::StreamGate;

using RecordedStreams = test::AllocatorTest;

TEST_F(RecordedStreams, ServesSmallRequestsWithWhatHasBecomeFreeOnceSomebodyHasWaitedForIt) {
  const Stream stream(0);
  const Stream reader(0);
  const std::function<void()> waits[] = {
      [&] { reader.synchronize(); },
      [] { synchronize(0); },
      [&] { reader.record_event().synchronize(); },
      [&] { ASSERT_TRUE(becomes_true([&] { return reader.query(); })); },
      [&] {
        const Event event = reader.record_event();
        ASSERT_TRUE(becomes_true([&event] { return event.query(); }));
      },
      [&] {
        const StreamGuard guard(reader);
        static_cast<void>(zeros({1}, {.device = Device(0)}).to_vector<float>());
      },
  };
  for (const std::function<void()>& wait : waits) {
    // The first request with something waiting may look for it, the next need not: only the wait tells them.
    const auto give_up = [&] {
      Block* const block = allocate(512, stream);
      record(block, reader);
      allocator().free(block);
      return CachingAllocator::address(block);
    };
    StreamGate gate(reader);
    const void* const address = give_up();
    for (int i = 0; i < 3; ++i) {
      Block* const other = allocate(512, stream);
      EXPECT_NE(CachingAllocator::address(other), address);
      allocator().free(other);
    }
    gate.open();
    wait();
    Block* const next = allocate(512, stream);
    EXPECT_EQ(CachingAllocator::address(next), address) << "the first of the segment is the best fit";
    allocator().free(next);
  }
}

TEST_F(RecordedStreams, CountsWhatOtherStreamsHaveUsedAsActiveUntilTheyAreDone) {
  const Stream reader(0);
  const auto active = [] { return memory_stats(0).active_bytes.all.current; };
  const auto awaiting = [] {
    std::size_t bytes = 0;
    for (const MemorySegment& segment : memory_snapshot()) {
      for (const MemoryBlock& block : segment.blocks) {
        if (block.state == BlockState::awaiting_free) bytes += block.bytes;
      }
    }
    return bytes;
  };
  const std::int64_t before = active();
  StreamGate gate(reader);
  for (const std::int64_t bytes : {1000, 3000, 3 << 20}) {
    const Tensor tensor = empty({bytes}, {.dtype = DType::uint8, .device = Device(0)});
    tensor.record_stream(reader);
  }
  EXPECT_EQ(active(), before + 1024 + 3072 + (3 << 20));
  EXPECT_EQ(awaiting(), std::size_t{1024 + 3072 + (3 << 20)});
  reset_peak_memory_stats(0);
  EXPECT_EQ(memory_stats(0).active_bytes.all.peak, active());
  gate.open();
  synchronize(0);
  EXPECT_EQ(active(), before);
  EXPECT_EQ(awaiting(), 0U);
  reset_peak_memory_stats(0);
  EXPECT_EQ(memory_stats(0).active_bytes.all.peak, before);
}

}  // namespace
}  // namespace tutti
