// SPDX-License-Identifier: Apache-2.0
#include "os/shared_memory.hpp"
#include "support/environment.hpp"
#include "support/machines/rank_rooms.hpp"
#include "support/timing.hpp"
#include "transport/team/leaving.hpp"
#include "tutti/exchange.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// For whom a rank waits that leaves, and how long. Rank 0 leaves; of rank 1 there are only the traces.
namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;
using test::RankRooms;

class SoleRank final : public Exchange {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::ranges::copy(mine, all.begin());
  }
};

class LeavingRank : public testing::Test {
 protected:
  LeavingRank() {
    rooms_.activate_all();
    rooms_.let_live(1);
  }
  [[nodiscard]] RankStatus& other() { return rooms_.state.status(1); }
  /// A call that rank 0 has completed, and rank 1 has not made.
  void make_call() {
    static_cast<void>(rooms_.calls.post(Signature{}, false));
    rooms_.complete(1);
  }
  void let_other_make_the_call_and_leave() {
    other().last_sequence = 1;
    backend::set_flag(rooms_.state.done_flag(1), 1);
    other().state = RankStatus::left;
  }
  /// How long rank 0 takes to leave, with windows on its device or on its host.
  [[nodiscard]] auto time_to_leave(TransportKind transport, std::chrono::milliseconds patience) {
    SoleRank sole;
    Windows windows(rooms_.runtime, sole, layout(), alone_, {.transport = transport});
    EXPECT_EQ(windows.transport(), transport);
    return test::time_of([&] { leaving_.leave(patience, windows, nullptr, nullptr); });
  }

  static inline const std::chrono::milliseconds timeout = test::patient(200ms);

 private:
  static backend::TeamWindowLayout layout() {
    backend::TeamWindowLayout layout;
    layout.members = 1;
    layout.slot_bytes = backend::TeamWindowLayout::alignment;
    return layout;
  }

 protected:
  SharedMemory memory_{SharedState::bytes(RankRooms::shape_of(RankRooms::alike(2)))};
  RankRooms rooms_{memory_.data(), RankRooms::alike(2), 0, timeout};

 private:
  const RankRooms::Ranks one_ = RankRooms::alike(1);
  const Membership alone_{0, one_, {0}};
  std::vector<PeerProcess> processes_ = std::vector<PeerProcess>(2);
  Leaving leaving_{rooms_.runtime, rooms_.membership, rooms_.state, rooms_.progress, rooms_.judgement,
                   rooms_.calls,   rooms_.abort,      rooms_.news,  processes_};
};

TEST_F(LeavingRank, WaitsForNobodyWhoReadsNothingOfIts) {
  make_call();
  EXPECT_LT(time_to_leave(TransportKind::staged, 60s), test::at_once);
  EXPECT_EQ(rooms_.status().state.load(), RankStatus::left);
}

TEST_F(LeavingRank, WaitsForARankThatIsLateWithItsCalls) {
  make_call();
  std::thread other_rank([this] {
    std::this_thread::sleep_for(4 * timeout);
    let_other_make_the_call_and_leave();
  });
  const auto time = time_to_leave(TransportKind::p2p, 60s);
  other_rank.join();
  EXPECT_GE(time, 3 * timeout);
  EXPECT_LT(time, 30s);
}

TEST_F(LeavingRank, DoesNotWaitLongForOneThatGivesNoSignOfLife) {
  make_call();
  other().watched_at = 1;
  EXPECT_LT(time_to_leave(TransportKind::p2p, 60s), 30s);
}

TEST_F(LeavingRank, DoesNotWaitLongForOneThatOnlyDoesNotLeave) {
  make_call();
  other().last_sequence = 1;
  backend::set_flag(rooms_.state.done_flag(1), 1);
  EXPECT_LT(time_to_leave(TransportKind::p2p, 60s), 30s);
}

}  // namespace
}  // namespace tutti::transport::team
