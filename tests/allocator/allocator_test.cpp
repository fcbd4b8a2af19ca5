// SPDX-License-Identifier: Apache-2.0
#include "allocator/caching_allocator.hpp"
#include "allocator/pinned_allocator.hpp"
#include "device/runtime.hpp"
#include "storage/storage.hpp"
#include "stream/stream_access.hpp"
#include "stream/streams.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/memory/allocator_fixture.hpp"
#include "support/memory/memory_books.hpp"
#include "support/stream_gate.hpp"
#include "support/timing.hpp"
#include "tutti/error.hpp"
#include "tutti/memory.hpp"

#include <atomic>
#include <barrier>
#include <cstddef>
#include <cstring>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::AllocatorTest;
using test::at_once;
using test::becomes_true;
using test::books_balance;
using test::refuses;
using test::StreamGate;
using test::time_of;

constexpr std::size_t mebibyte = std::size_t{1} << 20;

TEST_F(AllocatorTest, ReusesABlockOnItsOwnStreamAtOnce) {
  const Stream stream(0);
  StreamGate gate(stream);  // whatever is queued there has not run yet
  Block* first = allocate(3 * mebibyte, stream);
  const void* address = CachingAllocator::address(first);
  allocator().free(first);
  Block* second = allocate(3 * mebibyte, stream);
  EXPECT_EQ(CachingAllocator::address(second), address);
  allocator().free(second);
}

TEST_F(AllocatorTest, KeepsABlockFromOtherStreams) {
  const Stream stream(0);
  const Stream other(0);
  Block* first = allocate(3 * mebibyte, stream);
  const void* address = CachingAllocator::address(first);
  allocator().free(first);
  Block* second = allocate(3 * mebibyte, other);
  EXPECT_NE(CachingAllocator::address(second), address);
  allocator().free(second);
}

TEST_F(AllocatorTest, KeepsABlockUntilEveryRecordedStreamIsDoneWithIt) {
  const Stream stream(0);
  const Stream reader(0);
  const Stream writer(0);
  Block* first = allocate(11 * mebibyte, stream);
  const void* address = CachingAllocator::address(first);
  record(first, stream);  // needless, but harmless
  record(first, reader);
  record(first, writer);
  StreamGate reading(reader);
  StreamGate writing(writer);
  allocator().free(first);
  EXPECT_EQ(allocator().stats().active.all.current - allocator().stats().allocation.all.current, 1);

  const auto address_of_next = [&] {
    Block* next = allocate(11 * mebibyte, stream);
    const void* result = CachingAllocator::address(next);
    allocator().free(next);
    return result;
  };
  EXPECT_NE(address_of_next(), address);
  reading.open();
  reader.synchronize();
  EXPECT_NE(address_of_next(), address);
  writing.open();
  writer.synchronize();
  empty_cache();  // leaves nothing but what has just become free, if it did not go as well
  EXPECT_EQ(allocator().bytes_active(), 0U);
}

TEST_F(AllocatorTest, ReusesABlockWhenTheRecordedStreamIsDone) {
  const Stream stream(0);
  const Stream reader(0);
  Block* first = allocate(11 * mebibyte, stream);
  const void* address = CachingAllocator::address(first);
  record(first, reader);
  allocator().free(first);
  reader.synchronize();
  Block* second = allocate(11 * mebibyte, stream);
  EXPECT_EQ(CachingAllocator::address(second), address);
  allocator().free(second);
}

TEST_F(AllocatorTest, NeedsNoMoreMemoryForSmallBlocksThatOtherStreamsUsed) {
  const Stream stream(0);
  const Stream reader(0);
  const std::size_t reserved = memory_reserved(0);
  for (const std::size_t bytes : {std::size_t{1000}, mebibyte}) {
    for (int i = 0; i < 100; ++i) {
      Block* block = allocate(bytes, stream);
      record(block, reader);
      allocator().free(block);
      reader.synchronize();
    }
    EXPECT_EQ(memory_reserved(0), reserved + 2 * mebibyte) << "one segment is enough for " << bytes;
  }
}

TEST_F(AllocatorTest, GivesZeroBytesABlockOfTheirOwn) {
  const Stream stream(0);
  Block* first = allocate(0, stream);
  Block* second = allocate(0, stream);
  EXPECT_NE(CachingAllocator::address(first), nullptr);
  EXPECT_NE(CachingAllocator::address(first), CachingAllocator::address(second));
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(CachingAllocator::address(second)) % 512, 0U);
  allocator().free(first);
  allocator().free(second);
}

TEST_F(AllocatorTest, FindsBlocksByAddress) {
  Block* block = allocate(4096, Stream(0));
  EXPECT_EQ(allocator().find(CachingAllocator::address(block)), block);
  allocator().free(block);
  EXPECT_EQ(allocator().find(CachingAllocator::address(block)), nullptr);
}

