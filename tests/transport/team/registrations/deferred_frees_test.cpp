// SPDX-License-Identifier: Apache-2.0
#include "transport/team/registrations/deferred_frees.hpp"

#include "allocator/allocators.hpp"
#include "device/runtime.hpp"
#include "os/shared_memory.hpp"
#include "support/environment.hpp"
#include "support/machines/rank_components.hpp"
#include "tutti/memory.hpp"
#include "tutti/tensor.hpp"

#include <array>
#include <cstddef>
#include <limits>
#include <list>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// When memory is freed that a team of rank 0 has left; of rank 1 there are only the traces.
namespace tutti::transport::team {
namespace {

using test::free_memory;
using test::RankComponents;
using Hold = SegmentObserver::Hold;

class LeftMemory : public testing::Test {
 protected:
  LeftMemory() : memory_(std::make_shared<SharedMemory>(SharedState::bytes(shape))) {
    for (const std::size_t rank : {0U, 1U}) state_.status(rank).state = RankStatus::leaving;
    left_.push_back({.memory = memory_,
                     .statuses = state_.statuses(),
                     .processes = std::vector<PeerProcess>(2),
                     .segments = std::make_shared<RetiredSegments>(tables_),
                     .windows = {}});
  }
  /// A window on device 0.
  [[nodiscard]] Windows::Allocated allocate_window() {
    return {0, static_cast<std::byte*>(runtime_.part<Allocators>().of(0).allocate_uncached(window_bytes))};
  }
  /// The team leaves these windows, and what it has retired.
  void take(const std::vector<Windows::Allocated>& windows) {
    left_.front().windows = windows;
    state_.status(0).state = RankStatus::left;
    frees_.take(std::move(left_), windows, window_bytes);
  }
  void sweep() { frees_.sweep(std::array{0}); }
  void let_other_leave() { state_.status(1).state = RankStatus::left; }
  [[nodiscard]] bool is_kept() const { return memory_.use_count() > 1; }

  static constexpr std::size_t window_bytes = std::size_t{1} << 20U;
  static inline const SharedState::Shape shape = RankComponents::shape_of(RankComponents::alike(2));

  Runtime& runtime_ = Runtime::get();
  const std::shared_ptr<SharedMemory> memory_;
  const SharedState state_{memory_->data(), shape};
  const RankComponents::Ranks ranks_ = RankComponents::alike(2);
  const RegistrationTables tables_ = state_.registration_tables(Membership(0, ranks_, {0}));
  std::list<DeferredFrees::Left> left_;
  DeferredFrees frees_{runtime_};
};

TEST_F(LeftMemory, WindowsAreFreedOnceTheOthersHaveLeft) {
  const std::size_t free = free_memory(0);
  const Windows::Allocated window = allocate_window();
  const std::size_t less = free_memory(0);
  EXPECT_LT(less, free);
  take({window});
  EXPECT_EQ(frees_.hold_on(window.address), Hold::lasting);
  sweep();
  EXPECT_EQ(free_memory(0), less);
  EXPECT_TRUE(is_kept());
  let_other_leave();
  sweep();
  EXPECT_EQ(free_memory(0), free);
  EXPECT_FALSE(is_kept()) << "nor is the memory in which they say so";
}

TEST_F(LeftMemory, AProcessThatIsGoneHasLeft) {
  const std::size_t free = free_memory(0);
  left_.front().processes[1] = PeerProcess(std::numeric_limits<pid_t>::max());  // nobody has that number
  take({allocate_window()});
  sweep();
  EXPECT_EQ(free_memory(0), free);
}

TEST_F(LeftMemory, EmptyingTheCacheFreesWindowsToo) {
  const std::size_t free = free_memory(0);
  take({allocate_window()});
  EXPECT_LT(free_memory(0), free);
  let_other_leave();
  empty_cache();
  EXPECT_EQ(free_memory(0), free);
}

TEST_F(LeftMemory, SegmentsAreFreedOnceTheOthersHaveClosedThem) {
  empty_cache();
  const std::size_t free = free_memory(0);
  {
    const Tensor tensor = empty({std::int64_t{32} << 20U}, {.dtype = DType::int8, .device = 0});
    const auto extent = runtime_.part<Allocators>().of(0).segment_of(tensor.data());
    RegisteredSegments registered;
    registered.emplace(extent.address, RegisteredSegment{.bytes = extent.bytes, .entry = 0});
    left_.front().segments->add(registered.extract(registered.begin()));
  }
  tables_.own().entries[0].version = 2;
  tables_.views_of(0, 0)[1].version = 1;
  take({});
  empty_cache();
  EXPECT_LT(free_memory(0), free);
  tables_.views_of(0, 0)[1].version = 2;
  empty_cache();
  EXPECT_EQ(free_memory(0), free);
  EXPECT_TRUE(is_kept()) << "the other may retire more";
}

TEST_F(LeftMemory, NothingIsHeldThatNoTeamHasLeft) {
  const Windows::Allocated window = allocate_window();
  EXPECT_EQ(frees_.hold_on(window.address), Hold::none);
  take({});
  EXPECT_EQ(frees_.hold_on(window.address), Hold::none);
  let_other_leave();
  EXPECT_EQ(frees_.hold_on(window.address), Hold::none);
  EXPECT_FALSE(is_kept());
  runtime_.backend().free_device(window.device, window.address);
}

}  // namespace
}  // namespace tutti::transport::team
