// SPDX-License-Identifier: Apache-2.0
#include "backend/yielding.hpp"

#include <atomic>
#include <chrono>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>

/// When threads that look again and again go to sleep instead.
namespace tutti::backend {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

/// This thread, and those that it starts, share one processor.
class OneProcessor : public testing::Test {
 protected:
  OneProcessor() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(sched_getcpu(), &one);
    is_set_ = sched_setaffinity(0, sizeof one, &one) == 0;
  }
  ~OneProcessor() override { sched_setaffinity(0, sizeof before_, &before_); }
  void SetUp() override {
    if (!is_set_) GTEST_SKIP() << "threads cannot be bound to a processor here";
  }

 private:
  cpu_set_t before_{};
  bool is_set_ = false;
};

TEST_F(OneProcessor, IsTimeToSleepBesideAThreadThatNeverEnds) {
  std::atomic<bool> is_over{false};
  std::thread busy([&] {
    while (!is_over) {
    }
  });
  bool has_yielded = true;
  const auto deadline = Clock::now() + std::chrono::seconds(20);
  while (has_yielded && Clock::now() < deadline) has_yielded = yield_unless_crowded();
  EXPECT_FALSE(has_yielded);
  EXPECT_FALSE(yield_unless_crowded()) << "right after";
  is_over = true;
  busy.join();
}

TEST_F(OneProcessor, IsNoTimeToSleepBesideAThreadThatWorksForAMillisecond) {
  // In a thread that has seen nothing yet.
  std::thread waiting([] {
    const auto begin = Clock::now();
    for (int round = 0; round < 5; ++round) {
      std::thread brief([] {
        const auto end = Clock::now() + milliseconds(1);
        while (Clock::now() < end) {
        }
      });
      const bool has_yielded = yield_unless_crowded();
      const auto passed = Clock::now() - begin;
      brief.join();
      if (passed > milliseconds(10)) return;  // something else runs here
      EXPECT_TRUE(has_yielded) << "round " << round;
    }
  });
  waiting.join();
}

}  // namespace
}  // namespace tutti::backend