TEST_F(AllocatorTest, ReturnsCachedSegmentsToTheDevice) {
  const Stream stream(0);
  const std::size_t reserved = memory_reserved(0);
  allocator().free(allocate(32 * mebibyte, stream));
  EXPECT_EQ(memory_reserved(0), reserved + 32 * mebibyte);
  StreamGate gate(stream);
  const test::StreamFlag done(stream);
  gate.open_soon();
  empty_cache();
  EXPECT_TRUE(done.is_set()) << "the stream's queue might still have used the memory";
  EXPECT_EQ(memory_reserved(0), reserved);
}

TEST_F(AllocatorTest, ReturnsSegmentsThatOtherStreamsStillUse) {
  const Stream stream(0);
  const Stream reader(0);
  const std::size_t reserved = memory_reserved(0);
  Block* const block = allocate(32 * mebibyte, stream);
  StreamGate gate(reader);
  allocator().record_stream(block, StreamAccess::ref(reader));
  allocator().free(block);
  gate.open_soon();
  empty_cache();
  EXPECT_EQ(memory_reserved(0), reserved);
}

/// Somebody who has a segment open, for as long as the test wants.
class HasOneSegmentOpen final : public SegmentObserver {
 public:
  HasOneSegmentOpen(CachingAllocator& allocator, const void* segment)
      : allocator_(allocator), segment_(segment) {
    allocator_.add_observer(*this);
  }
  ~HasOneSegmentOpen() { allocator_.remove_observer(*this); }
  void will_free(const std::byte* address) noexcept override { was_told = was_told || address == segment_; }
  [[nodiscard]] Hold hold_on(const std::byte* address) noexcept override {
    return address == segment_ ? hold.load() : Hold::none;
  }

  std::atomic<Hold> hold = Hold::passing;
  std::atomic<bool> was_told = false;

 private:
  CachingAllocator& allocator_;
  const void* segment_;
};

TEST_F(AllocatorTest, GivesMemoryToOthersWhileItWaitsForAnObserver) {
  const Stream stream(0);
  const std::size_t free = mem_get_info(0).free;
  Block* block = allocate(32 * mebibyte, stream);
  HasOneSegmentOpen observer(allocator(), CachingAllocator::address(block));
  allocator().free(block);
  std::thread emptying([] { empty_cache(); });
  EXPECT_TRUE(becomes_true([&] { return observer.was_told.load(); }));
  // More than is cached: the device is asked. The observer lets go only afterwards.
  Block* other = allocate(64 * mebibyte, stream);
  const std::size_t free_beside_both = mem_get_info(0).free;
  observer.hold = SegmentObserver::Hold::none;
  emptying.join();
  EXPECT_EQ(free_beside_both, free - 96 * mebibyte) << "the segment was freed while it was open";
  EXPECT_EQ(mem_get_info(0).free, free - 64 * mebibyte);
  allocator().free(other);
}

TEST_F(AllocatorTest, KeepsWhatAnObserverHoldsForLongAndFreesItLater) {
  const Stream stream(0);
  const std::size_t free = mem_get_info(0).free;
  Block* block = allocate(32 * mebibyte, stream);
  HasOneSegmentOpen observer(allocator(), CachingAllocator::address(block));
  observer.hold = SegmentObserver::Hold::lasting;
  allocator().free(block);
  EXPECT_LT(time_of([] { empty_cache(); }), at_once);
  EXPECT_EQ(mem_get_info(0).free, free - 32 * mebibyte);
  observer.hold = SegmentObserver::Hold::none;
  empty_cache();
  EXPECT_EQ(mem_get_info(0).free, free);
}

TEST_F(AllocatorTest, ServesRequestsWithWhatItMayNotFree) {
  const Stream stream(0);
  const Stream elsewhere(0);
  const std::size_t free = mem_get_info(0).free;
  const std::size_t reserved = memory_reserved(0);
  const std::size_t free_beside = free - 36 * mebibyte;
  {
    Block* block = allocate(36 * mebibyte, stream);
    const void* const address = CachingAllocator::address(block);
    HasOneSegmentOpen observer(allocator(), address);
    observer.hold = SegmentObserver::Hold::lasting;
    for (const std::size_t request : {36 * mebibyte, 30 * mebibyte}) {
      allocator().free(block);
      empty_cache();
      EXPECT_EQ(memory_reserved(0), reserved) << "it is given up";
      EXPECT_EQ(mem_get_info(0).free, free_beside) << "but not free";
      allocator().free(allocate(1000, stream));  // of the other pool
      empty_cache();
      EXPECT_EQ(mem_get_info(0).free, free_beside);
      block = allocate(request, elsewhere);
      EXPECT_EQ(CachingAllocator::address(block), address);
      EXPECT_EQ(mem_get_info(0).free, free_beside);
      EXPECT_EQ(memory_reserved(0), reserved + 36 * mebibyte);
    }
    allocator().free(block);
    empty_cache();
    Block* const larger = allocate(38 * mebibyte, stream);
    EXPECT_NE(CachingAllocator::address(larger), address);
    EXPECT_TRUE(refuses([&] { static_cast<void>(allocate(2 * mem_get_info(0).total, stream)); },
                        ErrorCode::out_of_memory,
                        {"allocated 38.00 MiB, and 36.00 MiB that other ranks have not closed yet"}));
    allocator().free(larger);
  }
  empty_cache();
  EXPECT_EQ(mem_get_info(0).free, free);
}

