// SPDX-License-Identifier: Apache-2.0
#include "base/light_mutex.hpp"

#include <chrono>
#include <cstddef>
#include <mutex>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using namespace std::chrono_literals;

TEST(LightMutex, IsTakenByOneAtATime) {
  LightMutex mutex;
  EXPECT_TRUE(mutex.try_lock());
  EXPECT_FALSE(mutex.try_lock());
  mutex.unlock();
  const std::lock_guard lock(mutex);
  EXPECT_FALSE(mutex.try_lock());
}

/// Some hold it for so long that the others come to nap.
TEST(LightMutex, OrdersWhatThreadsDoAlsoIfTheySleep) {
  constexpr std::size_t threads = 4;
  constexpr std::size_t turns = 2000;
  LightMutex mutex;
  std::vector<std::size_t> order;  // which only the mutex protects
  std::vector<std::thread> workers;
  for (std::size_t worker = 0; worker < threads; ++worker) {
    workers.emplace_back([&, worker] {
      for (std::size_t turn = 0; turn < turns; ++turn) {
        const std::lock_guard lock(mutex);
        order.push_back(worker);
        if (turn % 500 == worker) std::this_thread::sleep_for(2ms);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(order.size(), threads * turns);
}

}  // namespace
}  // namespace tutti
