// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_machine.hpp"
#include "support/timing.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <numeric>
#include <set>
#include <thread>

#include <gmock/gmock.h>

/// Stream capture on virtual devices: what CUDA does, errors included.
namespace tutti::backend {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class HostGraphs : public HostMachine {
 protected:
  void TearDown() override {
    for (const GraphHandle graph : graphs_) machine().destroy_graph(graph);
    for (int device = 0; device < machine().device_count(); ++device) machine().synchronize_device(device);
  }

  GraphHandle capture(StreamRef stream, const std::function<void()>& work) {
    machine().begin_capture(stream, CaptureErrorMode::thread);
    work();
    return kept(machine().end_capture(stream, nullptr));
  }
  GraphHandle kept(GraphHandle graph) { return graphs_.emplace_back(graph); }
  /// `later` waits for what `earlier` has been given.
  void order(StreamRef earlier, StreamRef later) {
    const EventHandle event = machine().create_event(earlier.device, EventTiming::off, EventWait::spin);
    machine().record_event(event, earlier);
    machine().wait_event(later, event);
    machine().destroy_event(event);
  }
  void append(StreamRef stream, int value) {
    launch(stream, "append", {}, [this, value](auto) {
      const std::lock_guard lock(mutex_);
      log_.push_back(value);
    });
  }
  std::vector<int> log() {
    const std::lock_guard lock(mutex_);
    return std::exchange(log_, {});
  }
  std::ptrdiff_t place(const std::vector<int>& entries, int value) {
    return std::ranges::find(entries, value) - entries.begin();
  }
  /// The capture on `stream` ends with an error that says why it is invalid.
  void expect_invalid(StreamRef stream, const std::string& why) {
    EXPECT_TRUE(machine().is_capturing(stream));
    EXPECT_THAT(error_message(ErrorCode::unsupported, [&] { append(stream, 9); }), HasSubstr(why));
    EXPECT_THAT(error_message(ErrorCode::unsupported, [&] { (void)machine().capture_id(stream); }),
                HasSubstr(why));
    EXPECT_THAT(error_message(ErrorCode::unsupported, [&] { (void)machine().end_capture(stream, nullptr); }),
                AllOf(HasSubstr("end_capture"), HasSubstr(why)));
    EXPECT_FALSE(machine().is_capturing(stream));
    append(stream, 1);
    machine().synchronize_stream(stream);
    EXPECT_EQ(log(), std::vector<int>{1}) << "an ordinary stream again";
  }

  const StreamRef stream_ = machine().create_stream(0, 0);
  const StreamRef other_ = machine().create_stream(1, 0);

