// SPDX-License-Identifier: Apache-2.0
#include "perf/session/timing.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

/// Counts what is launched and waited for.
struct Counted {
  int launches = 0;
  int single = 0;
  int waits = 0;
  std::set<std::size_t> indices;

  Launcher launcher() {
    Launcher how;
    how.launch = [this](std::size_t index) {
      ++launches;
      indices.insert(index);
    };
    how.synchronize = [this] { ++waits; };
    return how;
  }
};

Timing measured(const Launcher& launcher, const TimingPlan& plan) {
  return measure(launcher, plan, *make_single_process());
}

TEST(PerfTiming, MakesExactlyTheLaunchesAskedFor) {
  Counted counted;
  const Timing timing = measured(counted.launcher(), {.iterations = 20, .warmup = 3, .repetitions = 4});
  EXPECT_EQ(timing.iterations, 20U);
  EXPECT_EQ(timing.back_to_back.count, 4U);
  EXPECT_EQ(timing.latency.count, 20U);
  EXPECT_EQ(counted.launches, 1 + 3 + 4 * 20 + 20);  // first use, warm-up, batches, latencies
  EXPECT_EQ(counted.waits, 1 + 3 + 4 + 20);
}

TEST(PerfTiming, WarmsUpEverySetOfBuffers) {
  Counted counted;
  Launcher how = counted.launcher();
  how.rotation = 9;
  static_cast<void>(measured(how, {.iterations = 2, .warmup = 1, .repetitions = 1}));
  EXPECT_EQ(counted.indices.size(), 9U);
}

TEST(PerfTiming, DividesByTheOperationsOfALaunch) {
  Counted counted;
  Launcher how = counted.launcher();
  how.launch = [&counted](std::size_t) {
    ++counted.launches;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  how.launch_one = [&counted] { ++counted.single; };
  how.operations_per_launch = 10;
  const auto start = std::chrono::steady_clock::now();
  const Timing timing = measured(how, {.iterations = 3, .warmup = 1, .repetitions = 3});
  const std::chrono::duration<double, std::micro> taken = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(timing.iterations, 30U);
  EXPECT_GE(timing.back_to_back.minimum, 1000.0);                        // 10 ms for 10 operations
  EXPECT_LE(timing.back_to_back.minimum * (3 * 3 * 10), taken.count());  // and not for each
  EXPECT_EQ(counted.launches, 1 + 1 + 3 * 3);
  EXPECT_EQ(counted.single, 3);  // latencies are of these alone
}

TEST(PerfTiming, LimitsTheTimeSpentOnSlowOperations) {
  Counted counted;
  Launcher how = counted.launcher();
  how.launch = [&counted](std::size_t) {
    ++counted.launches;
    std::this_thread::sleep_for(std::chrono::milliseconds(60));
  };
  const Timing timing = measured(how, {});
  EXPECT_EQ(timing.iterations, 1U);
  EXPECT_GE(timing.back_to_back.count, 2U);
  EXPECT_GE(timing.latency.count, 3U);
  EXPECT_LT(counted.launches, 20);
}

/// As if there were another rank that takes `other` microseconds for everything: longer than this one,
/// however often other programs keep that from its processor.
class WithASlowerRank final : public Processes {
 public:
  explicit WithASlowerRank(double other) : other_(other) {}
  [[nodiscard]] int barriers() const noexcept { return barriers_; }

  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 2; }
  [[nodiscard]] bool are_ranks() const override { return true; }
  void barrier() override { ++barriers_; }
  /// Of numbers.
  [[nodiscard]] std::vector<std::string> gather(const std::string& mine) override {
    std::string others = mine;
    for (std::size_t at = 0; at < others.size(); at += sizeof(other_))
      std::memcpy(others.data() + at, &other_, sizeof(other_));
    return {mine, others};
  }
  void together(const std::function<void()>& work, const Release&) override { work(); }
  [[nodiscard]] std::unique_ptr<Communicator> make_communicator(const CommunicatorOptions&) override {
    return nullptr;
  }

 private:
  double other_;
  int barriers_ = 0;
};

