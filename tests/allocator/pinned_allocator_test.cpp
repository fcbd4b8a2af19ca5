// SPDX-License-Identifier: Apache-2.0
#include "allocator/pinned_allocator.hpp"

#include "device/runtime.hpp"
#include "storage/storage.hpp"
#include "stream/stream_access.hpp"
#include "support/errors.hpp"
#include "support/stream_gate.hpp"
#include "tutti/error.hpp"
#include "tutti/memory.hpp"

#include <cstdint>
#include <cstring>
#include <limits>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::refuses;
using test::StreamGate;

class PinnedAllocatorTest : public testing::Test {
 protected:
  void SetUp() override { pinned().empty_cache(); }
  void TearDown() override {
    pinned().finish_pending();
    EXPECT_EQ(pinned().bytes_active(), 0U) << "a block was not given back";
  }

  static PinnedAllocator& pinned() { return Runtime::get().part<PinnedAllocator>(); }
  static std::size_t reserved_for(std::size_t bytes) {
    const std::size_t before = pinned().bytes_reserved();
    PinnedBlock* block = pinned().allocate(bytes);
    const std::size_t result = pinned().bytes_reserved() - before;
    pinned().free(block);
    pinned().empty_cache();
    return result;
  }
};

TEST_F(PinnedAllocatorTest, GivesMemoryTheHostMayTouch) {
  PinnedBlock* block = pinned().allocate(10000);
  std::memset(PinnedAllocator::address(block), 0x5a, 10000);
  const backend::PointerInfo info = Runtime::get().backend().pointer_info(PinnedAllocator::address(block));
  EXPECT_EQ(info.kind, backend::MemoryKind::pinned);
  pinned().free(block);
}

TEST_F(PinnedAllocatorTest, RoundsUpToFourSizesPerPowerOfTwo) {
  EXPECT_EQ(reserved_for(0), 4096U);
  EXPECT_EQ(reserved_for(4096), 4096U);
  EXPECT_EQ(reserved_for(4097), 5120U);
  EXPECT_EQ(reserved_for(6000), 6144U);
  EXPECT_EQ(reserved_for(8192), 8192U);
  EXPECT_EQ(reserved_for(8193), 10240U);
  EXPECT_EQ(reserved_for((1 << 20) + 1), (1U << 20) + (1U << 18));
}

TEST_F(PinnedAllocatorTest, ReusesABlockForItsSizeClass) {
  PinnedBlock* first = pinned().allocate(10000);
  const void* address = PinnedAllocator::address(first);
  pinned().free(first);
  PinnedBlock* second = pinned().allocate(9000);
  EXPECT_EQ(PinnedAllocator::address(second), address);
  PinnedBlock* other_class = pinned().allocate(20000);
  EXPECT_NE(PinnedAllocator::address(other_class), address);
  pinned().free(second);
  pinned().free(other_class);
}

TEST_F(PinnedAllocatorTest, KeepsABlockUntilTheRecordedStreamIsDone) {
  const Stream stream(0);
  StreamGate gate(stream);
  PinnedBlock* first = pinned().allocate(10000);
  const void* address = PinnedAllocator::address(first);
  pinned().record_stream(first, StreamAccess::ref(stream));
  pinned().free(first);
  EXPECT_GT(pinned().bytes_active(), 0U);
  PinnedBlock* second = pinned().allocate(10000);
  EXPECT_NE(PinnedAllocator::address(second), address);
  gate.open();
  stream.synchronize();
  PinnedBlock* third = pinned().allocate(10000);
  EXPECT_EQ(PinnedAllocator::address(third), address);
  pinned().free(second);
  pinned().free(third);
}

TEST_F(PinnedAllocatorTest, ReturnsCachedBlocksToTheSystem) {
  pinned().free(pinned().allocate(10000));
  pinned().free(pinned().allocate(1 << 20));
  EXPECT_GT(pinned().bytes_reserved(), 0U);
  empty_pinned_cache();
  EXPECT_EQ(pinned().bytes_reserved(), 0U);
}

TEST_F(PinnedAllocatorTest, KeepsWhatIsFreedDuringACaptureUntilTheGraphIsGone) {
  const GraphPool graph{~std::uint64_t{0} >> 1U};
  pinned().add_graph_pool(graph);
  PinnedBlock* const block = pinned().allocate(4096);
  const void* const address = PinnedAllocator::address(block);
  pinned().free(block, graph);
  pinned().empty_cache();
  PinnedBlock* const next = pinned().allocate(4096);
  EXPECT_NE(PinnedAllocator::address(next), address);
  pinned().close_graph_pool(graph);
  PinnedBlock* const after = pinned().allocate(4096);
  EXPECT_EQ(PinnedAllocator::address(after), address);
  pinned().free(next);
  pinned().free(after);
}

TEST_F(PinnedAllocatorTest, RefusesWhatNoMachineHas) {
  EXPECT_TRUE(refuses([] { static_cast<void>(pinned().allocate(std::numeric_limits<std::size_t>::max())); },
                      ErrorCode::out_of_memory, {"out of pinned host memory"}));
}

TEST_F(PinnedAllocatorTest, BacksStorages) {
  Runtime& runtime = Runtime::get();
  {
    const auto storage = PinnedStorage::allocate(runtime, 5000);
    EXPECT_EQ(storage->bytes(), 5000U);
    EXPECT_TRUE(storage->device().is_host());
    storage->record_stream(Stream(0));
    EXPECT_EQ(pinned().bytes_active(), 5120U);
  }
  const auto pageable = PageableStorage::allocate(100);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(pageable->data()) % 64, 0U);
}

TEST_F(PinnedAllocatorTest, ServesManyThreads) {
  const auto work = [](int thread) {
    const Stream stream(0);
    for (int i = 0; i < 200; ++i) {
      const auto bytes = static_cast<std::size_t>(1 + (i * 7919 + thread * 104729) % 60000);
      PinnedBlock* block = pinned().allocate(bytes);
      auto* first = static_cast<unsigned char*>(PinnedAllocator::address(block));
      std::memset(first, thread, bytes);
      std::this_thread::yield();
      for (std::size_t k = 0; k < bytes; k += 511) ASSERT_EQ(first[k], thread);
      if (i % 3 == 0) pinned().record_stream(block, StreamAccess::ref(stream));
      pinned().free(block);
    }
  };
  std::vector<std::thread> threads;
  for (int thread = 0; thread < 4; ++thread) threads.emplace_back(work, thread);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tutti
