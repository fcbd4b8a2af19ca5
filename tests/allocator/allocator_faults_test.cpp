// SPDX-License-Identifier: Apache-2.0
// What the allocators do when memory runs out, on virtual machines small enough for that.

#include "allocator/allocators.hpp"
#include "allocator/caching_allocator.hpp"
#include "allocator/pinned_allocator.hpp"
#include "device/runtime.hpp"
#include "stream/event_pool.hpp"
#include "stream/stream_access.hpp"
#include "support/errors.hpp"
#include "support/memory/memory_books.hpp"
#include "support/stream_gate.hpp"
#include "support/timing.hpp"
#include "tutti/error.hpp"
#include "tutti/graph.hpp"
#include "tutti/memory.hpp"
#include "tutti/sync_debug.hpp"
#include "tutti/virtual_devices.hpp"

#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::becomes_true;
using test::books_balance;
using test::refuses;
using test::StreamGate;
using virtual_devices::FaultKind;
using virtual_devices::Operation;

constexpr std::size_t mebibyte = std::size_t{1} << 20;

class FullMemory : public testing::Test {
 protected:
  void SetUp() override {
    virtual_devices::VirtualMachine machine;
    machine.device_count = 2;
    machine.memory_bytes = 64 * mebibyte;
    virtual_devices::start(machine);
  }
  void TearDown() override {
    try {
      allocator().finish_pending();  // so that nothing becomes free between the two
    } catch (const Error&) {
      // Some tests have work fail.
    }
    EXPECT_TRUE(books_balance(allocator().stats(), allocator().snapshot()));
  }

  static CachingAllocator& allocator() { return Runtime::get().part<Allocators>().of(0); }
  static Block* allocate(std::size_t bytes, const Stream& stream) {
    return allocator().allocate(bytes, StreamAccess::ref(stream));
  }
  static void free(Block* block) { allocator().free(block); }
  static void record(Block* block, const Stream& stream) {
    allocator().record_stream(block, StreamAccess::ref(stream));
  }
  /// The next `count` requests to the device are refused.
  static void refuse(std::uint64_t count) {
    virtual_devices::inject(
        {.operation = Operation::allocate_device, .kind = FaultKind::fail, .count = count});
  }
  static bool fails(std::size_t bytes, const Stream& stream) {
    return static_cast<bool>(refuses([&] { free(allocate(bytes, stream)); }, ErrorCode::out_of_memory,
                                     {"out of memory on device 0"}));
  }
};

TEST_F(FullMemory, AsksTheDeviceAgainAfterReturningCachedSegments) {
  const Stream stream(0);
  free(allocate(40 * mebibyte, stream));
  Block* block = allocate(60 * mebibyte, stream);
  EXPECT_EQ(memory_stats(0).num_alloc_retries, 1);
  EXPECT_EQ(memory_stats(0).num_device_free, 1);
  EXPECT_EQ(memory_reserved(0), 60 * mebibyte);
  free(block);
}

// Who asks the system for memory, or gives some back, may have to wait for a stream whose work waits for
// another thread, which needs memory, too.

TEST_F(FullMemory, LetsOthersAllocateWhileARequestWaitsForTheDevice) {
  const Stream stream(0);
  free(allocate(40 * mebibyte, stream));
  StreamGate gate(stream);
  std::thread other([&] {
    EXPECT_TRUE(becomes_true([] { return memory_stats(0).num_alloc_retries > 0; }));
    free(allocate(mebibyte, Stream(0)));
    gate.open();
  });
  free(allocate(40 * mebibyte, Stream(0)));
  other.join();
}

TEST_F(FullMemory, LetsOthersAllocateWhileTheCacheIsEmptied) {
  const Stream stream(0);
  free(allocate(mebibyte, stream));
  StreamGate gate(stream);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    free(allocate(mebibyte, Stream(0)));
    gate.open();
  });
  empty_cache();
  other.join();
}

TEST_F(FullMemory, LetsOthersAllocateWhilePinnedBlocksAreWaitedFor) {
  PinnedAllocator& pinned = Runtime::get().part<PinnedAllocator>();
  const Stream stream(0);
  StreamGate gate(stream);
  PinnedBlock* const block = pinned.allocate(4096);
  pinned.record_stream(block, StreamAccess::ref(stream));
  pinned.free(block);
  std::thread other([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pinned.free(pinned.allocate(8192));
    gate.open();
  });
  empty_pinned_cache();
  other.join();
}

