// SPDX-License-Identifier: Apache-2.0
#include "transport/team/departure.hpp"

#include "os/shared_memory.hpp"
#include "support/environment.hpp"
#include "support/machines/rank_components.hpp"
#include "support/timing.hpp"
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
using test::RankComponents;

class SoleRank final : public Exchange {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::ranges::copy(mine, all.begin());
  }
};

class DepartingRank : public testing::Test {
 protected:
  DepartingRank() {
    components_.activate_all();
    components_.let_live(1);
  }
  [[nodiscard]] RankStatus& other() { return components_.state.status(1); }
  /// A call that rank 0 has completed, and rank 1 has not made.
  void make_call() {
    static_cast<void>(components_.calls.post(Signature{}, false));
    components_.complete(1);
  }
  void let_other_make_the_call_and_leave() {
    other().last_sequence = 1;
    backend::set_flag(components_.state.done_flag(1), 1);
    other().state = RankStatus::left;
  }
  /// How long rank 0 takes to leave, with windows on its device or on its host.
  [[nodiscard]] auto time_to_leave(TransportKind transport, std::chrono::milliseconds patience) {
    SoleRank sole;
    Windows windows(components_.runtime, sole, layout(), alone_, {.transport = transport});
    EXPECT_EQ(windows.transport(), transport);
    return test::time_of([&] { departure_.leave(patience, windows, nullptr, nullptr); });
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
  SharedMemory memory_{SharedState::bytes(RankComponents::shape_of(RankComponents::alike(2)))};
  RankComponents components_{memory_.data(), RankComponents::alike(2), 0, timeout};

 private:
  const RankComponents::Ranks one_ = RankComponents::alike(1);
  const Membership alone_{0, one_, {0}};
  std::vector<PeerProcess> processes_ = std::vector<PeerProcess>(2);
  Departure departure_{components_.runtime,
                       components_.membership,
                       components_.state,
                       components_.progress,
                       components_.failure_detector,
                       components_.calls,
                       components_.abort,
                       components_.news,
                       processes_};
};

TEST_F(DepartingRank, WaitsForNobodyWhoReadsNothingOfIts) {
  make_call();
  EXPECT_LT(time_to_leave(TransportKind::staged, 60s), test::at_once);
  EXPECT_EQ(components_.status().state.load(), RankStatus::left);
}

TEST_F(DepartingRank, WaitsForARankThatIsLateWithItsCalls) {
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

TEST_F(DepartingRank, DoesNotWaitLongForOneThatGivesNoSignOfLife) {
  make_call();
  other().watched_at = 1;
  EXPECT_LT(time_to_leave(TransportKind::p2p, 60s), 30s);
}

TEST_F(DepartingRank, DoesNotWaitLongForOneThatOnlyDoesNotLeave) {
  make_call();
  other().last_sequence = 1;
  backend::set_flag(components_.state.done_flag(1), 1);
  EXPECT_LT(time_to_leave(TransportKind::p2p, 60s), 30s);
}

}  // namespace
}  // namespace tutti::transport::team
