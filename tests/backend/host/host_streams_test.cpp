// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_machine.hpp"
#include "support/timing.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>

#include <gmock/gmock.h>
#include <sys/wait.h>
#include <unistd.h>

namespace tutti::backend {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class HostStreams : public HostMachine {
 protected:
  void append(StreamRef stream, std::vector<int>& log, int value) {
    launch(stream, "append", {}, [&log, value](auto) { log.push_back(value); });
  }
};

TEST_F(HostStreams, RunWorkInOrder) {
  const StreamRef stream = machine().create_stream(0, 0);
  std::vector<int> log;
  std::vector<int> expected(1000);
  std::iota(expected.begin(), expected.end(), 0);
  for (const int i : expected) append(stream, log, i);
  machine().synchronize_stream(stream);
  EXPECT_EQ(log, expected);
}

TEST_F(HostStreams, AreIdleOnlyWhenTheWorkIsFinished) {
  const StreamRef stream = machine().create_stream(0, 0);
  EXPECT_TRUE(machine().query_stream(stream));
  Gate gate;
  gate.block(machine(), stream);
  std::this_thread::sleep_for(
      std::chrono::milliseconds(20));  // by now the worker has taken it from the queue
  EXPECT_FALSE(machine().query_stream(stream));
  gate.open();
  machine().synchronize_stream(stream);
  EXPECT_TRUE(machine().query_stream(stream));
}

/// Entries that a stream holds before it holds up those who queue more.
constexpr int longest_queue = 1024;

TEST_F(HostStreams, HoldUpAHostThatIsFarAhead) {
  const StreamRef stream = machine().create_stream(0, 0);
  std::atomic<int> ran{0};
  int most = 0;
  for (int i = 0; i < 20 * longest_queue; ++i) {
    launch(stream, "work", {}, [&ran](auto) {
      const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(3);
      while (std::chrono::steady_clock::now() < end) {
      }
      ++ran;
    });
    most = std::max(most, i + 1 - ran);
  }
  machine().synchronize_stream(stream);
  EXPECT_EQ(ran, 20 * longest_queue);
  EXPECT_LE(most, longest_queue + 1);
}

TEST_F(HostStreams, LetAHostGoOnThatTheyWaitFor) {
  const StreamRef stream = machine().create_stream(0, 0);
  Gate gate;
  gate.block(machine(), stream);
  std::atomic<int> ran{0};
  const test::Stopwatch watch;
  for (int i = 0; i < 4 * longest_queue; ++i) launch(stream, "work", {}, [&ran](auto) { ++ran; });
  EXPECT_LT(watch.elapsed(), test::patient(std::chrono::seconds(5)));
  EXPECT_EQ(ran, 0);
  gate.open();
  machine().synchronize_stream(stream);
  EXPECT_EQ(ran, 4 * longest_queue);
}

TEST_F(HostStreams, HoldUpNoWorkThatQueuesWork) {
  const StreamRef stream = machine().create_stream(0, 0);
  std::atomic<int> ran{0};
  std::chrono::steady_clock::duration taken{};
  launch(stream, "queues", {}, [&](auto) {
    const test::Stopwatch watch;
    for (int i = 0; i < 4 * longest_queue; ++i) launch(stream, "work", {}, [&ran](auto) { ++ran; });
    taken = watch.elapsed();
  });
  machine().synchronize_device(0);  // now all is queued
  machine().synchronize_device(0);
  EXPECT_EQ(ran, 4 * longest_queue);
  EXPECT_LT(taken, test::at_once);
}

TEST_F(HostStreams, GoOnUnderASeedWhileTheyHoldUpAHost) {
  control().set_interleaving_seed(3);
  std::atomic<int> ran{0};
  const test::Stopwatch watch;
  for (int i = 0; i < 6 * longest_queue; ++i)
    launch(machine().default_stream(i % 2), "work", {}, [&ran](auto) { ++ran; });
  for (const int device : {0, 1}) machine().synchronize_device(device);
  EXPECT_EQ(ran, 6 * longest_queue);
  EXPECT_LT(watch.elapsed(), test::patient(std::chrono::seconds(20)));
}

TEST_F(HostStreams, MayHaveLaunchesThatReturnAtTheEndOfTheKernel) {
  control().set_blocking_launches(true);
  bool has_run = false;
  launch(machine().default_stream(0), "work", {}, [&has_run](auto) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    has_run = true;
  });
  EXPECT_TRUE(has_run);
}

