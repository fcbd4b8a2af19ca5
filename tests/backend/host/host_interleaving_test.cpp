// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_machine.hpp"
#include "support/timing.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <set>
#include <string>
#include <thread>

#include <gmock/gmock.h>

namespace tutti::backend {
namespace {

using testing::HasSubstr;

/// Far less than if every entry took a turn's patience.
const std::chrono::milliseconds too_long = test::patient(std::chrono::milliseconds(3000));

class HostInterleaving : public HostMachine {
 protected:
  /// The order in which the entries of four streams ran; each stream's entries are one letter.
  std::string run_letters(std::uint64_t seed) {
    boot("island");
    control().set_interleaving_seed(seed);
    std::string order;  // unguarded: one operation runs at a time
    for (int i = 0; i < 8; ++i) {
      for (int device = 0; device < 4; ++device) {
        launch(machine().default_stream(device), "append", {},
               [&order, device](auto) { order += static_cast<char>('a' + device); });
      }
    }
    for (int device = 0; device < 4; ++device) machine().synchronize_device(device);
    return order;
  }

  enum class Wait { present, missing };
  /// What a consumer on device 1 reads of a value that device 0 produces; 0 is what was there before.
  int consume(std::uint64_t seed, Wait wait) {
    boot("island");
    machine().enable_peer_access(1, 0);
    control().set_interleaving_seed(seed);
    int* shared = upload<int>(0, {0});
    int* result = upload<int>(1, {0});
    const EventHandle produced = machine().create_event(0, EventTiming::off, EventWait::block);
    launch(machine().default_stream(0), "produce", {{shared, 4}},
           [](auto addresses) { *static_cast<int*>(addresses[0]) = 42; });
    machine().record_event(produced, machine().default_stream(0));
    if (wait == Wait::present) machine().wait_event(machine().default_stream(1), produced);
    launch(machine().default_stream(1), "consume", {{shared, 4}, {result, 4}},
           [](auto addresses) { *static_cast<int*>(addresses[1]) = *static_cast<int*>(addresses[0]); });
    const int value = download(1, result, 1)[0];
    machine().destroy_event(produced);
    return value;
  }
};

TEST_F(HostInterleaving, IsReproducedByItsSeed) {
  for (std::uint64_t seed = 0; seed < 10; ++seed)
    EXPECT_EQ(run_letters(seed), run_letters(seed)) << "seed " << seed;
}

TEST_F(HostInterleaving, DiffersBetweenSeeds) {
  std::set<std::string> orders;
  for (std::uint64_t seed = 0; seed < 10; ++seed) orders.insert(run_letters(seed));
  EXPECT_EQ(orders.size(), 10U);
}

TEST_F(HostInterleaving, RunsEverythingOnce) {
  const std::string order = run_letters(7);
  EXPECT_EQ(order.size(), 32U);
  for (const char letter : {'a', 'b', 'c', 'd'}) EXPECT_EQ(std::count(order.begin(), order.end(), letter), 8);
}

TEST_F(HostInterleaving, ExposesAMissingWait) {
  int wrong = 0;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    const int value = consume(seed, Wait::missing);
    EXPECT_EQ(consume(seed, Wait::missing), value) << "seed " << seed << " must reproduce what it showed";
    if (value != 42) ++wrong;
  }
  EXPECT_GT(wrong, 0);
  EXPECT_LT(wrong, 20);
}

TEST_F(HostInterleaving, RespectsWaits) {
  for (std::uint64_t seed = 0; seed < 20; ++seed)
    EXPECT_EQ(consume(seed, Wait::present), 42) << "seed " << seed;
}

TEST_F(HostInterleaving, RunsOneOperationAtATime) {
  control().set_interleaving_seed(3);
  std::atomic<int> running{0};
  std::atomic<bool> overlapped{false};
  for (int i = 0; i < 40; ++i) {
    launch(machine().default_stream(i % 4), "overlap", {}, [&](auto) {
      if (running.fetch_add(1) != 0) overlapped = true;
      std::this_thread::yield();
      --running;
    });
  }
  for (int device = 0; device < 4; ++device) machine().synchronize_device(device);
  EXPECT_FALSE(overlapped);
}

TEST_F(HostInterleaving, PollingComesToAnEnd) {
  control().set_interleaving_seed(11);
  const EventHandle event = machine().create_event(0, EventTiming::on, EventWait::block);
  bool ran = false;
  for (int i = 0; i < 10; ++i) launch(machine().default_stream(0), "work", {}, [&ran](auto) { ran = true; });
  machine().record_event(event, machine().default_stream(0));
  int polls = 0;
  while (!machine().query_event(event)) ++polls;
  EXPECT_TRUE(ran);
  EXPECT_LT(polls, 100);
  machine().destroy_event(event);
}

TEST_F(HostInterleaving, EndsForAHostThatWaitsByOtherMeans) {
  control().set_interleaving_seed(5);
  std::promise<void> done;
  for (int i = 0; i < 3; ++i) launch(machine().default_stream(1), "work", {}, [](auto) {});
  launch(machine().default_stream(0), "signal", {}, [&done](auto) { done.set_value(); });
  EXPECT_EQ(done.get_future().wait_for(std::chrono::seconds(20)), std::future_status::ready);
}

TEST_F(HostInterleaving, GoesOnForAHostThatSaysThatItWaitsForSomethingElse) {
  control().set_interleaving_seed(5);
  constexpr int count = 200;
  std::atomic<int> ran{0};
  for (int i = 0; i < count; ++i)
    launch(machine().default_stream(i % 4), "work", {}, [&ran](auto) { ++ran; });
  const test::Stopwatch watch;
  while (ran < count && watch.elapsed() < too_long) {
    machine().wait_elsewhere();
    std::this_thread::yield();
  }
  EXPECT_EQ(ran, count);
}

TEST_F(HostInterleaving, GoesOnAtFullSpeedForAHostThatHasBeenSilentForAWhile) {
  control().set_interleaving_seed(6);
  constexpr int count = 200;
  std::atomic<int> ran{0};
  for (int i = 0; i < count; ++i)
    launch(machine().default_stream(i % 4), "work", {}, [&ran](auto) { ++ran; });
  const test::Stopwatch watch;
  while (ran < count && watch.elapsed() < too_long) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(ran, count);
}

TEST_F(HostInterleaving, DoesNotHoldUpAHostThatQueuesMoreBehindLongOperations) {
  constexpr int streams = 30;
  control().set_interleaving_seed(7);
  const EventHandle event = machine().create_event(0, EventTiming::on, EventWait::block);
  std::atomic<bool> is_all_queued{false};
  std::atomic<int> ran{0};
  const test::Stopwatch watch;
  for (int i = 0; i < streams; ++i) {
    const StreamRef stream = machine().create_stream(i % 4, 0);
    launch(stream, "long", {}, [&](auto) {
      while (!is_all_queued) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++ran;
    });
    for (int more = 0; more < 5; ++more) machine().record_event(event, stream);
    machine().destroy_stream(stream);
  }
  EXPECT_LT(watch.elapsed(), too_long);
  is_all_queued = true;
  for (int device = 0; device < 4; ++device) machine().synchronize_device(device);
  EXPECT_EQ(ran, streams);
  machine().destroy_event(event);
}

TEST_F(HostInterleaving, LetsTheHostOpenAGateThatWorkWaitsFor) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    boot("island");
    control().set_interleaving_seed(seed);
    Gate gate;
    gate.block(machine(), machine().default_stream(0));
    for (int i = 0; i < 5; ++i) launch(machine().default_stream(1), "work", {}, [](auto) {});
    gate.open();
    machine().synchronize_device(0);
    machine().synchronize_device(1);
  }
}

