// SPDX-License-Identifier: Apache-2.0
#include "transport/team/registrations/registrations.hpp"

#include "device/runtime.hpp"
#include "os/shared_memory.hpp"
#include "ranks/memory/registering_rank.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/memory/process_resources.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "support/values/test_tensor.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/error.hpp"
#include "tutti/memory.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <chrono>
#include <cstdint>
#include <deque>
#include <vector>

#include <gmock/gmock.h>

/// Both ranks register: they are two processes.
namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;
using test::at_once;
using test::becomes_true;
using test::expect_all_right;
using test::free_memory;
using test::holds;
using test::open_descriptors;
using test::shared_mappings;
using test::time_of;
using testing::HasSubstr;

/// The ranks are two processes.
class Pair {
 public:
  explicit Pair(Exchange& exchange)
      : exchange_(exchange),
        memory_(memory_of_both(exchange)),
        rank_(memory_.data(), static_cast<std::size_t>(exchange.rank())) {
    synchronize(exchange);
  }

  [[nodiscard]] Rank& rank() { return rank_; }
  /// All ranks tell where the other has a tensor of theirs; where this one has the other's.
  [[nodiscard]] std::byte* swap_addresses(const Tensor& tensor) {
    std::byte* const address = tensor.defined() ? rank_.seen_by_other(tensor) : nullptr;
    return gather(exchange_, address)[static_cast<std::size_t>(1 - exchange_.rank())];
  }
  /// Copied by this rank's device.
  [[nodiscard]] Tensor copy_of(const std::byte* address, std::int64_t elements = count) const {
    return copy_on(exchange_.rank(), address, elements);
  }

 private:
  Exchange& exchange_;
  SharedMemory memory_;
  Rank rank_;
};

TEST(Registrations, ASegmentIsOpenedOnceForAllThatLiesInIt) {
  expect_all_right(2, [](Exchange& exchange) {
    Pair pair(exchange);
    const FullSegment mine(exchange.rank(), 10 * exchange.rank());
    for (std::uint64_t sequence = 1; sequence <= 3; ++sequence) {
      EXPECT_TRUE(pair.rank().expose(sequence, mine.first));
      EXPECT_TRUE(pair.rank().expose(sequence, mine.second));
    }
    EXPECT_EQ(pair.rank().used(), 1U);
    EXPECT_EQ(pair.rank().version(0), 1U);
    const int others = 10 * (1 - exchange.rank());
    const std::byte* const first = pair.swap_addresses(mine.first);
    const std::byte* const second = pair.swap_addresses(mine.second);
    EXPECT_TRUE(holds(pair.copy_of(first), others));
    EXPECT_TRUE(holds(pair.copy_of(second), others + 1));
    // It is the same memory, not a copy.
    synchronize(exchange);
    mine.first.fill_(77);
    tutti::synchronize(exchange.rank());
    synchronize(exchange);
    EXPECT_TRUE(holds(pair.copy_of(first), 77));
    synchronize(exchange);
  });
}

TEST(Registrations, WhatHasNotBeenUsedForLongestMakesRoom) {
  expect_all_right(2, [](Exchange& exchange) {
    Pair pair(exchange);
    Rank& rank = pair.rank();
    std::vector<FullSegment> segments;
    if (exchange.rank() == 0) {
      for (int i = 0; i < 6; ++i) segments.emplace_back(0, 10 * i);
      const auto expose = [&](std::uint64_t sequence, std::size_t segment) {
        EXPECT_TRUE(becomes_true([&] { return rank.expose(sequence, segments[segment].first); }));
      };
      const auto expect_versions = [&](const std::array<std::uint64_t, capacity>& versions) {
        for (std::size_t entry = 0; entry < capacity; ++entry)
          EXPECT_EQ(rank.version(entry), versions[entry]);
      };
      for (std::uint64_t i = 0; i < 3; ++i) expose(i + 1, i);
      expect_versions({1, 1, 1, 0});  // what would be closed has not been completed
      rank.complete(1);
      expose(4, 3);
      expect_versions({2, 1, 1, 1});
      rank.complete(2);
      expose(5, 4);
      expect_versions({3, 2, 1, 1});
      expose(6, 2);
      rank.complete(5);
      expose(7, 5);
      expect_versions({4, 3, 1, 2});
      EXPECT_EQ(rank.used(), capacity);
    }
    for (const std::size_t open : {2U, 5U}) {
      const std::byte* const address =
          pair.swap_addresses(exchange.rank() == 0 ? segments[open].second : Tensor());
      if (exchange.rank() == 1) {
        EXPECT_TRUE(holds(pair.copy_of(address), static_cast<int>(10 * open + 1)));
      }
    }
    synchronize(exchange);
  });
}

