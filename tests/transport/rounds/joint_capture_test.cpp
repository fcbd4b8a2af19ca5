// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/joint_capture.hpp"

#include "device/runtime.hpp"
#include "stream/streams.hpp"
#include "support/errors.hpp"
#include "support/machines/absent_backend.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::transport::team {
namespace {

using backend::EventHandle;
using backend::StreamHandle;
using backend::StreamRef;

/// Streams and events by CUDA's rules for captures: a stream joins a capture by waiting for an event that was
/// recorded in it, and must have come back to where the capture began when that ends.
class CapturingBackend final : public test::AbsentBackend {
 public:
  void start(StreamRef origin) { at(origin).capture = ++last_capture_; }
  void enqueue(StreamRef stream) { ++at(stream).seen[stream.handle]; }
  /// Whether what is queued next on `stream` waits for all that has been queued on `other`.
  bool follows(StreamRef stream, StreamRef other) {
    return at(stream).seen[other.handle] == at(other).seen[other.handle];
  }
  /// Whether everything captured has come back to `origin`; no stream is captured any longer.
  bool finish(StreamRef origin) {
    const std::uint64_t capture = at(origin).capture;
    bool is_whole = true;
    for (auto& [handle, mark] : streams_) {
      if (mark.capture != capture) continue;
      is_whole = is_whole && at(origin).seen[handle] == mark.seen[handle];
      mark.capture = 0;
    }
    return is_whole;
  }
  /// The next time that `stream` is to wait.
  void fail_to_wait(StreamRef stream) { failing_ = stream; }

  EventHandle create_event(int, backend::EventTiming, backend::EventWait) override {
    return reinterpret_cast<EventHandle>(++last_event_);
  }
  void record_event(EventHandle event, StreamRef stream) override { events_[event] = at(stream); }
  void wait_event(StreamRef stream, EventHandle event) override {
    if (failing_ == stream) {
      failing_ = {};
      throw Error(ErrorCode::device_failure, "the stream has failed");
    }
    const Mark& mark = events_.at(event);
    Mark& own = at(stream);
    if (own.capture == 0) own.capture = mark.capture;
    if (own.capture != mark.capture) throw Error(ErrorCode::device_failure, "captures would merge");
    for (const auto& [other, count] : mark.seen) own.seen[other] = std::max(own.seen[other], count);
  }
  void destroy_event(EventHandle event) noexcept override { events_.erase(event); }
  bool is_capturing(StreamRef stream) override { return at(stream).capture != 0; }
  std::uint64_t capture_id(StreamRef stream) override { return at(stream).capture; }
  StreamRef default_stream(int device) override { return {nullptr, device}; }

 private:
  /// How far each stream had got, as a stream or event knows of it.
  struct Mark {
    std::uint64_t capture = 0;
    std::map<StreamHandle, int> seen;
  };
  Mark& at(StreamRef stream) { return streams_[stream.handle]; }

  std::map<StreamHandle, Mark> streams_;
  std::map<EventHandle, Mark> events_;
  StreamRef failing_;
  std::uint64_t last_capture_ = 0;
  std::uintptr_t last_event_ = 0;
};

class JointCaptures : public testing::Test {
 protected:
  using Streams = std::vector<StreamRef>;

  static StreamRef stream(std::uintptr_t number, int device) {
    return {reinterpret_cast<StreamHandle>(number), device};
  }
  void call(const Streams& streams) {
    ASSERT_TRUE(capture_.begin(streams));
    for (const StreamRef each : streams) machine_.enqueue(each);
    capture_.end();
  }

  /// Returns the stream to which others return.
  [[nodiscard]] StreamRef returned_to() const { return capture_.origins().front(); }

