// SPDX-License-Identifier: Apache-2.0
#include "allocator/allocators.hpp"
#include "allocator/blocks/shareable_memory.hpp"
#include "allocator/caching_allocator.hpp"
#include "device/runtime.hpp"
#include "settings/environment.hpp"
#include "stream/event_pool.hpp"
#include "stream/stream_access.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/machines/absent_backend.hpp"
#include "support/memory/memory_books.hpp"
#include "support/standard_error.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "tutti/memory.hpp"
#include "tutti/sharing.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Segments that are ranges of addresses, which get memory as it is needed.
namespace tutti::test {
namespace {

constexpr std::size_t range_mib = std::size_t{1} << 20;

class ExpandableSegments : public testing::Test {
 protected:
  void SetUp() override {
    if (runtime_.backend().page_bytes(0) == 0) GTEST_SKIP() << "the driver has no ranges of addresses";
  }
  void TearDown() override {
    EXPECT_TRUE(books_balance(allocator_.stats(), allocator_.snapshot()));
    for (Block* const block : blocks_) allocator_.free(block);
    allocator_.empty_cache();
    EXPECT_TRUE(allocator_.snapshot().empty());
    EXPECT_EQ(allocator_.stats().reserved_bytes.all.current, 0);
    EXPECT_TRUE(books_balance(allocator_.stats(), allocator_.snapshot()));
  }

  std::byte* take(std::size_t bytes) { return take(bytes, stream_); }
  std::byte* take(std::size_t bytes, const Stream& stream) {
    blocks_.push_back(allocator_.allocate(bytes, StreamAccess::ref(stream)));
    return static_cast<std::byte*>(CachingAllocator::address(blocks_.back()));
  }
  void give_back(const std::byte* address) {
    const auto block = std::ranges::find(blocks_, address, &CachingAllocator::address);
    ASSERT_NE(block, blocks_.end());
    allocator_.free(*block);
    blocks_.erase(block);
  }
  std::size_t reserved() { return static_cast<std::size_t>(allocator_.stats().reserved_bytes.all.current); }
  /// The memory holds what is written to it.
  void expect_usable(std::byte* address, std::size_t bytes) {
    const auto count = static_cast<std::int64_t>(bytes / sizeof(std::int32_t));
    const Tensor tensor(TensorView(address, DType::int32, {count}, Device(0)));
    const StreamGuard guard(stream_);
    tensor.fill_(7);
    const auto values = tensor.to_vector<std::int32_t>();
    EXPECT_EQ(std::ranges::count(values, 7), count);
  }

