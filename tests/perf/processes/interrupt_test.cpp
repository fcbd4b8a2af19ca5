// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/interrupt.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

void hear(int first, int second, std::chrono::milliseconds later) {
  watch_interrupts();
  check_interrupt();
  std::raise(first);
  std::this_thread::sleep_for(later);
  std::raise(second);
  try {
    check_interrupt();
  } catch (const Interrupted&) {
    std::fputs("noted", stderr);
  }
  std::exit(time_since_interrupt() < later ? 1 : 0);
}

TEST(InterruptDeathTest, SignalsWithinASecondAreTheSameWish) {
  EXPECT_EXIT(hear(SIGTERM, SIGTERM, std::chrono::milliseconds(10)), testing::ExitedWithCode(0), "noted");
  EXPECT_EXIT(hear(SIGINT, SIGTERM, std::chrono::milliseconds(10)), testing::ExitedWithCode(0), "noted");
}

TEST(PerfOvertime, IsFoundByTheNextCheckUntilItIsForgotten) {
  EXPECT_FALSE(overtime());
  note_overtime("-T: too long");
  EXPECT_THROW(check_interrupt(), TimedOut);
  EXPECT_EQ(overtime()->message, "-T: too long");
  forget_overtime();
  EXPECT_NO_THROW(check_interrupt());
  EXPECT_FALSE(overtime());
}

TEST(InterruptDeathTest, ALaterSignalEndsTheProcess) {
  EXPECT_EXIT(hear(SIGINT, SIGINT, std::chrono::milliseconds(1100)), testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace tutti::perf
