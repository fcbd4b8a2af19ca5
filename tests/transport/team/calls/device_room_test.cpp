// SPDX-License-Identifier: Apache-2.0
#include "transport/team/calls/device_room.hpp"

#include "support/environment.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <random>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::transport::team {
namespace {

constexpr std::uint32_t multiprocessors = 132;
constexpr std::uint32_t room_of_all = multiprocessors * backend::team_blocks_per_multiprocessor;
constexpr std::uint32_t most = backend::most_team_blocks;
constexpr std::uint32_t few = DeviceRoom::uncounted_blocks;

/// The part of each of so many teams, if they and one more have even ones.
constexpr std::uint32_t even_part(std::uint32_t teams) {
  return room_of_all / (teams + 1);
}

int questions = 0;  ///< whether kernels are over

/// A team whose kernels end when the test says so.
class PretendedTeam {
 public:
  explicit PretendedTeam(DeviceRoom& room) : room_(room) {
    room_.add(this, [this] { return [this, announced = announced_] { return ended_ >= announced; }; });
  }
  PretendedTeam(const PretendedTeam&) = delete;
  PretendedTeam& operator=(const PretendedTeam&) = delete;
  ~PretendedTeam() { room_.remove(this); }

  /// Takes room for kernels that have work for so many blocks, and returns how many they have.
  std::uint32_t take(std::uint32_t wanted) {
    kernels_.push_back({});
    ++announced_;
    const DeviceRoom::Part part = room_.take(this, false, [wanted] { return wanted; });
    is_counted_ = part.is_counted;
    kernels_.back().blocks = std::min(wanted, part.blocks);
    return kernels_.back().blocks;
  }
  /// Queues the kernels for which it has taken room last.
  void queue() {
    const auto is_over = kernels_.back().is_over;
    if (!is_counted_) return;
    room_.note_end(this, [is_over] {
      ++questions;
      return is_over->load();
    });
  }
  std::uint32_t call(std::uint32_t wanted) {
    const std::uint32_t blocks = take(wanted);
    queue();
    return blocks;
  }
  /// Captures a call. Returns the blocks of its kernels, of which as many may overlap as need no more.
  std::uint32_t capture(std::uint32_t wanted) {
    const std::uint32_t blocks = std::min(wanted, room_.take(this, true, [wanted] { return wanted; }).blocks);
    captured_ = std::max(captured_, blocks);
    return blocks;
  }
  void end_oldest() {
    if (kernels_.empty()) return;
    kernels_.front().is_over->store(true);
    kernels_.pop_front();
    ++ended_;
  }
  void end_all() {
    while (!kernels_.empty()) end_oldest();
  }
  /// Returns the blocks of the largest kernel that runs, or will: they run one after another.
  [[nodiscard]] std::uint32_t largest_kernel() const {
    std::uint32_t largest = captured_;
    for (const Kernel& kernel : kernels_) largest = std::max(largest, kernel.blocks);
    return largest;
  }

 private:
  struct Kernel {
    std::uint32_t blocks = 0;
    std::shared_ptr<std::atomic<bool>> is_over = std::make_shared<std::atomic<bool>>(false);
  };

  DeviceRoom& room_;
  std::deque<Kernel> kernels_;
  int announced_ = 0;
  int ended_ = 0;
  std::uint32_t captured_ = 0;
  bool is_counted_ = false;
};

class RoomOfTeams : public testing::Test {
 protected:
  void add(std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) teams_.push_back(std::make_unique<PretendedTeam>(room_));
  }
  /// Has one team make large calls, one after the other, until those of others are forgotten. Returns how
  /// many blocks the last one has.
  std::uint32_t call_alone(PretendedTeam& team) const {
    for (std::size_t call = 0; call < 5 * teams_.size(); ++call) {
      team.end_all();
      team.call(most);
    }
    return team.largest_kernel();
  }
  [[nodiscard]] PretendedTeam& team(std::size_t index) { return *teams_[index]; }
  [[nodiscard]] std::uint32_t held() const {
    std::uint32_t sum = 0;
    for (const auto& team : teams_) sum += team->largest_kernel();
    return sum;
  }

