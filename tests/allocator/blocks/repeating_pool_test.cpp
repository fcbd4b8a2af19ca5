// SPDX-License-Identifier: Apache-2.0
#include "allocator/blocks/repeating_pool.hpp"

#include "support/environment.hpp"
#include "support/memory/block_pool_fixture.hpp"

#include <cstddef>
#include <cstdint>
#include <random>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::first_stream;
using test::mebibyte;
using test::other_stream;
using test::stream_of;

/// Everything that can be seen of a pool.
std::string text_of(const BlockPool& pool) {
  std::ostringstream text;
  const MemoryStats stats = pool.stats();
  for (const PooledCounter& counter :
       {stats.allocation, stats.segment, stats.active, stats.inactive_split, stats.allocated_bytes,
        stats.reserved_bytes, stats.active_bytes, stats.inactive_split_bytes, stats.requested_bytes}) {
    for (const MemoryCounter& figures : {counter.all, counter.small_pool, counter.large_pool}) {
      text << figures.current << ' ' << figures.peak << ' ' << figures.allocated << ' ' << figures.freed
           << "; ";
    }
    text << '\n';
  }
  text << stats.num_device_alloc << ' ' << stats.num_device_free << '\n';
  for (const MemorySegment& segment : pool.snapshot()) {
    text << segment.address << ' ' << segment.bytes << ' ' << segment.graph_pool << ':';
    for (const MemoryBlock& block : segment.blocks)
      text << ' ' << block.bytes << '/' << block.requested_bytes << '/' << static_cast<int>(block.state);
    text << '\n';
  }
  return text.str();
}

/// Does the same to a repeating pool and to a plain one, over addresses that are never touched.
class Twins {
 public:
  enum class Segments : std::uint8_t { ordinary, expandable };
  struct Taken {
    Block* plain = nullptr;
    Block* repeating = nullptr;
  };

  explicit Twins(Segments segments) : segments_(segments) {}

  Taken take(std::size_t bytes, backend::StreamRef of = first_stream,
             GraphPool graph_pool = GraphPool::none) {
    Taken taken{plain_.take(bytes, of, graph_pool), repeating_.take(bytes, of, graph_pool)};
    if (taken.plain == nullptr && taken.repeating == nullptr) {
      both([&](BlockPool& pool) { grow(pool, bytes, of, graph_pool); });
      next_address_ += range_bytes;
      taken = {plain_.take(bytes, of, graph_pool), repeating_.take(bytes, of, graph_pool)};
    }
    EXPECT_NE(taken.repeating, nullptr);
    EXPECT_EQ(taken.plain->address, taken.repeating->address);
    EXPECT_EQ(taken.plain->bytes, taken.repeating->bytes);
    return taken;
  }
  void free(Taken taken) {
    plain_.release(*taken.plain);
    plain_.give_back(*taken.plain);
    repeating_.free(*taken.repeating);
  }
  /// `times` times, in a row.
  void repeat(int times, std::size_t bytes, backend::StreamRef of = first_stream,
              GraphPool graph_pool = GraphPool::none) {
    for (int time = 0; time < times; ++time) free(take(bytes, of, graph_pool));
  }
  void release(Taken taken) {
    plain_.release(*taken.plain);
    repeating_->release(*taken.repeating);
  }
  void give_back(Taken taken) {
    plain_.give_back(*taken.plain);
    repeating_->give_back(*taken.repeating);
  }
  void remove_cached_before(BlockPool::Moment moment, std::size_t bytes) {
    both([&](BlockPool& pool) {
      static_cast<void>(pool.remove_segments_cached_before(moment, bytes));
      for (Block* const hole : pool.empty_pages_cached_before(moment, bytes))
        static_cast<void>(pool.close(*hole));
    });
  }
  template <class Call>
  void both(const Call& call) {
    call(plain_);
    call(*repeating_.operator->());
  }
  BlockPool::Moment now() {
    const BlockPool::Moment moment = plain_.now();
    EXPECT_EQ(repeating_->now(), moment);
    return moment;
  }
  void expect_alike() { EXPECT_EQ(text_of(*repeating_.operator->()), text_of(plain_)); }
  /// Without a look at the books.
  [[nodiscard]] RepeatingPool& repeating() noexcept { return repeating_; }

 private:
  static constexpr std::size_t range_bytes = 1024 * mebibyte;

  void grow(BlockPool& pool, std::size_t bytes, backend::StreamRef of, GraphPool graph_pool) const {
    auto* const address = reinterpret_cast<std::byte*>(next_address_);
    const MemoryPool size = BlockPool::pool_of(bytes);
    if (segments_ == Segments::ordinary)
      return pool.add_segment(address, BlockPool::segment_bytes(bytes), size, of, graph_pool);
    if (!pool.gap_for(bytes, of, graph_pool)) pool.add_range(address, range_bytes, size, of, graph_pool);
    pool.fill(pool.gap_for(bytes, of, graph_pool).value());
  }

  const Segments segments_;
  BlockPool plain_{0};
  RepeatingPool repeating_{0};
  std::uintptr_t next_address_ = std::uintptr_t{1} << 40;
};

class RepeatingPoolTest : public testing::TestWithParam<Twins::Segments> {
 protected:
  void TearDown() override { twins_.expect_alike(); }

  Twins twins_{GetParam()};
};