TEST_F(HostStreams, RunConcurrently) {
  Gate gate;
  const StreamRef blocked = machine().create_stream(0, 0);
  gate.block(machine(), blocked);
  const StreamRef other = machine().create_stream(0, -5);
  std::vector<int> log;
  append(other, log, 1);
  machine().synchronize_stream(other);
  EXPECT_EQ(log, std::vector<int>{1});
  EXPECT_FALSE(machine().query_stream(blocked));
}

TEST_F(HostStreams, DefaultStreamsAreOrdinaryOnes) {
  Gate gate;
  gate.block(machine(), machine().default_stream(0));
  const StreamRef other = machine().create_stream(0, 0);
  std::vector<int> log;
  append(other, log, 1);
  machine().synchronize_stream(other);
  EXPECT_EQ(log, std::vector<int>{1});
  EXPECT_EQ(machine().default_stream(0), machine().default_stream(0));
  EXPECT_FALSE(machine().default_stream(0) == machine().default_stream(1));
}

TEST_F(HostStreams, CompleteTheirWorkWhenDestroyed) {
  std::atomic<int> ran{0};
  for (int i = 0; i < 20; ++i) {
    const StreamRef stream = machine().create_stream(i % 4, 0);
    launch(stream, "slow", {}, [&ran](auto) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      ++ran;
    });
    machine().destroy_stream(stream);
  }
  for (int device = 0; device < 4; ++device) machine().synchronize_device(device);
  EXPECT_EQ(ran.load(), 20);
}

TEST_F(HostStreams, ShutDownCompletesQueuedWork) {
  std::atomic<int> ran{0};
  for (int i = 0; i < 100; ++i) {
    launch(machine().default_stream(i % 4), "count", {}, [&ran](auto) { ++ran; });
  }
  shut_down();
  EXPECT_EQ(ran.load(), 100);
}

TEST_F(HostStreams, WaitForWhatAnEventRecorded) {
  const StreamRef first = machine().create_stream(0, 0);
  const StreamRef second = machine().create_stream(1, 0);
  const EventHandle event = machine().create_event(0, EventTiming::off, EventWait::block);
  Gate gate;
  std::vector<int> log;
  gate.block(machine(), first);
  append(first, log, 1);
  machine().record_event(event, first);
  machine().wait_event(second, event);
  append(second, log, 2);
  EXPECT_FALSE(machine().query_event(event));
  EXPECT_FALSE(machine().query_stream(second));
  gate.open();
  machine().synchronize_stream(second);
  EXPECT_TRUE(machine().query_event(event));
  EXPECT_EQ(log, (std::vector<int>{1, 2}));
  machine().destroy_event(event);
}

TEST_F(HostStreams, AWaitIsForTheRecordingItSaw) {
  const StreamRef producer = machine().create_stream(0, 0);
  const StreamRef consumer = machine().create_stream(0, 0);
  const EventHandle event = machine().create_event(0, EventTiming::off, EventWait::block);
  std::vector<int> log;
  machine().record_event(event, producer);
  machine().wait_event(consumer, event);
  // Recorded again behind work that itself waits for the consumer: watching the event would be a deadlock.
  append(consumer, log, 1);
  const EventHandle consumed = machine().create_event(0, EventTiming::off, EventWait::block);
  machine().record_event(consumed, consumer);
  machine().wait_event(producer, consumed);
  append(producer, log, 2);
  machine().record_event(event, producer);
  machine().synchronize_event(event);
  EXPECT_EQ(log, (std::vector<int>{1, 2}));

  // And a recording made meanwhile on an idle stream does not let an earlier waiter through.
  Gate gate;
  gate.block(machine(), producer);
  append(producer, log, 3);
  machine().record_event(event, producer);
  machine().wait_event(consumer, event);
  append(consumer, log, 4);
  machine().record_event(event, machine().default_stream(0));
  EXPECT_TRUE(machine().query_event(event));
  EXPECT_FALSE(machine().query_stream(consumer));
  gate.open();
  machine().synchronize_stream(consumer);
  EXPECT_EQ(log, (std::vector<int>{1, 2, 3, 4}));
  machine().destroy_event(event);
  machine().destroy_event(consumed);
}