  DeviceRoom room_{multiprocessors};
  std::vector<std::unique_ptr<PretendedTeam>> teams_;
};

TEST_F(RoomOfTeams, IsEnoughForThreeAndAFewBlocksOfAnother) {
  add(3);
  for (const auto& team : teams_) EXPECT_EQ(team->call(most), most);
  add(1);
  EXPECT_EQ(team(3).call(most), few);
  EXPECT_LE(held(), room_of_all);
}

TEST_F(RoomOfTeams, IsLeftByThoseWhoseKernelsAreOver) {
  add(8);
  for (const auto& team : teams_) {
    EXPECT_GE(team->call(most), even_part(8));
    team->end_all();
  }
  EXPECT_EQ(call_alone(team(0)), most);
  EXPECT_EQ(team(1).call(most), room_of_all - most - 7 * (even_part(8) / 2)) << "beside what is kept";
  EXPECT_EQ(team(2).call(5), 5U);
  EXPECT_GE(team(3).call(most), even_part(8) / 2);
  EXPECT_LE(held(), room_of_all);
  team(0).end_all();
  team(1).end_all();
  team(3).end_all();
  EXPECT_EQ(call_alone(team(4)), most) << "in their place";
  EXPECT_LE(held(), room_of_all);
}

/// All find even parts though there was a moment when all were idle.
TEST_F(RoomOfTeams, IsDividedEvenlyAmongThoseThatWantedMoreNotLongAgo) {
  add(8);
  for (int burst = 0; burst < 3; ++burst) {
    for (const auto& team : teams_) {
      const std::uint32_t blocks = team->call(most);
      if (burst > 0) {
        EXPECT_GE(blocks, even_part(8));
      }
    }
    for (const auto& team : teams_) team->end_all();
  }
}

TEST_F(RoomOfTeams, IsDividedFairlyAmongThoseThatAlwaysWantMore) {
  add(8);
  for (int call = 0; call < 6; ++call) {
    for (const auto& team : teams_) {
      EXPECT_GE(team->call(most), even_part(8) / 2);
      if (call > 0) team->end_oldest();  // there is always one that is not over
      EXPECT_LE(held(), room_of_all);
    }
  }
  for (const auto& team : teams_) {
    EXPECT_GE(team->call(most), even_part(8));
    team->end_oldest();
  }
}

/// The largest kernel that is not over counts, and not the largest of a time when there always was one.
TEST_F(RoomOfTeams, IsLeftByALargeKernelThatIsOverThoughSmallerOnesAreNot) {
  add(4);
  team(0).call(most);
  for (int call = 0; call < 10; ++call) {
    team(0).call(30);
    team(0).end_oldest();
    team(0).call(20);
    if (call != 0) team(0).end_oldest();
  }
  EXPECT_EQ(team(1).call(most), most);
  for (int call = 0; call < 3; ++call) team(2).call(most);
  EXPECT_EQ(team(2).call(most), most);
}

/// Each question takes the host a microsecond.
TEST_F(RoomOfTeams, AsksOneTeamForEachCallThatGetsLessThanItWants) {
  add(8);
  for (const auto& team : teams_) team->call(most);
  for (int call = 0; call < 3; ++call) {
    for (const auto& team : teams_) {
      questions = 0;
      team->call(most);
      EXPECT_EQ(questions, 1);
      questions = 0;
      team->call(few);
      EXPECT_EQ(questions, 0);
    }
  }
}

TEST_F(RoomOfTeams, AsksNobodyWhoHoldsOnlyWhatIsKeptAnyway) {
  add(8);
  for (const auto& team : teams_) EXPECT_GE(team->capture(most), even_part(8) / 2);
  for (const auto& team : teams_) team->call(few + 1);
  questions = 0;
  EXPECT_LT(team(0).call(most), most);
  EXPECT_EQ(questions, 0);
}