TEST_F(FullMemory, ReturnsCachedSegmentsOfOtherStreams) {
  free(allocate(40 * mebibyte, Stream(0)));
  free(allocate(60 * mebibyte, Stream(0)));
  EXPECT_EQ(memory_stats(0).num_device_free, 1);
}

TEST_F(FullMemory, WaitsForBlocksThatOtherStreamsStillUse) {
  const Stream stream(0);
  const Stream reader(1);
  Block* block = allocate(40 * mebibyte, stream);
  record(block, reader);
  StreamGate gate(reader);
  free(block);
  gate.open_soon();
  free(allocate(60 * mebibyte, stream));
  EXPECT_EQ(memory_stats(0).num_ooms, 0);
}

TEST_F(FullMemory, TakesWhatBecameFreeInsideASegmentThatIsStillInUse) {
  const Stream stream(0);
  const Stream reader(0);
  Block* filler = allocate(44 * mebibyte, Stream(0));
  Block* neighbour = allocate(9 * mebibyte, stream);
  Block* pending = allocate(9 * mebibyte, stream);
  const void* address = CachingAllocator::address(pending);
  record(pending, reader);
  StreamGate gate(reader);
  free(pending);
  gate.open_soon();
  Block* block = allocate(9 * mebibyte, stream);
  EXPECT_EQ(CachingAllocator::address(block), address) << "from the cache, as the device has nothing to give";
  for (Block* used : {filler, neighbour, block}) free(used);
}

TEST_F(FullMemory, FreesForOtherThreadsWhileOneWaits) {
  const Stream stream(0);
  const Stream reader(0);
  Block* pending = allocate(40 * mebibyte, stream);
  Block* other = allocate(4096, stream);
  record(pending, reader);
  // The reader gets on only after another block was freed, from the reader's own thread, while the allocator
  // waits.
  virtual_devices::launch(reader, "frees a block", {}, [other](std::span<void* const>) { free(other); });
  free(pending);
  free(allocate(60 * mebibyte, stream));
  EXPECT_EQ(memory_allocated(0), 0U);
}

TEST_F(FullMemory, SucceedsAtTheLastAttemptAndNotLater) {
  const Stream stream(0);
  refuse(2);  // at first, and after the return of cached segments
  free(allocate(12 * mebibyte, stream));
  EXPECT_EQ(memory_stats(0).num_alloc_retries, 1);
  empty_cache();

  refuse(3);
  EXPECT_TRUE(fails(12 * mebibyte, stream));
  EXPECT_EQ(memory_stats(0).num_alloc_retries, 2);
  EXPECT_EQ(memory_stats(0).num_ooms, 1);
  virtual_devices::clear_faults();
  free(allocate(12 * mebibyte, stream));
}

TEST_F(FullMemory, ReportsTheDevicesFigures) {
  const Stream stream(0);
  Block* block = allocate(50 * mebibyte, stream);
  try {
    free(allocate(20 * mebibyte, stream));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.figures().requested, 20 * mebibyte);
    EXPECT_EQ(error.figures().free, 14 * mebibyte);
    EXPECT_EQ(error.figures().total, 64 * mebibyte);
    EXPECT_EQ(error.figures().reserved, 50 * mebibyte);
    EXPECT_EQ(error.figures().allocated, 50 * mebibyte);
    EXPECT_NE(std::string(error.what()).find("requested 20.00 MiB, free 14.00 MiB of 64.00 MiB"),
              std::string::npos)
        << error.what();
  }
  free(block);
}

TEST_F(FullMemory, PassesOnFailuresOfWorkItHasToWaitFor) {
  const Stream stream(0);
  free(allocate(40 * mebibyte, stream));
  virtual_devices::launch(stream, "fails", {},
                          [](std::span<void* const>) { throw std::runtime_error("broken"); });
  EXPECT_TRUE(refuses([&] { static_cast<void>(allocate(60 * mebibyte, stream)); }, ErrorCode::device_failure,
                      {"broken"}));
  free(allocate(60 * mebibyte, stream));
}