TEST_F(HostStreams, EventsMayBeDestroyedWithWaitersPending) {
  const StreamRef first = machine().create_stream(0, 0);
  const StreamRef second = machine().create_stream(0, 0);
  Gate gate;
  std::vector<int> log;
  gate.block(machine(), first);
  append(first, log, 1);
  const EventHandle event = machine().create_event(0, EventTiming::on, EventWait::block);
  machine().record_event(event, first);
  machine().wait_event(second, event);
  machine().destroy_event(event);
  machine().destroy_stream(first);
  append(second, log, 2);
  gate.open();
  machine().synchronize_stream(second);
  EXPECT_EQ(log, (std::vector<int>{1, 2}));
}

TEST_F(HostStreams, EventsNeverRecordedAreComplete) {
  const EventHandle event = machine().create_event(0, EventTiming::off, EventWait::spin);
  EXPECT_TRUE(machine().query_event(event));
  machine().synchronize_event(event);
  machine().wait_event(machine().default_stream(0), event);
  machine().synchronize_device(0);
  machine().destroy_event(event);
}

TEST_F(HostStreams, EventsMeasureTime) {
  const StreamRef stream = machine().default_stream(0);
  const EventHandle start = machine().create_event(0, EventTiming::on, EventWait::block);
  const EventHandle end = machine().create_event(0, EventTiming::on, EventWait::block);
  const EventHandle untimed = machine().create_event(0, EventTiming::off, EventWait::block);
  EXPECT_THAT(error_message(ErrorCode::invalid_argument, [&] { (void)machine().elapsed_time(start, end); }),
              HasSubstr("start event was never recorded"));
  EXPECT_THAT(error_message(ErrorCode::invalid_argument, [&] { (void)machine().elapsed_time(untimed, end); }),
              HasSubstr("timing off"));
  machine().record_event(start, stream);
  launch(stream, "sleep", {}, [](auto) { std::this_thread::sleep_for(std::chrono::milliseconds(20)); });
  machine().record_event(end, stream);
  machine().synchronize_event(end);
  const float elapsed = machine().elapsed_time(start, end);
  EXPECT_GE(elapsed, 20.0F);
  EXPECT_LT(elapsed, 10'000.0F);
  for (const EventHandle event : {start, end, untimed}) machine().destroy_event(event);
}

TEST_F(HostStreams, FailuresSurfaceOnceNamingTheOperation) {
  const StreamRef stream = machine().create_stream(2, 0);
  launch(stream, "broken", {}, [](auto) { throw std::runtime_error("out of cheese"); });
  EXPECT_THAT(
      error_message(ErrorCode::device_failure, [&] { machine().synchronize_stream(stream); }),
      AllOf(HasSubstr("kernel 'broken'"), HasSubstr("stream 1 of device 2"), HasSubstr("out of cheese")));
  EXPECT_NO_THROW(machine().synchronize_stream(stream));
  EXPECT_NO_THROW(machine().synchronize_device(2));
}

TEST_F(HostStreams, FailuresAreCountedAndLaterWorkRuns) {
  const StreamRef stream = machine().create_stream(0, 0);
  std::vector<int> log;
  for (const char* name : {"first", "second", "third"}) {
    launch(stream, name, {}, [](auto) { throw std::runtime_error("no"); });
    append(stream, log, 1);
  }
  EXPECT_NO_THROW(machine().synchronize_device(1)) << "failures belong to a device";
  EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { machine().synchronize_device(0); }),
              AllOf(HasSubstr("kernel 'first'"), HasSubstr("2 later failures")));
  EXPECT_EQ(log.size(), 3U);
}