TEST(Registrations, HundredsOfSegmentsLeaveNothingOpen) {
  expect_all_right(2, [](Exchange& exchange) {
    const int device = exchange.rank();
    const bool is_owner = device == 0;
    std::deque<FullSegment> segments(1, FullSegment(device, 0));
    EXPECT_TRUE(holds(segments.back().first, 0));  // what the library opens once
    Pair pair(exchange);
    segments.clear();
    empty_cache();
    const std::size_t descriptors = open_descriptors();
    const std::size_t mappings = shared_mappings();
    const std::size_t free = free_memory(device);
    synchronize(exchange);  // nothing has been given yet
    pair.rank().complete(always);
    constexpr std::size_t kept = capacity + 2;
    // By which others may ask for what is given, from the first on.
    constexpr std::size_t sockets = 3;
    constexpr int rounds = 300;
    for (int round = 1; round <= rounds; ++round) {
      if (is_owner) {
        segments.emplace_back(device, round);
        EXPECT_TRUE(becomes_true(
            [&] { return pair.rank().expose(static_cast<std::uint64_t>(round), segments.back().second); }));
        // Some are freed while the other has them open, some afterwards.
        if (segments.size() > kept || round % 7 == 0) segments.pop_front();
        if (round % 5 == 0) segments.erase(segments.end() - 2);
        empty_cache();
      }
      const std::byte* const address = pair.swap_addresses(is_owner ? segments.back().second : Tensor());
      if (is_owner) {
        EXPECT_LE(open_descriptors(), descriptors + kept + sockets);
      } else {
        EXPECT_TRUE(holds(pair.copy_of(address, 1000), round + 1));
        empty_cache();
        EXPECT_EQ(open_descriptors(), descriptors);
        EXPECT_LE(shared_mappings(), mappings + capacity);
      }
      synchronize(exchange);
    }
    segments.clear();
    empty_cache();
    EXPECT_EQ(free_memory(device), free);
    EXPECT_EQ(open_descriptors(), descriptors);
    synchronize(exchange);
    EXPECT_EQ(shared_mappings(), mappings) << "nothing is left that would be open";
    if (!is_owner) return;
    EXPECT_LE(pair.rank().used(), capacity);
    std::uint64_t times = 0;
    for (std::size_t entry = 0; entry < capacity; ++entry) times += pair.rank().version(entry) / 2;
    EXPECT_EQ(times, std::uint64_t{rounds});
  });
}

TEST(Registrations, WhatCapturedCallsUseStaysOpen) {
  expect_all_right(2, [](Exchange& exchange) {
    Pair pair(exchange);
    if (exchange.rank() == 0) {
      Rank& rank = pair.rank();
      rank.complete(always);
      std::vector<FullSegment> segments;
      for (int i = 0; i < 5; ++i) segments.emplace_back(0, i);
      for (std::uint64_t i = 0; i < capacity; ++i) EXPECT_TRUE(rank.expose(i + 1, segments[i].first, true));
      EXPECT_TRUE(rank.expose(5, segments[1].first)) << "which other calls use, too";
      EXPECT_LT(time_of([&] { EXPECT_FALSE(rank.expose(6, segments[4].first)); }), at_once);
      EXPECT_THAT((*rank).refusal(), HasSubstr("segments open"));
      for (std::size_t entry = 0; entry < capacity; ++entry) EXPECT_EQ(rank.version(entry), 1U);
      segments.erase(segments.begin() + 2);
      empty_cache();
      EXPECT_TRUE(becomes_true([&] { return rank.expose(7, segments.back().first); }));
      EXPECT_EQ(rank.version(2), 3U);
    }
    synchronize(exchange);
  });
}

