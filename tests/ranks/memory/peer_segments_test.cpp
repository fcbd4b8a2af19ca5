// SPDX-License-Identifier: Apache-2.0
#include "transport/team/registrations/peer_segments.hpp"

#include "os/shared_memory.hpp"
#include "ranks/memory/registering_rank.hpp"
#include "support/memory/process_resources.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/stream.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include <gtest/gtest.h>

/// Rank 1 follows what rank 0 writes of its memory: rank 0 by itself, in place of registrations.
namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;
using test::becomes_true;
using test::expect_all_right;
using test::holds;
using test::RankComponents;
using test::shared_mappings;

class FollowingRank {
 public:
  explicit FollowingRank(std::byte* memory)
      : components_(memory, RankComponents::alike(2), 1, 30s, 1),
        segments_(std::make_unique<PeerSegments>(components_.runtime, components_.membership, tables_,
                                                 components_.calls, components_.abort,
                                                 components_.runtime.part<LiveTeams>())) {
    components_.runtime.part<LiveTeams>().add(components_.calls, components_.membership.devices());
  }
  FollowingRank(const FollowingRank&) = delete;
  FollowingRank& operator=(const FollowingRank&) = delete;
  ~FollowingRank() {
    components_.runtime.part<LiveTeams>().remove(components_.calls);
    segments_.reset();
  }

  /// As rank 0 would write it, if that does not.
  void write(std::uint32_t entry, std::uint64_t version, const backend::MemoryHandle& handle = {}) {
    RegistrationTable& others = tables_.registrations[0];
    others.entries[entry].handle = handle;
    others.entries[entry].version = version;
    others.used = entry + 1;
    backend::ring(tables_.own().bell);
  }
  /// What this rank has made of the entry.
  [[nodiscard]] RegistrationView& view(std::uint32_t entry) const { return tables_.views_of(0, entry)[1]; }
  [[nodiscard]] bool follows(std::uint32_t entry, std::uint64_t version) const {
    return becomes_true([&] { return view(entry).version.load() == version; });
  }
  [[nodiscard]] std::byte* address(std::uint32_t entry) const {
    return reinterpret_cast<std::byte*>(view(entry).address.load());  // NOLINT(performance-no-int-to-ptr)
  }
  [[nodiscard]] RegistrationTable& table() const { return tables_.own(); }
  [[nodiscard]] RankComponents& components() { return components_; }

 private:
  RankComponents components_;
  const RegistrationTables tables_ = components_.state.registration_tables(components_.membership);
  std::unique_ptr<PeerSegments> segments_;
};

/// Rank 0 has a segment full of `value`, and says that others should have it open, until they have done what
/// `follow` does on rank 1.
template <class Follow>
void expect_of_opened(int value, const Follow& follow) {
  expect_all_right(2, [&](Exchange& exchange) {
    const SharedMemory memory = memory_of_both(exchange);
    if (exchange.rank() == 0) {
      const FullSegment segment(0, value);
      const backend::MemoryHandle handle =
          Runtime::get().backend().share_device_memory(0, address_of(segment.first), Audience::anyone);
      static_cast<void>(gather(exchange, handle));
      synchronize(exchange);
    } else {
      static_cast<void>(holds(FullSegment(1, 0).first, 0));  // what the library opens once
      const std::size_t mappings = shared_mappings();
      const backend::MemoryHandle handle = gather(exchange, backend::MemoryHandle{})[0];
      {
        FollowingRank rank(memory.data());
        rank.write(0, 1, handle);
        EXPECT_TRUE(rank.follows(0, 1));
        EXPECT_TRUE(holds(copy_on(1, rank.address(0)), value));
        EXPECT_EQ(shared_mappings(), mappings + 1);
        tutti::synchronize(1);
        follow(rank);
      }
      EXPECT_EQ(shared_mappings(), mappings);
      synchronize(exchange);
    }
  });
}

TEST(PeerSegments, AreOpenForAsLongAsTheirOwnerSays) {
  expect_of_opened(7, [](FollowingRank& rank) {
    const std::size_t mappings = shared_mappings();
    rank.write(0, 2);
    EXPECT_TRUE(rank.follows(0, 2));
    EXPECT_EQ(shared_mappings(), mappings - 1);
    EXPECT_FALSE(rank.table().is_held_up.load());
  });
}

TEST(PeerSegments, AreClosedOnlyWhileNoCallIsUnderWay) {
  expect_of_opened(7, [](FollowingRank& rank) {
    static_cast<void>(rank.components().calls.post({.collective = Collective::barrier}, false));
    rank.write(0, 2);
    std::this_thread::sleep_for(20ms);
    EXPECT_EQ(rank.view(0).version.load(), 1U);
    EXPECT_TRUE(holds(copy_on(1, rank.address(0)), 7));
    EXPECT_TRUE(becomes_true([&] { return rank.table().is_held_up.load(); }))
        << "others need not wait for it";
    tutti::synchronize(1);
    rank.components().complete(1);
    EXPECT_TRUE(rank.follows(0, 2));
    EXPECT_TRUE(becomes_true([&] { return !rank.table().is_held_up.load(); }));
  });
}

TEST(PeerSegments, AreClosedWithTheTeamWhereCallsHaveBeenCaptured) {
  expect_of_opened(7, [](FollowingRank& rank) {
    static_cast<void>(rank.components().calls.post({.collective = Collective::barrier}, true));
    rank.components().complete(1);
    rank.write(0, 2);
    EXPECT_TRUE(becomes_true([&] { return rank.table().is_held_up.load(); }));
    EXPECT_EQ(rank.view(0).version.load(), 1U) << "nobody knows when graphs run";
  });
}

TEST(PeerSegments, WhatHasBeenTakenBackBeforeItWasOpenedIsPassedOver) {
  expect_all_right(1, [](Exchange&) {
    SharedMemory memory(bytes_of_two());
    FollowingRank rank(memory.data());
    rank.write(0, 2);
    EXPECT_TRUE(rank.follows(0, 2));
    EXPECT_EQ(rank.address(0), nullptr);
    EXPECT_EQ(rank.table().failure[0], '\0') << "the handle has not been looked at";
  });
}

TEST(PeerSegments, WhatCannotBeOpenedIsFollowedWithoutAnAddressAndTheReasonTold) {
  expect_all_right(1, [](Exchange&) {
    SharedMemory memory(bytes_of_two());
    FollowingRank rank(memory.data());
    rank.write(0, 1);
    EXPECT_TRUE(rank.follows(0, 1));
    EXPECT_EQ(rank.address(0), nullptr);
    EXPECT_NE(std::string(rank.table().failure.data()).find("the handle is not one of"), std::string::npos);
    rank.write(0, 2);
    EXPECT_TRUE(rank.follows(0, 2)) << "there is nothing to close";
    EXPECT_FALSE(rank.components().abort.is_set());
  });
}

}  // namespace
}  // namespace tutti::transport::team