TEST(PerfTiming, IsTheSlowestRanks) {
  Counted counted;
  WithASlowerRank processes(70e3);
  const Timing timing = measure(counted.launcher(), {}, processes);
  EXPECT_EQ(timing.iterations, 1U);  // chosen by the slowest as well
  EXPECT_EQ(timing.back_to_back.minimum, 70e3);
  EXPECT_EQ(timing.latency.minimum, 70e3);
}

TEST(PerfTiming, IsWhatIsAskedForOverRanks) {
  Counted counted;
  WithASlowerRank processes(1e9);
  TimingPlan plan{.iterations = 3, .warmup = 1, .repetitions = 2};
  plan.over_ranks = OverRanks::average;
  const double average = measure(counted.launcher(), plan, processes).latency.maximum;
  EXPECT_GE(average, 0.5e9);
  EXPECT_LT(average, 1e9);
  for (const OverRanks how : {OverRanks::rank0, OverRanks::minimum}) {
    plan.over_ranks = how;
    const Timing timing = measure(counted.launcher(), plan, processes);
    EXPECT_LT(timing.back_to_back.maximum, 1e9);
    EXPECT_LT(timing.latency.maximum, 1e9);
    EXPECT_EQ(timing.back_to_back_of_ranks[1], 1e9);
  }
}

TEST(PerfTiming, LeavesTheFirstLatenciesOutOfTheirSummary) {
  int launches = 0;
  Launcher how;
  how.launch = [&launches](std::size_t) {
    if (++launches == 1 + 1 + 2 * 4 + 1) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  };
  how.synchronize = [] {};
  TimingPlan plan{.iterations = 4, .warmup = 1, .repetitions = 2};
  EXPECT_GE(measured(how, plan).latency.maximum, 50e3);
  plan.skipped = 1;
  launches = 0;
  const Timing timing = measured(how, plan);
  EXPECT_EQ(timing.latencies.size(), 4U);
  EXPECT_GE(timing.latencies.front(), 50e3);
  EXPECT_EQ(timing.latency.count, 3U);
  EXPECT_EQ(timing.latency.maximum, std::ranges::max(std::span(timing.latencies).subspan(1)));
  plan.iterations.reset();
  const Timing chosen = measured(how, plan);
  EXPECT_EQ(chosen.latency.count + 1, chosen.latencies.size());
}

TEST(PerfTiming, TheSlowestRankIsTheFirstOfTheSlowest) {
  const std::vector<double> times{10, 12, 8, 12};
  const std::optional<SlowestRank> slowest = slowest_of(times);
  ASSERT_TRUE(slowest);
  EXPECT_EQ(slowest->rank, 1);
  EXPECT_DOUBLE_EQ(slowest->over_fastest, 1.5);
  EXPECT_FALSE(slowest_of(std::span(times).first(1)));
}

TEST(PerfTiming, RepeatsSlowOperationsAsOftenAsAskedTo) {
  Counted counted;
  WithASlowerRank processes(70e3);
  EXPECT_EQ(measure(counted.launcher(), {}, processes).back_to_back.count, 4U);  // as many as take 300 ms
  TimingPlan plan;
  plan.repetitions = 9;
  EXPECT_EQ(measure(counted.launcher(), plan, processes).back_to_back.count, 9U);
}

TEST(PerfTiming, StartsAllRanksInStep) {
  Counted counted;
  WithASlowerRank processes(1.0);
  static_cast<void>(
      measure(counted.launcher(), {.iterations = 20, .warmup = 3, .repetitions = 4}, processes));
  EXPECT_EQ(processes.barriers(), 1 + 3 + 4 + 20);  // before each batch and each single operation
}

}  // namespace
}  // namespace tutti::perf