TEST_F(AllocatorTest, DoesNotServeRequestsWithWhatItIsGivenToFree) {
  const Stream stream(0);
  auto* const memory = static_cast<std::byte*>(Runtime::get().backend().allocate_device(0, 32 * mebibyte));
  HasOneSegmentOpen observer(allocator(), memory);
  allocator().free_when_let_go({.address = memory, .bytes = 32 * mebibyte});
  Block* const block = allocate(32 * mebibyte, stream);
  EXPECT_NE(CachingAllocator::address(block), memory) << "others may still write there";
  allocator().free(block);
}

TEST_F(AllocatorTest, FreesWhatItIsGivenOnceNobodyHoldsIt) {
  const std::size_t free = mem_get_info(0).free;
  for (const bool empties : {false, true}) {
    auto* const memory = static_cast<std::byte*>(Runtime::get().backend().allocate_device(0, 32 * mebibyte));
    HasOneSegmentOpen observer(allocator(), memory);
    allocator().free_when_let_go({.address = memory, .bytes = 32 * mebibyte});
    EXPECT_LT(time_of([] { allocator().free_let_go(); }), at_once) << "though it may be let go of soon";
    EXPECT_EQ(mem_get_info(0).free, free - 32 * mebibyte);
    observer.hold = SegmentObserver::Hold::none;
    if (empties) {
      empty_cache();
    } else {
      allocator().free_let_go();
    }
    EXPECT_EQ(mem_get_info(0).free, free);
  }
}

TEST_F(AllocatorTest, RefusesMoreThanTheDeviceHasAndGoesOn) {
  const Stream stream(0);
  const std::int64_t ooms = memory_stats(0).num_ooms;
  const std::size_t total = mem_get_info(0).total;
  Block* held = allocate(mebibyte, stream);
  try {
    static_cast<void>(allocate(2 * total, stream));
    ADD_FAILURE() << "nothing was thrown";
  } catch (const OutOfMemoryError& error) {
    EXPECT_EQ(error.code(), ErrorCode::out_of_memory);
    EXPECT_EQ(error.figures().requested, 2 * total);
    EXPECT_EQ(error.figures().total, total);
    EXPECT_LE(error.figures().free, total);
    EXPECT_EQ(error.figures().reserved, memory_reserved(0));
    EXPECT_EQ(error.figures().allocated, memory_allocated(0));
    const std::string message = error.what();
    for (const char* part :
         {"out of memory on device 0", "requested", "free", "reserved", "allocated 1.00 MiB", "Free tensors"})
      EXPECT_NE(message.find(part), std::string::npos) << part << " is missing in: " << message;
    EXPECT_EQ(message.find("TUTTI_VIRTUAL_MEMORY") != std::string::npos, backend_kind() == BackendKind::host)
        << message;
  }
  EXPECT_EQ(memory_stats(0).num_ooms, ooms + 1);
  EXPECT_TRUE(refuses([&] { static_cast<void>(allocate(std::numeric_limits<std::size_t>::max(), stream)); },
                      ErrorCode::out_of_memory, {"out of memory on device 0"}));
  allocator().free(allocate(mebibyte, stream));
  allocator().free(held);
}