  Runtime& runtime_ = Runtime::get();
  const Stream stream_{0};
  std::vector<Block*> blocks_;
  CachingAllocator allocator_{
      runtime_.backend(), runtime_.part<EventPool>(), 0, nullptr, {.has_expandable_segments = true}};
};

TEST_F(ExpandableSegments, GrowWhereTheyEnd) {
  std::byte* const first = take(30 * range_mib);
  std::byte* const second = take(50 * range_mib);
  EXPECT_EQ(second, first + 30 * range_mib) << "the rest of 40 MiB, and 40 more";
  EXPECT_EQ(reserved(), 80 * range_mib);
  const std::vector<MemorySegment> segments = allocator_.snapshot();
  ASSERT_EQ(segments.size(), 1U);
  EXPECT_TRUE(segments.front().is_expandable);
  EXPECT_EQ(segments.front().bytes, 80 * range_mib);
  expect_usable(first, 80 * range_mib);
}

TEST_F(ExpandableSegments, ServeWithWhatWasFreedAndTheirEnd) {
  std::byte* const first = take(30 * range_mib);
  give_back(first);
  EXPECT_EQ(take(70 * range_mib), first) << "nothing was asked for but what was missing";
  EXPECT_EQ(reserved(), 80 * range_mib);
  expect_usable(first, 70 * range_mib);
}

TEST_F(ExpandableSegments, GiveBackPagesBetweenBlocksInUse) {
  std::byte* const first = take(30 * range_mib);
  std::byte* const middle = take(50 * range_mib);
  std::byte* const last = take(20 * range_mib);
  expect_usable(last, 20 * range_mib);
  give_back(middle);
  allocator_.empty_cache();
  // From 30 MiB to 80 MiB, the whole pages of 20 MiB are those from 40 MiB on.
  EXPECT_EQ(reserved(), 60 * range_mib);
  EXPECT_EQ(allocator_.snapshot().size(), 2U);
  EXPECT_TRUE(books_balance(allocator_.stats(), allocator_.snapshot()));
  EXPECT_EQ(allocator_.find(middle + 20 * range_mib), nullptr);
  expect_usable(last, 20 * range_mib);

  EXPECT_EQ(take(45 * range_mib), middle) << "what was left there and the hole serve again";
  EXPECT_EQ(allocator_.snapshot().size(), 1U);
  expect_usable(first, 75 * range_mib);
}

TEST_F(ExpandableSegments, AreOfOneStreamEach) {
  const Stream other(0);
  std::byte* const mine = take(range_mib / 2);
  std::byte* const others = take(range_mib / 2, other);
  give_back(mine);
  EXPECT_NE(take(range_mib / 2, other), mine);
  EXPECT_EQ(allocator_.snapshot().size(), 2U);
  give_back(others);
}

TEST_F(ExpandableSegments, KeepWhatIsCutOffTooShortForABlock) {
  // What would be left on either side of whole pages is shorter than blocks of the large pool may be.
  std::byte* const first = take(20 * range_mib + range_mib / 2);
  std::byte* const middle = take(79 * range_mib);
  std::byte* const last = take(10 * range_mib);
  give_back(middle);
  allocator_.empty_cache();
  EXPECT_TRUE(books_balance(allocator_.stats(), allocator_.snapshot()));
  EXPECT_NE(allocator_.find(first), nullptr);
  EXPECT_NE(allocator_.find(last), nullptr);
  expect_usable(first, 20 * range_mib);
  expect_usable(last, 10 * range_mib);
}

TEST_F(ExpandableSegments, BalanceWhateverIsTakenAndGivenBack) {
  std::mt19937_64 random(test_seed());
  const Stream other(0);
  const std::int64_t steps = scaled(2000);
  for (std::int64_t step = 0; step < steps; ++step) {
    const std::uint64_t kind = random() % 100;
    if (kind < 45 && blocks_.size() < 60) {
      const std::size_t bytes = random() % 4 == 0 ? random() % (24 * range_mib) : random() % range_mib;
      static_cast<void>(take(bytes, random() % 4 == 0 ? other : stream_));
    } else if (kind < 97) {
      if (!blocks_.empty())
        give_back(
            static_cast<const std::byte*>(CachingAllocator::address(blocks_[random() % blocks_.size()])));
    } else {
      allocator_.empty_cache();
    }
    const CachingAllocator::Books books = allocator_.books();
    ASSERT_TRUE(books_balance(books.stats, books.segments)) << "step " << step << ", seed " << test_seed();
  }
  for (Block* const block : blocks_) {
    auto* const address = static_cast<std::byte*>(CachingAllocator::address(block));
    EXPECT_EQ(allocator_.find(address), block);
    EXPECT_EQ(allocator_.find(address + block->bytes - 1), block);
  }
}

TEST_F(ExpandableSegments, GoBackWhereNoMoreMayBeReserved) {
  const auto total = static_cast<double>(runtime_.backend().memory_info(0).total);
  allocator_.set_memory_fraction(static_cast<double>(250 * range_mib) / total);
  std::byte* const first = take(80 * range_mib);
  std::byte* const middle = take(80 * range_mib);
  std::byte* const last = take(80 * range_mib);
  give_back(middle);
  const Stream other(0);
  // Another stream cannot be served from the middle, but by the memory that was there.
  std::byte* const others = take(60 * range_mib, other);
  EXPECT_EQ(allocator_.stats().num_alloc_retries, 1);
  EXPECT_EQ(reserved(), 220 * range_mib);
  for (std::byte* const address : {first, last, others}) expect_usable(address, 60 * range_mib);
  EXPECT_THROW(static_cast<void>(take(60 * range_mib, other)), OutOfMemoryError);
}

TEST_F(ExpandableSegments, LeaveWhatOthersAreToOpenToOrdinaryOnes) {
  const backend::StreamRef stream = StreamAccess::ref(stream_);
  static_cast<void>(take(range_mib));
  blocks_.push_back(allocator_.allocate(range_mib, stream, shareable(GraphPool::none)));
  blocks_.push_back(allocator_.allocate(range_mib / 4, stream, shareable(GraphPool::none)));
  const CachingAllocator::Extent ordinary = allocator_.segment_of(CachingAllocator::address(blocks_[1]));
  EXPECT_EQ(ordinary.origin, backend::MemoryOrigin::block);
  EXPECT_EQ(allocator_.segment_of(CachingAllocator::address(blocks_[2])).address, ordinary.address);
  EXPECT_EQ(allocator_.segment_of(CachingAllocator::address(blocks_[0])).origin,
            backend::MemoryOrigin::piece);
  EXPECT_EQ(allocator_.snapshot().size(), 2U);
  EXPECT_TRUE(std::ranges::all_of(allocator_.snapshot(), [](const auto& segment) {
    return segment.graph_pool == 0;
  })) << "the mark is nobody's business";

  allocator_.add_graph_pool(GraphPool{7});
  Block* const of_graph = allocator_.allocate(range_mib, stream, shareable(GraphPool{7}));
  allocator_.free(of_graph);
  allocator_.empty_cache();
  EXPECT_EQ(allocator_.snapshot().size(), 3U) << "a graph's, which stays until that is gone";
  allocator_.close_graph_pool(GraphPool{7}, GraphWork::done);
  blocks_.push_back(allocator_.allocate(range_mib, stream, shareable(GraphPool::none)));
  EXPECT_EQ(blocks_.back()->address, of_graph->address);
}

TEST_F(ExpandableSegments, AreOrdinaryOnesToCopies) {
  std::byte* const source = take(3 * range_mib);
  std::byte* const target = take(3 * range_mib);
  const auto view = [](std::byte* address) {
    return Tensor(TensorView(address, DType::float32, {1000}, Device(0)));
  };
  const StreamGuard guard(stream_);
  view(source).fill_(5);
  view(target).copy_(view(source));
  EXPECT_EQ(view(target).to_vector<float>().back(), 5.0F);
}

TEST(ExpandableRanges, AreWhatTensorsComeFromIfTheEnvironmentSaysSo) {
  Runtime& runtime = Runtime::get();
  const bool can_expand =
      Environment::get().allocators.has_expandable_segments && runtime.backend().page_bytes(0) != 0;
  const Stream stream(0);
  const StreamGuard guard(stream);
  const Tensor tensor = ones({1000}, {.device = Device(0)});
  const auto segments = runtime.part<Allocators>().of(0).snapshot();
  EXPECT_TRUE(std::ranges::all_of(
      segments, [&](const MemorySegment& segment) { return segment.is_expandable == can_expand; }));
  if (!can_expand) return;
  EXPECT_NE(memory_snapshot_json().find("\"is_expandable\":true"), std::string::npos);
  EXPECT_FALSE(SharedTensor(tensor).handle().empty()) << "other processes can open it";
}

TEST(ExpandableRanges, RefuseAccessWhereTheyHaveNoMemory) {
  if (backend_kind() != BackendKind::host) GTEST_SKIP() << "a GPU that reads there can be used no more";
  backend::Backend& backend = Runtime::get().backend();
  constexpr std::size_t bytes = 8 * range_mib;
  auto* const range = static_cast<std::byte*>(backend.reserve_addresses(0, bytes));
  ASSERT_NE(range, nullptr);
  const std::size_t free_before = backend.memory_info(0).free;
  ASSERT_TRUE(backend.map_pages(0, range, 2 * range_mib));
  ASSERT_TRUE(backend.map_pages(0, range + 2 * range_mib, 2 * range_mib));
  EXPECT_EQ(backend.memory_info(0).free, free_before - 4 * range_mib);
  const auto fill = [&](std::size_t offset, std::int64_t count) {
    Tensor(TensorView(range + offset, DType::uint8, {count}, Device(0))).fill_(1);
    synchronize(0);
  };
  fill(2 * range_mib - 10, 20);  // across pieces
  EXPECT_TRUE(refuses([&] { fill(4 * range_mib - 10, 20); }, ErrorCode::device_failure,
                      {"not all of them have memory"}));
  backend.unmap_pages(0, range, 4 * range_mib);
  EXPECT_EQ(backend.memory_info(0).free, free_before);
  EXPECT_TRUE(refuses([&] { fill(0, 1); }, ErrorCode::device_failure, {"not all of them have memory"}));
  backend.release_addresses(0, range, bytes);
  synchronize(0);
}

/// Two devices whose driver maps memory in pieces of some length, or not at all.
class CoarseBackend final : public AbsentBackend {
 public:
  explicit CoarseBackend(std::size_t page_bytes) : page_bytes_(page_bytes) {}