TEST_F(RoomOfTeams, LeavesTheRestOfSmallPartsToTheOthers) {
  add(6);
  for (std::size_t i = 3; i < 6; ++i) team(i).call(7);
  std::uint32_t blocks = 0;
  for (int call = 0; call < 6; ++call) {
    for (const std::size_t i : {0U, 1U, 2U}) {
      blocks = team(i).call(most);
      if (call > 0) team(i).end_oldest();
    }
  }
  EXPECT_EQ(blocks, (room_of_all - 4 * (even_part(6) / 2)) / 3);
}

TEST_F(RoomOfTeams, IsHeldByKernelsThatAreStillBeingQueued) {
  add(5);
  const std::uint32_t kept = even_part(5) / 2;
  EXPECT_EQ(team(0).take(most), most);
  EXPECT_EQ(team(1).call(most), most);
  EXPECT_EQ(team(2).call(most), room_of_all - 2 * most - 3 * kept);
  team(0).queue();
  team(0).end_all();
  EXPECT_EQ(team(3).call(most), (room_of_all - 2 * kept) / 4) << "three others wanted more";
}

/// Nobody tells the end of kernels whose call has failed while it was queued, or which were not counted.
TEST_F(RoomOfTeams, IsLeftByATeamThatIsIdle) {
  add(4);
  const std::uint32_t kept = even_part(4) / 2;
  EXPECT_EQ(team(0).take(most), most);
  team(0).end_all();
  EXPECT_EQ(team(1).call(most), most);
  EXPECT_EQ(team(2).call(most), (room_of_all - 2 * kept) / 3) << "two others wanted more";
  EXPECT_EQ(team(3).call(most), room_of_all - 2 * kept - held());
  teams_.clear();
  add(3);
  for (const auto& team : teams_) team->call(most);
  add(1);
  for (const std::size_t i : {0U, 1U}) team(i).end_all();
  EXPECT_EQ(team(3).call(most), most);
  EXPECT_LE(held(), room_of_all);
}

/// Of three busy ones nobody has counted what they had when a fourth came.
TEST_F(RoomOfTeams, IsLeftByTeamsThatHaveAlwaysSmallKernelsUnderWay) {
  add(3);
  for (const auto& team : teams_) team->call(few);
  add(1);
  EXPECT_EQ(team(3).call(most), few) << "the others' may have been large";
  for (std::size_t i = 0; i < 3; ++i) {
    team(i).call(few);
    team(i).end_oldest();
  }
  for (int call = 0; call < 2; ++call) EXPECT_GT(team(3).call(most), few);
  EXPECT_EQ(team(3).call(most), most);
}

TEST_F(RoomOfTeams, IsUsedAgainByWhoeverHasCapturedItForGood) {
  add(1);
  EXPECT_EQ(team(0).capture(most), most);
  add(7);
  for (std::size_t i = 1; i < 8; ++i) EXPECT_GE(team(i).capture(most), even_part(8) / 2);
  EXPECT_EQ(team(0).call(most), most);
  EXPECT_EQ(team(0).capture(most), most);
  EXPECT_LE(held(), room_of_all);
}

TEST_F(RoomOfTeams, IsKeptForWhatWasCapturedBeforeThereWereMore) {
  for (const bool is_large : {false, true}) {
    teams_.clear();
    std::uint32_t captured = 0;
    for (std::uint32_t i = 0; i < 3; ++i) {
      add(1);
      captured += team(i).capture(is_large ? most : 2);
      if (is_large && i < 2) {
        EXPECT_EQ(captured, (i + 1) * most);
      }
    }
    add(1);
    EXPECT_EQ(team(3).call(most), is_large ? even_part(4) / 2 : most);
    EXPECT_LE(held(), room_of_all);
    team(3).end_all();
    add(3);
    for (const std::size_t i : {3U, 4U, 5U}) EXPECT_EQ(team(i).call(few), few);
    const std::uint32_t blocks = team(6).call(most);
    if (is_large) {
      EXPECT_EQ(blocks, room_of_all - captured - 3 * few);
    } else {
      EXPECT_GT(blocks, most - few);
    }
    EXPECT_LE(held(), room_of_all);
  }
}

