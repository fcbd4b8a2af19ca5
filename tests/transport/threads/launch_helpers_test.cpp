// SPDX-License-Identifier: Apache-2.0
#include "transport/threads/launch_helpers.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <ctime>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>

namespace tutti::transport {
namespace {

using namespace std::chrono_literals;

/// How often each part of a job was done.
class Parts {
 public:
  explicit Parts(std::size_t count) : times_(count) {}
  void operator()(std::size_t part) const { ++times_[part]; }
  [[nodiscard]] bool all_done(int times) const {
    return std::ranges::all_of(times_, [times](const std::atomic<int>& part) { return part == times; });
  }

 private:
  mutable std::vector<std::atomic<int>> times_;
};

std::chrono::nanoseconds processor_time() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

/// Shifts until another thread has taken part in one; the threads that did.
std::set<std::thread::id> helpers_of(LaunchHelpers& helpers) {
  std::mutex mutex;
  std::set<std::thread::id> seen;
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (seen.size() < 2 && std::chrono::steady_clock::now() < end) {
    std::atomic<int> parts = 0;
    LaunchHelpers::Lease lease(helpers, 4);
    lease.for_each(2, [&](std::size_t part) {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
      parts += static_cast<int>(part) + 1;
    });
    EXPECT_EQ(parts, 3);
  }
  seen.erase(std::this_thread::get_id());
  return seen;
}

TEST(LaunchHelpers, DoesEveryPartOnce) {
  for (const std::size_t size : {0U, 1U, 3U}) {
    LaunchHelpers helpers(size);
    for (const std::size_t count : {0U, 1U, 2U, 7U, 100U}) {
      const Parts parts(count);
      constexpr int shifts = 300;
      for (int i = 0; i < shifts; ++i) {
        LaunchHelpers::Lease lease(helpers, 2 * count);
        lease.for_each(count, parts);
        EXPECT_TRUE(parts.all_done(2 * i + 1));
        lease.for_each(count, parts);
        EXPECT_TRUE(parts.all_done(2 * i + 2));
      }
    }
  }
}

TEST(LaunchHelpers, HelpsOnThreadsOfItsOwn) {
  LaunchHelpers helpers(std::size_t{1});
  EXPECT_EQ(helpers_of(helpers).size(), 1U);
}

TEST(LaunchHelpers, StartsNoMoreThreadsThanALaunchNeeds) {
  LaunchHelpers helpers(std::size_t{3});
  std::mutex mutex;
  std::set<std::thread::id> seen;
  for (int i = 0; i < 5000; ++i) {
    LaunchHelpers::Lease lease(helpers, 2);
    lease.for_each(2, [&](std::size_t) {
      const std::lock_guard lock(mutex);
      seen.insert(std::this_thread::get_id());
    });
  }
  EXPECT_LE(seen.size(), 2U);
}

TEST(LaunchHelpers, WorksForOneThreadAtATimeAndLeavesTheOthersAlone) {
  LaunchHelpers helpers(std::size_t{2});
  constexpr int shifts = 2000;
  std::vector<std::thread> threads;
  std::atomic<int> wrong = 0;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      const Parts parts(5);
      for (int done = 1; done <= shifts; ++done) {
        LaunchHelpers::Lease lease(helpers, 5);
        lease.for_each(5, parts);
        if (!parts.all_done(done)) ++wrong;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

TEST(LaunchHelpers, PassesFailuresOnAndWorksOn) {
  for (const std::size_t size : {0U, 2U}) {
    LaunchHelpers helpers(size);
    for (int i = 0; i < 200; ++i) {
      std::atomic<int> called = 0;
      LaunchHelpers::Lease lease(helpers, 4);
      EXPECT_THROW(lease.for_each(4,
                                  [&](std::size_t part) {
                                    ++called;
                                    if (part >= 2) throw std::runtime_error("part");
                                  }),
                   std::runtime_error);
      EXPECT_GE(called, 3);
      const Parts parts(4);
      lease.for_each(4, parts);
      EXPECT_TRUE(parts.all_done(1));
    }
  }
}

TEST(LaunchHelpers, SleepsWhenItHasNothingToDo) {
  LaunchHelpers helpers(std::size_t{3});
  ASSERT_FALSE(helpers_of(helpers).empty());
  std::this_thread::sleep_for(50ms);  // more than their patience
  const auto before = processor_time();
  std::this_thread::sleep_for(200ms);
  EXPECT_LT(processor_time() - before, 50ms);
}

TEST(LaunchHelpers, IsNotWokenByCallsNowAndThen) {
  LaunchHelpers helpers(std::size_t{1});
  for (int i = 0; i < 20; ++i) {
    std::this_thread::sleep_for(2ms);
    std::set<std::thread::id> seen;
    LaunchHelpers::Lease lease(helpers, 2);
    lease.for_each(2, [&](std::size_t) { seen.insert(std::this_thread::get_id()); });
    EXPECT_EQ(seen, std::set{std::this_thread::get_id()});
  }
}

TEST(LaunchHelpers, LeavesTheSystemsSignalsToTheProgram) {
  LaunchHelpers helpers(std::size_t{1});
  std::atomic<int> open = 0;
  std::atomic<bool> was_other = false;
  const auto self = std::this_thread::get_id();
  const auto end = std::chrono::steady_clock::now() + 20s;
  while (!was_other && std::chrono::steady_clock::now() < end) {
    LaunchHelpers::Lease lease(helpers, 2);
    lease.for_each(2, [&](std::size_t) {
      if (std::this_thread::get_id() == self) return;
      was_other = true;
      sigset_t blocked;
      pthread_sigmask(SIG_SETMASK, nullptr, &blocked);
      for (const int signal : {SIGINT, SIGTERM, SIGUSR1, SIGALRM})
        open += sigismember(&blocked, signal) == 1 ? 0 : 1;
    });
  }
  EXPECT_TRUE(was_other);
  EXPECT_EQ(open, 0);
}

}  // namespace
}  // namespace tutti::transport