  CapturingBackend* const backend_ = new CapturingBackend;  // the runtime's
  Runtime runtime_{std::unique_ptr<backend::Backend>(backend_), nullptr};
  CapturingBackend& machine_ = *backend_;
  JointCapture capture_{runtime_};
  const StreamRef first_ = stream(1, 0);
  const StreamRef second_ = stream(2, 1);
};

TEST_F(JointCaptures, LeaveCallsAloneThatAreNotCaptured) {
  EXPECT_FALSE(capture_.begin(Streams{first_, second_}));
  machine_.enqueue(first_);
  capture_.end();
  EXPECT_FALSE(machine_.follows(second_, first_));
  EXPECT_FALSE(capture_.has_captured());
}

TEST_F(JointCaptures, BringStreamsInAndBack) {
  for (const StreamRef origin : {first_, second_}) {
    machine_.start(origin);
    call({first_, second_});
    EXPECT_EQ(returned_to(), origin);
    call({first_, second_});
    EXPECT_TRUE(machine_.finish(origin));
    EXPECT_TRUE(capture_.has_captured());
  }
}

TEST_F(JointCaptures, MayBeginAheadOfTheCall) {
  const StreamRef third = stream(3, 1);
  machine_.start(first_);
  call({first_, second_});
  ASSERT_TRUE(capture_.begin(Streams{first_, third}));
  EXPECT_NE(machine_.capture_id(third), 0U);
  call({first_, third});
  EXPECT_EQ(returned_to(), first_);
  EXPECT_TRUE(machine_.follows(third, second_));
  EXPECT_TRUE(machine_.finish(first_));
}

TEST_F(JointCaptures, DoNotHoldUpStreamsThatHaveJoined) {
  machine_.start(first_);
  call({first_, second_});
  machine_.enqueue(first_);
  ASSERT_TRUE(capture_.begin(Streams{first_, second_}));
  EXPECT_FALSE(machine_.follows(second_, first_)) << "it is part of the capture already";
  capture_.end();
  EXPECT_TRUE(machine_.finish(first_));
}

TEST_F(JointCaptures, LeaveStreamsToWhoHadThemJoin) {
  machine_.start(first_);
  runtime_.part<tutti::Streams>().order(first_, second_);
  for (int i = 0; i < 3; ++i) call({first_, second_});
  EXPECT_FALSE(machine_.follows(first_, second_));
  EXPECT_FALSE(machine_.follows(second_, first_));
  runtime_.part<tutti::Streams>().order(second_, first_);
  EXPECT_TRUE(machine_.finish(first_));
}

TEST_F(JointCaptures, FollowTheCallBeforeOnOtherStreams) {
  const StreamRef third = stream(3, 0);
  machine_.start(first_);
  runtime_.part<tutti::Streams>().order(first_, third);
  call({first_, second_});
  ASSERT_TRUE(capture_.begin(Streams{third, second_}));
  EXPECT_TRUE(machine_.follows(third, first_));
  machine_.enqueue(third);
  machine_.enqueue(second_);
  capture_.end();
  EXPECT_EQ(returned_to(), third);
  EXPECT_TRUE(machine_.follows(third, second_));
  runtime_.part<tutti::Streams>().order(third, first_);
  EXPECT_TRUE(machine_.finish(first_));
}

TEST_F(JointCaptures, ComeBackWhereTheyCameFromIfNoOtherStreamIsCaptured) {
  const StreamRef third = stream(3, 0);
  machine_.start(first_);
  call({first_, second_});
  call({third, second_});
  EXPECT_TRUE(machine_.finish(first_));
}

TEST_F(JointCaptures, StartAnewWithEachCapture) {
  machine_.start(first_);
  call({first_, second_});
  EXPECT_TRUE(machine_.finish(first_));
  machine_.start(second_);
  call({second_, first_});
  EXPECT_EQ(returned_to(), second_);
  EXPECT_TRUE(machine_.finish(second_));
}

TEST_F(JointCaptures, LeaveStreamsToTheirGraphs) {
  machine_.start(first_);
  machine_.start(second_);
  for (int i = 0; i < 2; ++i) call({first_, second_});
  EXPECT_EQ(capture_.origins().size(), 2U);
  EXPECT_FALSE(machine_.follows(first_, second_));
  EXPECT_FALSE(machine_.follows(second_, first_));
  EXPECT_TRUE(machine_.finish(first_));
  machine_.start(first_);
  EXPECT_NE(machine_.capture_id(second_), 0U);
  call({first_, second_});
  EXPECT_TRUE(machine_.finish(first_));
  EXPECT_TRUE(machine_.finish(second_));
  machine_.start(first_);
  call({first_, second_});
  EXPECT_EQ(capture_.origins().size(), 1U);
  EXPECT_TRUE(machine_.finish(first_));
}

TEST_F(JointCaptures, AreOfOneGraphWhereStreamsAreToJoin) {
  const StreamRef third = stream(3, 2);
  machine_.start(first_);
  machine_.start(second_);
  EXPECT_TRUE(test::refuses(
      [&] {
        static_cast<void>(capture_.begin(Streams{first_, second_, third}));
      },
      ErrorCode::unsupported, {"members 0 and 1", "different graphs", "that of 2 is not"}));
  EXPECT_TRUE(machine_.finish(first_));
  EXPECT_TRUE(machine_.finish(second_));
}

TEST_F(JointCaptures, LeaveNoGraphOpenForAnother) {
  const StreamRef third = stream(3, 1);
  machine_.start(first_);
  machine_.start(second_);
  call({first_, second_});
  machine_.start(third);
  EXPECT_TRUE(test::refuses(
      [&] {
        static_cast<void>(capture_.begin(Streams{first_, third}));
      },
      ErrorCode::unsupported, {"another graph", "still being captured"}));
  EXPECT_TRUE(machine_.finish(second_));
  call({first_, third});
  EXPECT_TRUE(machine_.finish(first_));
  EXPECT_TRUE(machine_.finish(third));
}

TEST_F(JointCaptures, HaveNoDefaultStream) {
  machine_.start(first_);
  const StreamRef default_stream = runtime_.backend().default_stream(1);
  EXPECT_TRUE(test::refuses(
      [&] {
        static_cast<void>(capture_.begin(Streams{first_, default_stream}));
      },
      ErrorCode::unsupported, {"Communicator: ", "on device 1 is the default stream"}));
  call({first_, second_});
  EXPECT_TRUE(machine_.finish(first_));
}

TEST_F(JointCaptures, HoldCallsOfOneGraphAtATime) {
  const StreamRef third = stream(3, 0);
  const StreamRef fourth = stream(4, 1);
  machine_.start(first_);
  call({first_, second_});
  machine_.start(third);
  EXPECT_TRUE(test::refuses(
      [&] {
        static_cast<void>(capture_.begin(Streams{third, fourth}));
      },
      ErrorCode::unsupported, {"another graph", "still being captured"}));
  EXPECT_TRUE(machine_.finish(third));
  call({first_, second_});
  EXPECT_TRUE(machine_.finish(first_)) << "what had been brought in comes back";
}

TEST_F(JointCaptures, FollowTheLastCallThatHasBegunAsAWhole) {
  const StreamRef third = stream(3, 0);
  const StreamRef fourth = stream(4, 1);
  machine_.start(first_);
  runtime_.part<tutti::Streams>().order(first_, third);
  call({first_, second_});
  machine_.fail_to_wait(fourth);
  EXPECT_TRUE(test::refuses(
      [&] {
        static_cast<void>(capture_.begin(Streams{third, fourth}));
      },
      ErrorCode::device_failure, {"has failed"}));
  capture_.abandon();
  ASSERT_TRUE(capture_.begin(Streams{third, second_}));
  EXPECT_TRUE(machine_.follows(third, first_));
  capture_.end();
  runtime_.part<tutti::Streams>().order(third, first_);
  EXPECT_TRUE(machine_.finish(first_));
}

TEST_F(JointCaptures, GoOnWithoutCallsThatAreAbandoned) {
  const StreamRef third = stream(3, 1);
  machine_.start(first_);
  machine_.fail_to_wait(third);
  EXPECT_TRUE(test::refuses(
      [&] {
        static_cast<void>(capture_.begin(Streams{first_, second_, third}));
      },
      ErrorCode::device_failure, {"has failed"}));
  machine_.enqueue(second_);
  capture_.abandon();
  capture_.abandon();
  EXPECT_TRUE(machine_.follows(first_, second_));
  call({first_, second_, third});
  EXPECT_TRUE(machine_.finish(first_));
}

}  // namespace
}  // namespace tutti::transport::team
