// SPDX-License-Identifier: Apache-2.0
#include "transport/team/lateness/failure_detector.hpp"

#include "os/shared_memory.hpp"
#include "support/errors.hpp"
#include "support/machines/rank_components.hpp"
#include "support/timing.hpp"
#include "transport/team/lateness/waiting.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// Who is late, and what becomes of waits for them. Rank 0 judges; the others only leave their traces.
namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;
using test::mentions;
using test::RankComponents;
using test::refuses;

class ThreeRanks : public testing::Test {
 protected:
  static constexpr Signature barrier{};

  explicit ThreeRanks(std::chrono::milliseconds timeout = 30s)
      : components_(memory_.data(), RankComponents::alike(3), 0, timeout) {
    components_.activate_all();
  }
  /// The rank has made the call, as its own log would have it.
  void make_call(std::size_t rank, std::uint64_t sequence) {
    RankStatus& status = components_.state.status(rank);
    status.entries[sequence % RankStatus::history].write(sequence, barrier, false, RankStatus::now());
    status.last_sequence = sequence;
  }
  void complete(std::size_t rank, std::uint32_t sequence) {
    backend::set_flag(components_.state.done_flag(rank), sequence);
  }
  [[nodiscard]] std::string who_is_late(const std::vector<std::size_t>& missing = {}) {
    return components_.failure_detector.who_is_late(1, missing);
  }

  SharedMemory memory_{SharedState::bytes(RankComponents::shape_of(RankComponents::alike(3)))};
  RankComponents components_;
};

TEST_F(ThreeRanks, WhoHasNotMadeTheCallIsLate) {
  make_call(0, 1);
  make_call(2, 1);
  EXPECT_EQ(who_is_late(), "rank 1 has not made it, its last call is nothing yet");
}

TEST_F(ThreeRanks, ElseWhoHasNotCompletedIt) {
  for (std::size_t rank = 0; rank < 3; ++rank) make_call(rank, 1);
  complete(2, 1);
  EXPECT_EQ(who_is_late(), "rank 1 has made it and not completed it") << "before the one that judges";
  complete(1, 1);
  EXPECT_EQ(who_is_late(), "rank 0 has made it and not completed it");
  EXPECT_EQ(who_is_late({2}), "rank 2 has made it and not completed it") << "which is known to be missing";
  complete(0, 1);
  EXPECT_EQ(who_is_late(), "it completes just now");
}

TEST_F(ThreeRanks, AWaitForARankThatHasLeftEndsAtOnce) {
  make_call(0, 1);
  make_call(1, 1);
  components_.state.status(2).state = RankStatus::left;
  const auto wait = [&] {
    components_.waiting.wait_for_ranks(1, [&] { return components_.state.ranks_behind(1); });
  };
  EXPECT_LT(test::time_of([&] {
              EXPECT_TRUE(refuses(wait, ErrorCode::peer_unavailable,
                                  {"rank 2 has left", "rank 0 waits for it in barrier (#1)"}));
            }),
            test::at_once);
}

TEST_F(ThreeRanks, AWaitEndsWithTheTeam) {
  std::thread ends([&] {
    std::this_thread::sleep_for(5ms);
    components_.abort.set(ErrorCode::aborted, "enough");
  });
  EXPECT_TRUE(refuses([&] { components_.waiting.wait_for(1, [] { return false; }); }, ErrorCode::aborted,
                      {"enough"}));
  ends.join();
}

class ThreeHastyRanks : public ThreeRanks {
 protected:
  ThreeHastyRanks() : ThreeRanks(hasty_timeout) {}
  static inline const std::chrono::milliseconds hasty_timeout = test::patient(400ms);
};

TEST_F(ThreeHastyRanks, AWaitThatTakesTooLongNamesWhoIsMissing) {
  for (std::size_t rank = 0; rank < 3; ++rank) make_call(rank, 1);
  components_.let_all_live();
  const auto wait = [&] {
    components_.waiting.wait_for_ranks(1, [] { return std::vector<std::size_t>{2}; });
  };
  EXPECT_TRUE(refuses(wait, ErrorCode::timeout,
                      {"barrier (#1) did not finish within", "rank 2 has made it and not completed it"}));
  EXPECT_TRUE(mentions(components_.record.json(),
                       {"tutti-flight-record/1", "\"written_by\":0", "barrier", "did not finish within"}));
}

TEST_F(ThreeHastyRanks, WhoseProcessStandsStillIsNamedBeforeThoseThatWait) {
  for (std::size_t rank = 0; rank < 3; ++rank) make_call(rank, 1);
  std::this_thread::sleep_for(hasty_timeout / 2 + 20ms);
  for (const std::size_t rank : {0U, 2U}) components_.let_live(rank);
  EXPECT_TRUE(components_.failure_detector.standstill(1).has_value());
  EXPECT_FALSE(components_.failure_detector.standstill(2).has_value());
  const std::string late = who_is_late();
  EXPECT_TRUE(mentions(late, {"rank 1 has made it and not completed it, and its process has done nothing"}));
  EXPECT_FALSE(mentions(late, {"rank 0"}) || mentions(late, {"rank 2"})) << late;
}

TEST_F(ThreeHastyRanks, ARankThatLivesIsGivenAsLongAsACallIsPatient) {
  make_call(0, 1);
  make_call(2, 1);
  components_.let_all_live();
  const std::vector<std::size_t> unknown;
  const auto limit_after = [&](std::chrono::milliseconds lasted, std::chrono::milliseconds patience) {
    return components_.failure_detector.limit_of(
        {.sequence = 1, .lasted = lasted, .patience = patience, .missing = &unknown});
  };
  EXPECT_EQ(limit_after(9 * hasty_timeout, 10 * hasty_timeout), std::nullopt);
  EXPECT_EQ(limit_after(11 * hasty_timeout, 10 * hasty_timeout), 10 * hasty_timeout);
  EXPECT_EQ(limit_after(hasty_timeout / 2, hasty_timeout / 4), hasty_timeout / 4);
}

TEST_F(ThreeHastyRanks, ARankThatGivesNoSignIsWaitedForUntilTheTimeoutIfItIsWaitedForAtAll) {
  make_call(0, 1);
  make_call(1, 1);
  std::this_thread::sleep_for(hasty_timeout + 20ms);
  for (const std::size_t rank : {0U, 2U}) components_.let_live(rank);
  EXPECT_TRUE(components_.failure_detector.gives_no_sign(1));
  EXPECT_FALSE(components_.failure_detector.gives_no_sign(2));
  const std::vector<std::size_t> unknown;
  const std::vector<std::size_t> second{2};
  const auto limit_after = [&](std::chrono::milliseconds lasted, const std::vector<std::size_t>& missing) {
    return components_.failure_detector.limit_of(
        {.sequence = 1, .lasted = lasted, .patience = 10 * hasty_timeout, .missing = &missing});
  };
  EXPECT_EQ(limit_after(hasty_timeout / 2, unknown), std::nullopt) << "the wait has just begun";
  EXPECT_EQ(limit_after(2 * hasty_timeout, unknown), hasty_timeout);
  EXPECT_EQ(limit_after(2 * hasty_timeout, second), std::nullopt);
  complete(1, 1);
  EXPECT_EQ(limit_after(2 * hasty_timeout, unknown), std::nullopt) << "its part is done";
}

}  // namespace
}  // namespace tutti::transport::team