  std::size_t page_bytes(int) override { return page_bytes_; }
  void* allocate_device(int, std::size_t bytes) override { return std::malloc(bytes); }
  void free_device(int, void* address) noexcept override { std::free(address); }
  void synchronize_device(int) override {}
  bool is_capturing(StreamRef) override { return false; }

 private:
  const std::size_t page_bytes_;
};

/// What is written to standard error while tensors' memory of both devices is taken and given back.
std::string words_of_ordinary_segments(std::size_t page_bytes) {
  CoarseBackend backend(page_bytes);
  EventPool events(backend, backend.device_count());
  StandardError log;
  for (const int device : {0, 1}) {
    CachingAllocator allocator(backend, events, device, nullptr, {.has_expandable_segments = true});
    std::vector<Block*> blocks;
    for (const std::size_t bytes : {range_mib / 2, 3 * range_mib, 30 * range_mib})
      blocks.push_back(allocator.allocate(bytes, {.device = device}));
    const std::vector<MemorySegment> segments = allocator.snapshot();
    EXPECT_EQ(segments.size(), 3U);
    EXPECT_TRUE(
        std::ranges::none_of(segments, [](const MemorySegment& segment) { return segment.is_expandable; }));
    for (Block* const block : blocks) allocator.free(block);
    allocator.empty_cache();
    EXPECT_TRUE(allocator.snapshot().empty());
  }
  return log.end();
}

TEST(WithoutExpandableSegments, OrdinaryOnesServeAndAWarningSaysSoOnce) {
  static bool has_warned = false;  // of this process, also where tests are repeated
  const std::string words = words_of_ordinary_segments(0);
  if (std::exchange(has_warned, true)) {
    EXPECT_EQ(words, "");
  } else {
    EXPECT_TRUE(
        mentions(words, {"warning", "TUTTI_ALLOC_CONF", "device 0", "expandable_segments", "ordinary"}));
    EXPECT_EQ(std::ranges::count(words, '\n'), 1);
  }
  EXPECT_EQ(words_of_ordinary_segments(3 * range_mib), "") << "of which pages of 2 and 20 MiB cannot be made";
}

}  // namespace
}  // namespace tutti::test