 private:
  std::vector<GraphHandle> graphs_;
  std::mutex mutex_;
  std::vector<int> log_;
};

TEST_F(HostGraphs, RunWhatWasRecordedAtEachLaunchInStreamOrder) {
  const GraphHandle graph = capture(stream_, [&] {
    EXPECT_TRUE(machine().is_capturing(stream_));
    EXPECT_FALSE(machine().is_capturing(other_));
    append(stream_, 1);
    append(stream_, 2);
  });
  EXPECT_FALSE(machine().is_capturing(stream_));
  machine().synchronize_stream(stream_);
  EXPECT_EQ(log(), std::vector<int>{});
  append(stream_, 0);
  machine().launch_graph(graph, stream_);
  append(stream_, 3);
  machine().launch_graph(graph, stream_);
  machine().synchronize_stream(stream_);
  EXPECT_EQ(log(), (std::vector<int>{0, 1, 2, 3, 1, 2}));
}

TEST_F(HostGraphs, GiveEveryCaptureAnIdOfItsOwn) {
  std::set<std::uint64_t> ids{machine().capture_id(stream_)};
  EXPECT_EQ(*ids.begin(), 0U);
  for (int i = 0; i < 3; ++i) {
    (void)capture(stream_, [&] {
      order(stream_, other_);
      EXPECT_EQ(machine().capture_id(other_), machine().capture_id(stream_));
      ids.insert(machine().capture_id(stream_));
      order(other_, stream_);
    });
  }
  EXPECT_EQ(ids.size(), 4U);
}

TEST_F(HostGraphs, KeepTheOrderOfTheirStreams) {
  const GraphHandle graph = capture(stream_, [&] {
    append(stream_, 1);
    order(stream_, other_);
    append(other_, 2);
    append(other_, 3);
    append(stream_, 4);
    order(other_, stream_);
    append(stream_, 5);
  });
  for (std::uint64_t seed = 0; seed < 40; ++seed) {
    control().set_interleaving_seed(seed == 0 ? std::nullopt : std::optional(seed));
    append(stream_, 0);
    machine().launch_graph(graph, stream_);
    append(stream_, 6);
    machine().synchronize_stream(stream_);
    const std::vector<int> entries = log();
    ASSERT_EQ(entries.size(), 7U);
    for (const auto& [before, after] : {std::pair{0, 1}, {1, 2}, {2, 3}, {1, 4}, {3, 5}, {4, 5}, {5, 6}})
      EXPECT_LT(place(entries, before), place(entries, after)) << "seed " << seed;
  }
  control().set_interleaving_seed(std::nullopt);
}

TEST_F(HostGraphs, RunTheirStreamsAtTheSameTime) {
  auto* const flags = new (machine().allocate_pinned(2 * sizeof(SharedFlag))) SharedFlag[2];
  // Each waits for the other: none of them may come behind the other as a whole.
  const GraphHandle graph = capture(stream_, [&] {
    order(stream_, other_);
    machine().signal(stream_, flags[0], 1);
    machine().wait_signals(stream_, {&flags[1], 1}, 1);
    machine().signal(other_, flags[1], 1);
    machine().wait_signals(other_, {&flags[0], 1}, 1);
    append(other_, 1);
    order(other_, stream_);
  });
  machine().launch_graph(graph, stream_);
  machine().synchronize_stream(stream_);
  EXPECT_EQ(log(), std::vector<int>{1});
  machine().free_pinned(flags);
}

TEST_F(HostGraphs, FollowTheirOwnLaunchesOnOtherStreams) {
  const GraphHandle graph = capture(stream_, [&] {
    append(stream_, 1);
    order(stream_, other_);
    append(other_, 2);
    order(other_, stream_);
  });
  const StreamRef elsewhere = machine().create_stream(2, 0);
  Gate gate;
  gate.block(machine(), stream_);
  machine().launch_graph(graph, stream_);
  machine().launch_graph(graph, elsewhere);
  gate.open();
  machine().synchronize_stream(elsewhere);
  EXPECT_EQ(log(), (std::vector<int>{1, 2, 1, 2}));
}

TEST_F(HostGraphs, CanBePartOfOthers) {
  const GraphHandle inner = capture(stream_, [&] {
    append(stream_, 1);
    order(stream_, other_);
    append(other_, 2);
    order(other_, stream_);
    append(stream_, 3);
  });
  const GraphHandle outer = capture(stream_, [&] {
    append(stream_, 0);
    machine().launch_graph(inner, stream_);
    machine().launch_graph(inner, stream_);
    append(stream_, 4);
  });
  machine().launch_graph(outer, stream_);
  machine().synchronize_stream(stream_);
  EXPECT_EQ(log(), (std::vector<int>{0, 1, 2, 3, 1, 2, 3, 4}));
}

TEST_F(HostGraphs, ReadWhatMemoryHoldsWhenTheyRun) {
  std::vector<int> source{1, 2, 3};
  std::vector<int> target(3);
  int* const there = allocate<int>(0, 3);
  const GraphHandle graph = capture(stream_, [&] {
    copy(stream_, there, source.data(), 3 * sizeof(int));
    copy(stream_, target.data(), there, 3 * sizeof(int));
  });
  EXPECT_EQ(target, std::vector<int>(3));
  for (const int first : {7, 9}) {
    std::iota(source.begin(), source.end(), first);
    machine().launch_graph(graph, stream_);
    machine().synchronize_stream(stream_);
    EXPECT_EQ(target, source);
  }
  machine().free_device(0, there);
}

TEST_F(HostGraphs, CountTheirOperationsAndMeetFaultsAtEachLaunch) {
  std::byte* const memory = bytes_of(allocate<int>(0, 4));
  control().inject({.operation = virtual_devices::Operation::kernel,
                    .kind = virtual_devices::FaultKind::fail_asynchronously,
                    .device = Device(0),
                    .skip = 1});
  const GraphHandle graph =
      capture(stream_, [&] { machine().fill(stream_, {.target = memory, .count = 4}); });
  const std::uint64_t before = control().operations_enqueued();
  machine().launch_graph(graph, stream_);
  machine().synchronize_stream(stream_);
  machine().launch_graph(graph, stream_);
  EXPECT_THAT(error_message(ErrorCode::device_failure, [&] { machine().synchronize_stream(stream_); }),
              AllOf(HasSubstr("fill"), HasSubstr("injected fault")));
  machine().launch_graph(graph, stream_);
  machine().synchronize_stream(stream_);
  EXPECT_EQ(control().operations_enqueued(), before + 3);
  machine().free_device(0, memory);
}

TEST_F(HostGraphs, KeepWhatTheyRetainUntilTheirLastLaunchIsOver) {
  auto resource = std::make_shared<int>(1);
  const std::weak_ptr<int> watched = resource;
  Gate gate;
  machine().begin_capture(stream_, CaptureErrorMode::thread);
  append(stream_, 1);
  machine().retain_until_graph_destroyed(stream_, std::move(resource));
  const GraphHandle graph = machine().end_capture(stream_, nullptr);
  gate.block(machine(), stream_);
  machine().launch_graph(graph, stream_);
  machine().destroy_graph(graph);
  EXPECT_FALSE(watched.expired());
  gate.open();
  machine().synchronize_stream(stream_);
  EXPECT_TRUE(watched.expired());
  EXPECT_EQ(log(), std::vector<int>{1});
}

TEST_F(HostGraphs, RefuseStreamsThatDoNotComeBack) {
  machine().begin_capture(stream_, CaptureErrorMode::thread);
  order(stream_, other_);
  append(other_, 1);
  EXPECT_THAT(error_message(ErrorCode::unsupported, [&] { (void)machine().end_capture(stream_, nullptr); }),
              AllOf(HasSubstr("end_capture"), HasSubstr("unjoined work on"), HasSubstr("of device 1")));
  for (const StreamRef stream : {stream_, other_}) {
    EXPECT_FALSE(machine().is_capturing(stream));
    EXPECT_TRUE(machine().query_stream(stream));
  }
}

TEST_F(HostGraphs, RefuseToBeWaitedForByTheHost) {
  const EventHandle event = machine().create_event(0, EventTiming::on, EventWait::spin);
  const std::pair<std::string, std::function<void()>> calls[] = {
      {"synchronize_stream", [&] { machine().synchronize_stream(stream_); }},
      {"query_stream", [&] { (void)machine().query_stream(stream_); }},
      {"synchronize_device", [&] { machine().synchronize_device(0); }},
      {"synchronize_event", [&] { machine().synchronize_event(event); }},
      {"query_event", [&] { (void)machine().query_event(event); }},
  };
  for (const auto& [name, call] : calls) {
    SCOPED_TRACE(name);
    machine().begin_capture(stream_, CaptureErrorMode::thread);
    machine().record_event(event, stream_);
    EXPECT_THAT(error_message(ErrorCode::unsupported, call), AllOf(HasSubstr(name), HasSubstr("captur")));
    expect_invalid(stream_, name);
  }
  EXPECT_THAT(error_message(ErrorCode::unsupported, [&] { (void)machine().query_event(event); }),
              HasSubstr("recorded during a capture"));
  EXPECT_THAT(error_message(ErrorCode::invalid_argument, [&] { (void)machine().elapsed_time(event, event); }),
              HasSubstr("recorded during a capture"));
  EXPECT_THAT(error_message(ErrorCode::unsupported, [&] { machine().wait_event(stream_, event); }),
              HasSubstr("a capture that has ended"));
  machine().destroy_event(event);
}

TEST_F(HostGraphs, RefuseEventsOfOthers) {
  const EventHandle outside = machine().create_event(0, EventTiming::off, EventWait::spin);
  machine().wait_event(stream_, outside);  // never recorded
  machine().record_event(outside, stream_);
  machine().begin_capture(stream_, CaptureErrorMode::thread);
  EXPECT_THAT(error_message(ErrorCode::unsupported, [&] { machine().wait_event(stream_, outside); }),
              HasSubstr("recorded outside the capture"));
  expect_invalid(stream_, "recorded outside the capture");

  machine().begin_capture(stream_, CaptureErrorMode::thread);
  machine().begin_capture(other_, CaptureErrorMode::thread);
  EXPECT_THAT(error_message(ErrorCode::unsupported, [&] { order(stream_, other_); }),
              HasSubstr("different captures"));
  expect_invalid(stream_, "of another");
  expect_invalid(other_, "of another");
  machine().destroy_event(outside);
}

TEST_F(HostGraphs, RefuseDefaultStreams) {
  EXPECT_THAT(
      error_message(ErrorCode::unsupported,
                    [&] { machine().begin_capture(machine().default_stream(2), CaptureErrorMode::thread); }),
      HasSubstr("default stream of device 2"));
  machine().begin_capture(stream_, CaptureErrorMode::thread);
  EXPECT_THAT(error_message(ErrorCode::unsupported, [&] { order(stream_, machine().default_stream(0)); }),
              HasSubstr("default stream of device 0"));
  expect_invalid(stream_, "default stream");
}

TEST_F(HostGraphs, EndWhereAndByWhomTheyBegan) {
  (void)error_message(ErrorCode::invalid_argument, [&] { (void)machine().end_capture(stream_, nullptr); });
  machine().begin_capture(stream_, CaptureErrorMode::thread);
  (void)error_message(ErrorCode::invalid_argument,
                      [&] { machine().begin_capture(stream_, CaptureErrorMode::thread); });
  std::thread([&] {
    EXPECT_THAT(error_message(ErrorCode::unsupported, [&] { (void)machine().end_capture(stream_, nullptr); }),
                HasSubstr("another thread"));
  }).join();
  order(stream_, other_);
  EXPECT_THAT(error_message(ErrorCode::unsupported, [&] { (void)machine().end_capture(other_, nullptr); }),
              HasSubstr("cannot end on"));
  expect_invalid(stream_, "another stream");
}

TEST_F(HostGraphs, MayEndOnAnotherThreadIfTheirCaptureIsRelaxed) {
  machine().begin_capture(stream_, CaptureErrorMode::relaxed);
  append(stream_, 1);
  GraphHandle graph = nullptr;
  std::thread([&] { graph = kept(machine().end_capture(stream_, nullptr)); }).join();
  machine().launch_graph(graph, stream_);
  machine().synchronize_stream(stream_);
  EXPECT_EQ(log(), std::vector<int>{1});
}

TEST_F(HostGraphs, DescribeWhatTheyHold) {
  machine().begin_capture(stream_, CaptureErrorMode::thread);
  append(stream_, 1);
  order(stream_, other_);
  machine().fill(other_, {});
  order(other_, stream_);
  std::string description;
  (void)kept(machine().end_capture(stream_, &description));
  EXPECT_THAT(description, testing::StartsWith("digraph tutti {"));
  for (const char* const part : {"kernel 'append'", "fill", "device 1", "->"})
    EXPECT_THAT(description, HasSubstr(part));
}

TEST_F(HostGraphs, OutliveStreamsThatAreDestroyedMeanwhile) {
  for (const bool is_origin : {true, false}) {
    const StreamRef first = machine().create_stream(0, 0);
    const StreamRef second = machine().create_stream(1, 0);
    machine().begin_capture(first, CaptureErrorMode::thread);
    order(first, second);
    machine().destroy_stream(is_origin ? first : second);
    if (is_origin) {
      EXPECT_FALSE(machine().is_capturing(second));
    } else {
      EXPECT_THAT(error_message(ErrorCode::unsupported, [&] { (void)machine().end_capture(first, nullptr); }),
                  HasSubstr("destroyed"));
    }
    machine().synchronize_device(0);
    machine().destroy_stream(is_origin ? second : first);
  }
}

TEST_F(HostGraphs, AreLaunchedByManyThreads) {
  std::atomic<int> runs{0};
  constexpr int threads = 4;
  constexpr int launches = 50;
  std::vector<GraphHandle> graphs;
  for (int i = 0; i < threads; ++i) {
    graphs.push_back(capture(stream_, [&] {
      order(stream_, other_);
      launch(other_, "count", {}, [&](auto) { ++runs; });
      order(other_, stream_);
    }));
  }
  std::vector<std::thread> launching;
  for (int i = 0; i < threads; ++i) {
    launching.emplace_back([&, i] {
      for (int k = 0; k < launches; ++k)
        machine().launch_graph(graphs[static_cast<std::size_t>((i + k) % threads)],
                               i % 2 == 0 ? stream_ : other_);
    });
  }
  for (std::thread& thread : launching) thread.join();
  machine().synchronize_stream(stream_);
  machine().synchronize_stream(other_);
  EXPECT_EQ(runs, threads * launches);
}

}  // namespace
}  // namespace tutti::backend