TEST_F(FullMemory, LeavesOtherDevicesAlone) {
  CachingAllocator& other = Runtime::get().part<Allocators>().of(1);
  const Stream other_stream(1);
  Block* used = other.allocate(20 * mebibyte, StreamAccess::ref(other_stream));
  other.free(other.allocate(30 * mebibyte, StreamAccess::ref(other_stream)));
  const Stream stream(0);
  free(allocate(40 * mebibyte, stream));
  free(allocate(60 * mebibyte, stream));  // after the return of what was cached there
  EXPECT_TRUE(fails(70 * mebibyte, stream));
  EXPECT_EQ(memory_stats(0).num_device_free, 2);
  EXPECT_EQ(memory_reserved(1), 50 * mebibyte) << "what the other device has cached stays";
  EXPECT_EQ(memory_allocated(1), 20 * mebibyte);
  EXPECT_EQ(memory_stats(1).num_device_free, 0);
  EXPECT_EQ(memory_stats(1).num_alloc_retries, 0);
  EXPECT_EQ(memory_stats(1).num_ooms, 0);
  other.free(used);
}

class FullPinnedMemory : public FullMemory {
 protected:
  static PinnedAllocator& pinned() { return Runtime::get().part<PinnedAllocator>(); }
  static void refuse_pinned(std::uint64_t count) {
    virtual_devices::inject(
        {.operation = Operation::allocate_pinned, .kind = FaultKind::fail, .count = count});
  }
};

TEST_F(FullPinnedMemory, ReturnsCachedBlocksAndAsksAgain) {
  pinned().free(pinned().allocate(8192));
  refuse_pinned(1);
  PinnedBlock* block = pinned().allocate(100000);
  EXPECT_EQ(pinned().bytes_reserved(), pinned().bytes_active());
  pinned().free(block);
}

TEST_F(FullPinnedMemory, WaitsForBlocksThatStreamsStillUse) {
  const Stream reader(0);
  PinnedBlock* pending = pinned().allocate(100000);
  const void* address = PinnedAllocator::address(pending);
  pinned().record_stream(pending, StreamAccess::ref(reader));
  StreamGate gate(reader);
  pinned().free(pending);
  gate.open_soon();
  refuse_pinned(2);
  PinnedBlock* block = pinned().allocate(100000);
  EXPECT_EQ(PinnedAllocator::address(block), address);
  pinned().free(block);
}

TEST_F(FullPinnedMemory, IsReportedWhenNothingHelps) {
  refuse_pinned(3);
  EXPECT_TRUE(refuses([&] { static_cast<void>(pinned().allocate(1 << 20)); }, ErrorCode::out_of_memory,
                      {"out of pinned host memory", "requested 1.00 MiB"}));
  virtual_devices::clear_faults();
  pinned().free(pinned().allocate(1 << 20));
}

TEST_F(FullMemory, CollectsWhatIsCachedAboveAThreshold) {
  Runtime& runtime = Runtime::get();
  CachingAllocator collecting(runtime.backend(), runtime.part<EventPool>(), 0, nullptr,
                              {.garbage_collection_threshold = 0.7});  // of 64 MiB: 44.8
  const backend::StreamRef stream = StreamAccess::ref(Stream(0));
  Block* const oldest = collecting.allocate(12 * mebibyte, stream);
  Block* const older = collecting.allocate(14 * mebibyte, stream);
  Block* const used = collecting.allocate(16 * mebibyte, stream);
  collecting.free(oldest);
  collecting.free(older);
  EXPECT_EQ(collecting.stats().reserved_bytes.all.current, static_cast<std::int64_t>(42 * mebibyte));
  Block* const more = collecting.allocate(18 * mebibyte, stream);
  EXPECT_EQ(collecting.stats().num_alloc_retries, 0) << "the device has refused nothing";
  EXPECT_EQ(collecting.stats().reserved_bytes.all.current, static_cast<std::int64_t>(34 * mebibyte));
  collecting.free(more);
  collecting.free(used);
  EXPECT_TRUE(books_balance(collecting.stats(), collecting.snapshot()));

  set_sync_debug_mode(SyncDebugMode::error);
  EXPECT_TRUE(refuses([&] { static_cast<void>(collecting.allocate(22 * mebibyte, stream)); },
                      ErrorCode::unsupported, {"an allocation that collects what is cached"}));
  set_sync_debug_mode(SyncDebugMode::none);
  const Stream captured(0);
  const Graph graph = Graph::capture(captured, [&] {
    std::thread([&] { collecting.free(collecting.allocate(22 * mebibyte, stream)); }).join();
  });
  graph.launch(captured);  // the capture was not disturbed
  EXPECT_EQ(collecting.stats().reserved_bytes.all.current, static_cast<std::int64_t>(56 * mebibyte));
}

}  // namespace
}  // namespace tutti