TEST_F(HostInterleaving, LetsStreamsPassOneThatAGateHolds) {
  for (std::uint64_t seed = 0; seed < 10; ++seed) {
    boot("island");
    control().set_interleaving_seed(seed);
    Gate gate;
    gate.block(machine(), machine().default_stream(0));
    int ran = 0;  // unguarded: the second stream's entries run one after another
    for (int i = 0; i < 5; ++i) {
      launch(machine().default_stream(0), "held", {}, [](auto) {});
      launch(machine().default_stream(1), "work", {}, [&ran](auto) { ++ran; });
    }
    machine().synchronize_device(1);
    EXPECT_EQ(ran, 5) << "seed " << seed;
    EXPECT_FALSE(machine().query_stream(machine().default_stream(0)));
    gate.open();
    machine().synchronize_device(0);
  }
}

TEST_F(HostInterleaving, CompletesDestroyedStreamsAndShutsDown) {
  control().set_interleaving_seed(9);
  std::atomic<int> ran{0};
  for (int i = 0; i < 30; ++i) {
    const StreamRef stream = machine().create_stream(i % 4, 0);
    launch(stream, "count", {}, [&ran](auto) { ++ran; });
    machine().destroy_stream(stream);
  }
  shut_down();
  EXPECT_EQ(ran.load(), 30);
}

TEST_F(HostInterleaving, CanBeSwitchedOffAndOn) {
  control().set_interleaving_seed(std::nullopt);
  EXPECT_EQ(control().interleaving_seed(), std::nullopt);
  control().set_interleaving_seed(1);
  EXPECT_EQ(control().interleaving_seed(), 1U);
  bool ran = false;
  launch(machine().default_stream(0), "work", {}, [&ran](auto) { ran = true; });
  control().set_interleaving_seed(std::nullopt);
  EXPECT_TRUE(ran) << "waits until all streams are idle";
  control().set_interleaving_seed(2);
  EXPECT_EQ(upload<int>(0, {1}) == nullptr, false);
}

TEST_F(HostInterleaving, FailuresTellTheSeed) {
  control().set_interleaving_seed(1234);
  launch(machine().default_stream(0), "broken", {}, [](auto) { throw std::runtime_error("no"); });
  EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { machine().synchronize_device(0); }),
              HasSubstr("seed 1234"));
}

TEST_F(HostInterleaving, ComesFromTheEnvironment) {
  ASSERT_EQ(setenv("TUTTI_VIRTUAL_SEED", "77", 1), 0);
  boot("island");
  unsetenv("TUTTI_VIRTUAL_SEED");
  EXPECT_EQ(control().interleaving_seed(), 77U);
}

}  // namespace
}  // namespace tutti::backend