TEST_F(RoomOfTeams, IsHeldForGoodByWhatIsCaptured) {
  add(4);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(team(i).capture(most), even_part(4));
  EXPECT_EQ(team(3).call(most), room_of_all - 3 * even_part(4) - even_part(4) / 2);
  EXPECT_EQ(team(0).capture(most), even_part(4));
  EXPECT_LE(held(), room_of_all);
  teams_.erase(teams_.begin());
  EXPECT_EQ(team(2).call(most), most) << "three are few enough";
}

TEST_F(RoomOfTeams, HasAFewBlocksForEachOfMany) {
  add(room_of_all / few - 1);
  for (const auto& team : teams_) EXPECT_EQ(team->call(most), few);
  EXPECT_LE(held(), room_of_all);
}

TEST_F(RoomOfTeams, CountsOnlyThoseThatAreThere) {
  add(5);
  EXPECT_EQ(room_.count(), 5U);
  room_.remove(&team(4));
  room_.remove(&team(4));
  EXPECT_EQ(room_.count(), 4U);
  EXPECT_EQ(team(4).call(most), few) << "what has been ended waits for nothing";
}

/// Whatever comes, the kernels of all teams fit beside one another. Where teams come one after another, while
/// earlier kernels wait, a few blocks of each may find no room.
TEST_F(RoomOfTeams, FitsAllThatIsNotOver) {
  std::mt19937_64 random(test::test_seed());
  const auto below = [&](std::uint64_t limit) { return static_cast<std::uint32_t>(random() % limit); };
  for (int round = 0; round < 400; ++round) {
    teams_.clear();
    add(1 + below(12));
    const bool captures = round % 4 == 0;
    const bool changes = round % 2 == 0;
    std::uint32_t found_none = 0;
    for (int step = 0; step < 300; ++step) {
      PretendedTeam& team = *teams_[below(teams_.size())];
      const std::uint32_t wanted = below(3) == 0 ? most : 1 + below(most);
      const std::uint32_t before = held();
      std::uint32_t taken = most;
      switch (below(8)) {
        case 0:
        case 1:
          team.end_all();
          break;
        case 2:
          team.end_oldest();
          break;
        case 3:
          if (captures) taken = team.capture(wanted);
          break;
        case 4:
          if (changes && below(4) == 0 && teams_.size() < 16) add(1);
          break;
        case 5:
          if (changes && below(4) == 0 && teams_.size() > 1)
            teams_.erase(teams_.begin() + below(teams_.size()));
          break;
        default:
          taken = team.call(wanted);
      }
      EXPECT_GE(taken, 1U);
      if (held() > std::max(before, room_of_all)) {
        ASSERT_LE(taken, few);
        found_none += held() - std::max(before, room_of_all);
      }
      ASSERT_LE(held(), room_of_all + found_none) << teams_.size() << " teams";
      ASSERT_TRUE(changes || found_none == 0);
    }
  }
}

TEST(DeviceRoom, IsSharedByThreads) {
  constexpr int teams = 6;
  DeviceRoom room(multiprocessors);
  std::atomic<std::uint32_t> running = 0;
  std::atomic<int> ended = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < teams; ++i) {
    threads.emplace_back([&, i] {
      std::atomic<bool> is_idle = true;
      std::shared_ptr<std::atomic<bool>> is_over;
      room.add(&is_idle, [&is_idle] { return [&is_idle] { return is_idle.load(); }; });
      while (room.count() < teams) std::this_thread::yield();
      for (int call = 0; call < 1000; ++call) {
        is_idle = false;
        const std::uint32_t wanted = i % 2 == 0 ? most : 20;
        const DeviceRoom::Part part = room.take(&is_idle, false, [wanted] { return wanted; });
        const std::uint32_t blocks = std::min(wanted, part.blocks);
        EXPECT_LE(running.fetch_add(blocks) + blocks, room_of_all);
        std::this_thread::yield();
        is_over = std::make_shared<std::atomic<bool>>(false);
        if (part.is_counted) room.note_end(&is_idle, [is_over] { return is_over->load(); });
        running.fetch_sub(blocks);
        is_over->store(true);
        is_idle = true;
      }
      ++ended;
      while (ended < teams) std::this_thread::yield();  // so that none is removed before
      room.remove(&is_idle);
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace tutti::transport::team
