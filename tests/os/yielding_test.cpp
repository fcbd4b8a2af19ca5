// SPDX-License-Identifier: Apache-2.0
#include "os/yielding.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
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
    if (sched_getaffinity(0, sizeof before_, &before_) != 0) return;
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(sched_getcpu()), &one);
    is_set_ = sched_setaffinity(0, sizeof one, &one) == 0;
  }
  ~OneProcessor() override {
    if (is_set_) sched_setaffinity(0, sizeof before_, &before_);
  }
  void SetUp() override {
    if (!is_set_) GTEST_SKIP() << "threads cannot be bound to a processor here";
  }

 private:
  cpu_set_t before_{};
  bool is_set_ = false;
};

/// Runs `work` in a thread that has seen no long yields yet.
template <class Work>
void in_a_new_thread(Work work) {
  std::thread(work).join();
}

TEST_F(OneProcessor, IsTimeToSleepBesideAThreadThatNeverEnds) {
  in_a_new_thread([] {
    std::atomic<bool> is_over{false};
    std::thread busy([&] {
      while (!is_over) {
      }
    });
    bool has_yielded = true;
    const auto deadline = Clock::now() + std::chrono::seconds(20);
    while (has_yielded && Clock::now() < deadline) has_yielded = yield_unless_crowded();
    const auto noticed = Clock::now();
    EXPECT_FALSE(has_yielded);
    const bool yields_again = yield_unless_crowded();
    if (Clock::now() - noticed < milliseconds(50)) {
      EXPECT_FALSE(yields_again) << "right after";
    }
    is_over = true;
    busy.join();
  });
}

TEST_F(OneProcessor, IsNoTimeToSleepBesideAThreadThatWorksForAMillisecond) {
  int seen = 0;
  for (int attempt = 0; attempt < 20 && seen < 3; ++attempt) {
    in_a_new_thread([&seen] {
      const auto begin = Clock::now();
      for (int round = 0; round < 5; ++round) {
        std::thread brief([] {
          const auto end = Clock::now() + milliseconds(1);
          while (Clock::now() < end) {
          }
        });
        const auto before = Clock::now();
        const bool has_yielded = yield_unless_crowded();
        const auto after = Clock::now();
        brief.join();
        if (after - begin > milliseconds(10)) return;  // something else runs here
        EXPECT_TRUE(has_yielded) << "round " << round;
        if (round > 0 && after - before > std::chrono::microseconds(500)) ++seen;
      }
    });
  }
  if (seen == 0) GTEST_SKIP() << "no yield came back late";
}

}  // namespace
}  // namespace tutti::backend
