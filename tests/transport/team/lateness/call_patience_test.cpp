// SPDX-License-Identifier: Apache-2.0
#include "transport/team/lateness/call_patience.hpp"

#include "tutti/patience.hpp"

#include <chrono>
#include <cstdint>
#include <thread>

#include <gtest/gtest.h>

/// How long calls wait for ranks that are late, by what the thread said that made them.
namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;

TEST(CallPatience, IsTheUsualOneWithoutAGuard) {
  CallPatience patience(10s);
  patience.begin(1);
  EXPECT_EQ(patience.of(1), 10s);
  EXPECT_EQ(patience.of_calling_thread(), 10s);
  EXPECT_EQ(patience.longest(), 10s);
}

TEST(CallPatience, IsThatOfTheGuardUnderWhichACallIsMadeAndStaysSo) {
  CallPatience patience(10s);
  {
    const PatienceGuard guard(1h);
    patience.begin(1);
    EXPECT_EQ(patience.of_calling_thread(), 1h);
  }
  patience.begin(2);
  EXPECT_EQ(patience.of(1), 1h);
  EXPECT_EQ(patience.of(2), 10s);
  EXPECT_EQ(patience.longest(), 1h);
}

TEST(CallPatience, AnotherThreadsGuardDoesNotCount) {
  CallPatience patience(10s);
  const PatienceGuard guard(1h);
  std::thread([&] { patience.begin(1); }).join();
  EXPECT_EQ(patience.of(1), 10s);
}

TEST(CallPatience, OfImpatientCallsTheUsualOneIsTheLongest) {
  CallPatience patience(10s);
  const PatienceGuard guard(5ms);
  for (std::uint64_t call = 1; call <= RankStatus::history; ++call) patience.begin(call);
  EXPECT_EQ(patience.of(1), 5ms);
  EXPECT_EQ(patience.longest(), 10s);
}

TEST(CallPatience, IsForgottenWithTheCallsThatStatusesForget) {
  CallPatience patience(10s);
  {
    const PatienceGuard guard(1h);
    patience.begin(1);
  }
  for (std::uint64_t call = 2; call <= RankStatus::history; ++call) patience.begin(call);
  EXPECT_EQ(patience.longest(), 1h) << "the first one is still among them";
  patience.begin(RankStatus::history + 1);
  EXPECT_EQ(patience.longest(), 10s);
}

}  // namespace
}  // namespace tutti::transport::team