TEST_F(AllocatorTest, CountsWhatTensorsHold) {
  reset_peak_memory_stats(0);
  const std::size_t allocated = memory_allocated(0);
  EXPECT_EQ(max_memory_allocated(0), allocated);
  Runtime& runtime = Runtime::get();
  {
    const auto storage = DeviceStorage::allocate(runtime, 0, 1000, StreamAccess::ref(Stream(0)));
    EXPECT_EQ(storage->bytes(), 1000U);
    EXPECT_EQ(storage->device(), Device(0));
    EXPECT_EQ(memory_allocated(0), allocated + 1024);
    EXPECT_EQ(memory_allocated(), memory_allocated(0));
    bool listed = false;
    for (const MemorySegment& segment : memory_snapshot()) {
      for (const MemoryBlock& block : segment.blocks) {
        listed = listed || (segment.device == 0 && block.address == storage->data() &&
                            block.requested_bytes == 1000 && block.state == BlockState::in_use);
      }
    }
    EXPECT_TRUE(listed);
  }
  EXPECT_EQ(memory_allocated(0), allocated);
  EXPECT_EQ(max_memory_allocated(0), allocated + 1024);
  EXPECT_GE(max_memory_reserved(0), memory_reserved(0));
  reset_peak_memory_stats(0);
  EXPECT_EQ(max_memory_allocated(0), allocated);
}

TEST_F(AllocatorTest, NamesTheFunctionWhenTheDeviceIsUnknown) {
  const int count = device_count();
  EXPECT_TRUE(refuses([&] { static_cast<void>(memory_stats(count)); }, ErrorCode::invalid_argument,
                      {"memory_stats"}));
  EXPECT_TRUE(refuses([&] { reset_peak_memory_stats(count); }, ErrorCode::invalid_argument,
                      {"reset_peak_memory_stats"}));
  EXPECT_TRUE(refuses([&] { static_cast<void>(memory_allocated(count)); }, ErrorCode::invalid_argument,
                      {"memory_allocated"}));
}

TEST_F(AllocatorTest, ServesStreamsOfOtherDevices) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices, found " << device_count();
  const Stream elsewhere(0);
  CachingAllocator& of_one = allocator(1);
  Block* first = of_one.allocate(3 * mebibyte, StreamAccess::ref(elsewhere));
  const void* address = CachingAllocator::address(first);
  of_one.record_stream(first, StreamAccess::ref(Stream(1)));
  of_one.free(first);
  of_one.finish_pending();
  Block* second = of_one.allocate(3 * mebibyte, StreamAccess::ref(elsewhere));
  EXPECT_EQ(CachingAllocator::address(second), address);
  of_one.free(second);
  of_one.empty_cache();
  EXPECT_TRUE(books_balance(of_one.stats(), of_one.snapshot()));
}

/// Threads that write a pattern into each block on one stream, read it on another, and give the block up at
/// once. A block reused too early would be overwritten before it was read.
TEST_F(AllocatorTest, KeepsBlocksApartAndItsBooksUnderManyThreads) {
  constexpr int threads = 4;
  constexpr int rounds = 4;
  const auto steps = static_cast<std::size_t>(test::scaled(200));
  constexpr std::size_t checked_bytes = 64;
  Runtime& runtime = Runtime::get();
  backend::Backend& backend = runtime.backend();
  CachingAllocator& shared = allocator();
  std::atomic<std::size_t> wrong = 0;

  std::barrier all_idle(threads,
                        [&]() noexcept { EXPECT_TRUE(books_balance(shared.stats(), shared.snapshot())); });
  const auto work = [&](int thread) {
    std::mt19937_64 random(test::test_seed() + static_cast<std::uint64_t>(thread));
    const Stream writer(0);
    const Stream reader(0);
    const backend::StreamRef write = StreamAccess::ref(writer);
    const backend::StreamRef read = StreamAccess::ref(reader);
    PinnedBlock* results = runtime.part<PinnedAllocator>().allocate(steps * checked_bytes);
    auto* bytes = static_cast<std::byte*>(PinnedAllocator::address(results));
    for (int round = 0; round < rounds; ++round) {
      for (std::size_t step = 0; step < steps; ++step) {
        const std::size_t size = checked_bytes + random() % (random() % 8 == 0 ? 3 * mebibyte : 16384);
        Block* block = shared.allocate(size, write);
        auto* address = static_cast<std::byte*>(CachingAllocator::address(block));
        backend::Fill fill{.target = address, .count = checked_bytes};
        fill.value[0] = static_cast<std::byte>(step);
        backend.fill(write, fill);
        runtime.part<Streams>().order(write, read);
        backend.copy(read,
                     {.target = bytes + step * checked_bytes, .source = address, .row_bytes = checked_bytes});
        shared.record_stream(block, read);
        shared.free(block);
      }
      reader.synchronize();
      for (std::size_t i = 0; i < steps * checked_bytes; ++i) {
        if (bytes[i] != static_cast<std::byte>(i / checked_bytes)) ++wrong;
      }
      if (thread == 0) shared.empty_cache();
      all_idle.arrive_and_wait();
    }
    runtime.part<PinnedAllocator>().free(results);
  };
  std::vector<std::thread> workers;
  for (int thread = 0; thread < threads; ++thread) workers.emplace_back(work, thread);
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace tutti