TEST(Registrations, RefuseWhatCannotBeGiven) {
  expect_all_right(2, [](Exchange& exchange) {
    Pair pair(exchange);
    if (exchange.rank() == 0) {
      Registrations& registrations = *pair.rank();
      const FullSegment segment(0, 1);
      backend::Backend& backend = Runtime::get().backend();
      auto* const of_the_user = static_cast<std::byte*>(backend.allocate_device(0, 1 << 20));
      const auto refusal_of = [&](const std::byte* address) {
        EXPECT_FALSE(registrations.add(1, 0, {address, 16}, false));
        return registrations.refusal();
      };
      EXPECT_THAT(refusal_of(of_the_user), HasSubstr("neither tutti's nor registered"));
      virtual_devices::inject({.operation = virtual_devices::Operation::share});
      EXPECT_THAT(refusal_of(address_of(segment.first)), HasSubstr("injected"));
      EXPECT_EQ(pair.rank().used(), 0U);
      EXPECT_EQ(pair.rank().version(0), 0U);
      EXPECT_TRUE(registrations.add(1, 0, {address_of(segment.first) + 1, 16}, false))
          << "processors read from anywhere";
      registrations.wait(1);
      EXPECT_EQ(registrations.find(of_the_user).seen_by(1), of_the_user);
      backend.free_device(0, of_the_user);
    }
    synchronize(exchange);
  });
}

TEST(Registrations, WhoCannotOpenMemorySaysWhy) {
  expect_all_right(2, [](Exchange& exchange) {
    Pair pair(exchange);
    if (exchange.rank() == 1)
      virtual_devices::inject({.operation = virtual_devices::Operation::open, .device = 1, .peer = 0});
    synchronize(exchange);
    if (exchange.rank() == 0) {
      const FullSegment segment(0, 1);
      EXPECT_TRUE(test::refuses([&] { pair.rank().expose(1, segment.first); }, ErrorCode::transport_failure,
                                {"rank 1 cannot open memory of rank 0", "device 1", "injected"}));
    }
    synchronize(exchange);
  });
}

TEST(Registrations, MemoryGoesBackWhenTheOtherHasClosedIt) {
  expect_all_right(2, [](Exchange& exchange) {
    Pair pair(exchange);
    const std::size_t mappings = shared_mappings();
    if (exchange.rank() == 0) {
      const std::size_t free = free_memory(0);
      {
        const FullSegment segment(0, 1);
        EXPECT_TRUE(pair.rank().expose(1, segment.first));
        EXPECT_LT(free_memory(0), free);
      }
      empty_cache();
      EXPECT_EQ(free_memory(0), free);
      EXPECT_EQ(pair.rank().version(0), 2U);
    }
    synchronize(exchange);
    EXPECT_EQ(shared_mappings(), mappings);
  });
}

/// After its end, nobody waits any more for those who still read.
TEST(Registrations, WhatAnEndedTeamHasOpenStaysOpenUntilItIsGone) {
  expect_all_right(2, [](Exchange& exchange) {
    const int device = exchange.rank();
    const std::size_t free = free_memory(device);
    {
      Pair pair(exchange);
      auto exposed = device == 0 ? std::make_unique<FullSegment>(0, 7) : nullptr;
      const auto later = device == 0 ? std::make_unique<FullSegment>(0, 9) : nullptr;
      if (exposed) {
        EXPECT_TRUE(pair.rank().expose(1, exposed->first));
      }
      const std::byte* const address = pair.swap_addresses(exposed ? exposed->first : Tensor());
      pair.rank().end_team();
      if (exposed) {
        exposed.reset();
        const std::size_t before = free_memory(0);
        EXPECT_LT(time_of([] { empty_cache(); }), at_once);
        EXPECT_EQ(free_memory(0), before);
        // Once the other has seen the next one, it has seen what became of this one.
        EXPECT_TRUE((*pair.rank()).add(2, 0, {address_of(later->first), 16}, false));
        const auto has_seen = [&](std::size_t entry) {
          return pair.rank().view_of_other(entry).version.load() == 1;
        };
        EXPECT_TRUE(becomes_true([&] { return has_seen(1); }));
        std::this_thread::sleep_for(10ms);
        EXPECT_TRUE(has_seen(0));
        EXPECT_EQ(pair.rank().version(0), 2U);
      }
      synchronize(exchange);
      if (device == 1) {
        EXPECT_TRUE(holds(pair.copy_of(address), 7));
      }
      synchronize(exchange);
    }
    synchronize(exchange);
    empty_cache();
    EXPECT_EQ(free_memory(device), free);
  });
}

}  // namespace
}  // namespace tutti::transport::team
