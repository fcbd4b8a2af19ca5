#include "transport/launch_crew.hpp"

#include "support/machines.hpp"

#include <array>
#include <atomic>
#include <barrier>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// By TUTTI_LAUNCH_THREADS=on: the crew is always at hand.
namespace tutti::transport {
namespace {

using namespace std::chrono_literals;

constexpr std::array<int, 4> devices{2, 0, 3, 1};

class Crew : public testing::Test {
 protected:
  void SetUp() override { test::boot("island", 4); }
  [[nodiscard]] LaunchCrew& crew() { return Runtime::get().extension<LaunchCrew>(); }
};

TEST_F(Crew, CallsForEachDeviceOnAThreadOfItsOwnAndForTheFirstOnTheCallers) {
  std::array<std::vector<std::thread::id>, devices.size()> callers;
  constexpr std::size_t launches = 200;
  for (std::size_t launch = 0; launch < launches; ++launch) {
    ASSERT_TRUE(
        crew().try_run(devices, [&](std::size_t i) { callers[i].push_back(std::this_thread::get_id()); }));
  }
  for (std::size_t i = 0; i < devices.size(); ++i) {
    ASSERT_EQ(callers[i].size(), launches);
    for (const std::thread::id caller : callers[i]) EXPECT_EQ(caller, callers[i][0]);
    for (std::size_t other = 0; other < i; ++other) EXPECT_NE(callers[i][0], callers[other][0]);
  }
  EXPECT_EQ(callers[0][0], std::this_thread::get_id());
}

/// A thread belongs to a device, not to a place in the list.
TEST_F(Crew, CallsForADeviceAlwaysOnTheSameThread) {
  std::thread::id thread_of_3;
  ASSERT_TRUE(crew().try_run(devices, [&](std::size_t i) {
    if (i == 2) thread_of_3 = std::this_thread::get_id();
  }));
  constexpr std::array<int, 3> others{0, 1, 3};
  std::thread::id again;
  ASSERT_TRUE(crew().try_run(others, [&](std::size_t i) {
    if (i == 2) again = std::this_thread::get_id();
  }));
  EXPECT_EQ(again, thread_of_3);
}

TEST_F(Crew, CallsAllAtOnce) {
  std::barrier<> all(devices.size());
  std::atomic<int> done = 0;
  ASSERT_TRUE(crew().try_run(devices, [&](std::size_t) {
    all.arrive_and_wait();
    ++done;
  }));
  EXPECT_EQ(done, 4);
}

TEST_F(Crew, IsWokenWhenItHasFallenAsleep) {
  for (int launch = 0; launch < 20; ++launch) {
    std::atomic<int> done = 0;
    ASSERT_TRUE(crew().try_run(devices, [&](std::size_t) { ++done; }));
    EXPECT_EQ(done, 4);
    std::this_thread::sleep_for(std::chrono::microseconds(launch * 100));  // it sleeps after 200
  }
}

TEST_F(Crew, IsNotForTwoDevices) {
  bool is_called = false;
  EXPECT_FALSE(crew().try_run(std::array<int, 2>{0, 1}, [&](std::size_t) { is_called = true; }));
  EXPECT_FALSE(is_called);
}

TEST_F(Crew, HasOneLaunchAtATime) {
  std::atomic<bool> is_under_way = false;
  std::atomic<bool> may_end = false;
  std::thread first([&] {
    const bool has_run = crew().try_run(devices, [&](std::size_t i) {
      if (i != 0) return;
      is_under_way = true;
      while (!may_end) std::this_thread::yield();
    });
    EXPECT_TRUE(has_run);
  });
  while (!is_under_way) std::this_thread::yield();
  EXPECT_FALSE(crew().try_run(devices, [](std::size_t) { FAIL() << "the crew is in use"; }));
  may_end = true;
  first.join();
}

TEST_F(Crew, EndsWithTheRuntimeAwakeOrAsleep) {
  for (const auto pause : {0us, 1000us}) {
    ASSERT_TRUE(crew().try_run(devices, [](std::size_t) {}));
    std::this_thread::sleep_for(pause);
    test::boot("island", 4);
  }
}

}  // namespace
}  // namespace tutti::transport
