// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/exercise.hpp"
#include "support/collectives/random_call.hpp"
#include "support/collectives/stream_order.hpp"
#include "support/memory/footprint.hpp"

#include <chrono>
#include <deque>
#include <iostream>
#include <limits>
#include <optional>
#include <string>
#include <thread>

/// Random collectives, sizes, element types, layouts, devices, streams and threads.
namespace tutti::test {
namespace {

using Clock = std::chrono::steady_clock;

enum class Streams { current, pooled };

constexpr std::size_t in_flight = 4;

/// Keeps several random calls in flight until `end`, but at least until the first have been checked; or for
/// `calls` calls.
void run_random_calls(std::uint64_t thread, Clock::time_point end, std::int64_t calls, Streams streams) try {
  constexpr std::int64_t least = 2 * in_flight;
  const auto goes_on = [&](std::int64_t call) {
    return call < calls && (call < least || Clock::now() < end) && !testing::Test::HasFailure();
  };
  std::deque<RandomCall> queue;
  for (std::int64_t call = 0; goes_on(call); ++call) {
    std::optional<PooledStreams> pooled;
    if (streams == Streams::pooled) pooled.emplace();
    queue.push_back(RandomCall::start(random_at(test_seed() + thread, static_cast<std::uint64_t>(call))));
    if (queue.size() < in_flight) continue;
    EXPECT_TRUE(queue.front().check()) << "thread " << thread;
    queue.pop_front();
  }
  for (const RandomCall& started : queue) EXPECT_TRUE(started.check()) << "thread " << thread;
} catch (const std::exception& error) {
  ADD_FAILURE() << "thread " << thread << ": " << error.what();
}

/// Binds random collectives, each a graph on GPUs, and launches them, until `end`.
void bind_random_collectives(std::uint64_t thread, Clock::time_point end) try {
  Random random(test_seed() + thread);
  while (Clock::now() < end && !testing::Test::HasFailure()) {
    const PooledStreams pooled;
    const Exercise run =
        make_exercise(random.pick(all_collectives), first_devices(2), random.between(1, 5000));
    const std::vector<HostArray> values = run.values(random.next());
    const std::vector<Tensor> inputs = make_inputs(run, values);
    const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
    std::vector<Tensor> out;
    for (const TestTensor& output : outputs) out.push_back(output.tensor());
    synchronize_all();
    PersistentCollective bound = run.bind(inputs, out, {});
    for (std::int64_t launch = random.between(1, 3); launch > 0; --launch) bound.launch();
    synchronize(bound.home_device());
    EXPECT_TRUE(all_hold(outputs, run.expect(values))) << "thread " << thread;
  }
} catch (const std::exception& error) {
  ADD_FAILURE() << "thread " << thread << ": " << error.what();
}

Clock::time_point seconds_from_now(double seconds) {
  return Clock::now() + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(seconds));
}

class Stress : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
    std::cout << "TUTTI_TEST_SEED=" << test_seed() << '\n';
  }
  void TearDown() override { EXPECT_NO_THROW(synchronize_all()); }
};

TEST_F(Stress, RandomCallsOfSeveralThreadsAreAllRight) {
  const auto end = seconds_from_now(test_seconds(5));
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    threads.emplace_back(run_random_calls, thread, end, std::numeric_limits<std::int64_t>::max(),
                         Streams::pooled);
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Stress, RandomCallsAreRightWhileOtherThreadsBindCollectives) {
  const auto end = seconds_from_now(test_seconds(3));
  std::vector<std::thread> threads;
  for (std::uint64_t thread = 0; thread < 4; ++thread) {
    if (thread % 2 == 0) {
      threads.emplace_back(bind_random_collectives, thread, end);
    } else {
      threads.emplace_back(run_random_calls, thread, end, std::numeric_limits<std::int64_t>::max(),
                           Streams::pooled);
    }
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(Stress, RandomCallsAreRightUnderManyInterleavings) {
  const auto end = seconds_from_now(test_seconds(3));
  std::int64_t interleavings = 0;
  for_each_interleaving(1000, [&](std::uint64_t seed) {
    if (interleavings >= scaled(20) && Clock::now() > end) return;
    run_random_calls(seed, end, 8, Streams::pooled);
    ++interleavings;
  });
}

TEST_F(Stress, ThousandsOfCallsGrowNothing) {
  const auto end = Clock::time_point::max();
  const auto round = [&] {
    // The same calls every round: what the first rounds did not need, later ones must not need either.
    for (std::uint64_t thread = 0; thread < 2; ++thread)
      run_random_calls(thread, end, scaled(200), Streams::current);
  };
  EXPECT_TRUE(Footprint::does_not_grow(round));
}

}  // namespace
}  // namespace tutti::test