TEST_P(RepeatingPoolTest, CountsEveryRepeat) {
  for (int times = 1; times < 8; ++times) {
    twins_.repeat(times, 1000);
    twins_.expect_alike();
    twins_.repeat(times, 15 * mebibyte);
    const Twins::Taken in_use = twins_.take(15 * mebibyte);
    twins_.expect_alike();
    twins_.free(in_use);
    twins_.repeat(times, 15 * mebibyte, other_stream);
    twins_.repeat(times, 15 * mebibyte, first_stream, GraphPool{7});
  }
}

TEST_P(RepeatingPoolTest, JoinsAnIdleBlockOnlyWhenSomethingElseIsAskedFor) {
  const Twins::Taken neighbour = twins_.take(9 * mebibyte);
  twins_.repeat(5, 6 * mebibyte);
  const Twins::Taken again = twins_.take(6 * mebibyte);
  const Block* const rest = again.repeating->next;
  twins_.free(again);
  EXPECT_EQ(again.repeating->next, rest);
  EXPECT_EQ(BlockPool::find_start(*again.repeating->segment, again.repeating->address), nullptr)
      << "nobody has it";
  twins_.repeat(1, 9 * mebibyte);  // fits there once they are joined
  twins_.both([](BlockPool& pool) {
    if (GetParam() == Twins::Segments::ordinary) {
      EXPECT_EQ(pool.stats().segment.all.current, 1);
    }
  });
  twins_.free(neighbour);
}

TEST_P(RepeatingPoolTest, ForgetsWhoseABlockWas) {
  twins_.repeat(5, 4096);
  const Twins::Taken raw = twins_.take(4096);
  raw.repeating->is_raw = true;
  twins_.free(raw);
  const Twins::Taken next = twins_.take(4096);
  EXPECT_EQ(next.repeating, raw.repeating);
  EXPECT_FALSE(next.repeating->is_raw);
  twins_.free(next);
}

TEST_P(RepeatingPoolTest, ReachesThePeaksOfARepeatAgain) {
  static_cast<void>(twins_.take(4096));
  twins_.repeat(5, 8192);
  twins_.both([](BlockPool& pool) {
    pool.counts().reset_peaks();
    pool.counts().reset_accumulated();
  });
  twins_.repeat(5, 8192);
}

TEST_P(RepeatingPoolTest, GivesUpWhatWasRepeated) {
  twins_.repeat(5, 30 * mebibyte);
  const BlockPool::Moment before = twins_.now();
  twins_.repeat(5, 30 * mebibyte);
  twins_.remove_cached_before(before, SIZE_MAX);
  twins_.expect_alike();
  twins_.remove_cached_before(twins_.now(), SIZE_MAX);
  EXPECT_EQ(twins_.repeating()->stats().reserved_bytes.all.current, 0);
}

TEST_P(RepeatingPoolTest, IsToldFromAPlainPoolByNothing) {
  std::mt19937_64 random(test::test_seed());
  const auto below = [&random](std::uint64_t end) { return random() % end; };
  std::vector<Twins::Taken> in_use;
  std::vector<Twins::Taken> released;
  const auto pick = [&](std::vector<Twins::Taken>& list) {
    std::swap(list[below(list.size())], list.back());
    const Twins::Taken one = list.back();
    list.pop_back();
    return one;
  };
  BlockPool::Moment moment = twins_.now();
  for (std::int64_t step = test::scaled(5000); step > 0; --step) {
    const std::size_t bytes = below(4) == 0 ? 1 + below(30 * mebibyte) : 1 + below(65536);
    const backend::StreamRef of = stream_of(static_cast<int>(below(2)), 1 + below(2));
    const GraphPool graph_pool{below(4) == 0 ? 1U : 0U};
    switch (below(12)) {
      case 0:
      case 1:
      case 2:
        twins_.repeat(static_cast<int>(below(8)), bytes, of, graph_pool);
        if (below(2) == 0) in_use.push_back(twins_.take(bytes, of, graph_pool));
        break;
      case 3:
      case 4:
        in_use.push_back(twins_.take(bytes, of, graph_pool));
        break;
      case 5:
      case 6:
      case 7:
        if (!in_use.empty()) twins_.free(pick(in_use));
        break;
      case 8:
        if (!in_use.empty()) twins_.release(released.emplace_back(pick(in_use)));
        break;
      case 9:
        if (!released.empty()) twins_.give_back(pick(released));
        break;
      case 10:
        if (below(4) == 0) moment = twins_.now();
        if (below(4) == 0) twins_.remove_cached_before(moment, below(2) == 0 ? SIZE_MAX : 30 * mebibyte);
        if (below(20) == 0) twins_.both([](BlockPool& pool) { pool.dissolve(GraphPool{1}); });
        break;
      default:
        if (below(10) == 0) twins_.both([](BlockPool& pool) { pool.counts().reset_peaks(); });
        if (below(10) == 0) twins_.both([](BlockPool& pool) { pool.counts().reset_accumulated(); });
        twins_.expect_alike();
    }
    if (in_use.size() > 60) twins_.free(pick(in_use));
    if (HasFailure()) FAIL() << step << " steps before the end";
  }
}

INSTANTIATE_TEST_SUITE_P(All, RepeatingPoolTest,
                         testing::Values(Twins::Segments::ordinary, Twins::Segments::expandable),
                         [](const auto& instance) {
                           return instance.param == Twins::Segments::ordinary ? "ordinary" : "expandable";
                         });

}  // namespace
}  // namespace tutti