TEST_F(HostStreams, QueriesReportFailuresToo) {
  const EventHandle event = machine().create_event(0, EventTiming::off, EventWait::block);
  machine().record_event(event, machine().default_stream(0));
  const auto fail_and_finish = [&] {
    std::promise<void> done;
    launch(machine().default_stream(0), "broken", {}, [](auto) { throw 1; });
    launch(machine().default_stream(0), "signal", {}, [&done](auto) { done.set_value(); });
    done.get_future().wait();
  };
  fail_and_finish();
  error_message(ErrorCode::device_failure,
                [&] { (void)machine().query_stream(machine().default_stream(0)); });
  fail_and_finish();
  error_message(ErrorCode::device_failure, [&] { (void)machine().query_event(event); });
  fail_and_finish();
  error_message(ErrorCode::device_failure, [&] { machine().synchronize_event(event); });
  machine().destroy_event(event);
}

TEST_F(HostStreams, AreUsableFromManyThreads) {
  constexpr int thread_count = 4;
  constexpr int rounds = 300;
  std::atomic<int> ran{0};
  std::vector<std::thread> threads;
  for (int t = 0; t < thread_count; ++t) {
    threads.emplace_back([&, t] {
      const EventHandle event = machine().create_event(t, EventTiming::off, EventWait::block);
      for (int i = 0; i < rounds; ++i) {
        const StreamRef stream = machine().create_stream(t, 0);
        launch(stream, "count", {}, [&ran](auto) { ++ran; });
        machine().record_event(event, stream);
        machine().wait_event(machine().default_stream((t + 1) % thread_count), event);
        launch(machine().default_stream((t + 1) % thread_count), "count", {}, [&ran](auto) { ++ran; });
        machine().destroy_stream(stream);
      }
      machine().synchronize_device(t);
      machine().destroy_event(event);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int device = 0; device < thread_count; ++device) machine().synchronize_device(device);
  EXPECT_EQ(ran.load(), 2 * thread_count * rounds);
}

TEST_F(HostStreams, ZeroByteOperationsKeepStreamOrder) {
  const StreamRef stream = machine().default_stream(0);
  machine().copy(stream, {});
  machine().fill(stream, {});
  machine().fan_out(stream, {});
  OrderedReduction no_sum;
  no_sum.input_count = 1;
  machine().ordered_reduction(stream, no_sum);
  machine().random_fill(stream, {});
  Convert empty;
  empty.rank = 1;
  machine().convert(stream, empty);
  EXPECT_NO_THROW(machine().synchronize_stream(stream));
  EXPECT_EQ(control().operations_enqueued(), 6U);
}

/// The library never destroys its backend: what still runs at exit runs while static objects are being
/// destroyed.
[[noreturn]] void exit_with_work_in_flight() {
  static auto* const host = new HostBackend(make_host_backend({}));
  for (int device = 0; device < host->backend->device_count(); ++device) {
    for (int i = 0; i < 10'000; ++i) {
      host->control->launch(host->backend->default_stream(device), "endless", {},
                            [](auto) { throw std::runtime_error("a message long enough to be allocated"); });
    }
  }
  std::exit(0);
}

TEST(HostStreamsDeathTest, ExitWithWorkInFlightIsClean) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(exit_with_work_in_flight(), testing::ExitedWithCode(0), "^$");
}

TEST_F(HostStreams, DoNotHangAForkedChild) {
  Gate gate;
  gate.block(machine(), machine().default_stream(0));
  gate.wait_until_reached();  // until then the stream's thread may allocate, under a sanitizer's lock
  const pid_t child = fork();
  if (child == 0) {
    alarm(30);  // ends it, should it wait for that thread
    shut_down();
    _exit(0);
  }
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

}  // namespace
}  // namespace tutti::backend
