// SPDX-License-Identifier: Apache-2.0
#include "tutti/event.hpp"

#include "support/errors.hpp"
#include "support/stream_gate.hpp"
#include "tutti/error.hpp"

#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::refuses;
using test::StreamFlag;
using test::StreamGate;

constexpr EventOptions timed{.enable_timing = true};

testing::AssertionResult elapsed_time_refused(const Event& start, const Event& end,
                                              const std::string& reason) {
  return refuses([&] { static_cast<void>(start.elapsed_time(end)); }, ErrorCode::invalid_argument,
                 {"Event::elapsed_time", reason});
}

TEST(Event, ThatWasNeverRecordedHoldsNobodyUp) {
  const Event event;
  EXPECT_FALSE(event.is_created());
  EXPECT_EQ(event.device(), -1);
  EXPECT_EQ(event.native_handle(), nullptr);
  EXPECT_TRUE(event.query());
  event.synchronize();
  const Stream stream(0);
  event.wait(stream);
  const StreamFlag done(stream);
  EXPECT_TRUE(done.becomes_set());
}

TEST(Event, IsCreatedAtItsFirstRecord) {
  Event event;
  event.record();
  EXPECT_TRUE(event.is_created());
  EXPECT_EQ(event.device(), current_device());
  const void* handle = event.native_handle();
  event.record();
  EXPECT_EQ(event.native_handle(), handle);
  event.synchronize();
}

TEST(Event, IsCompleteOnceTheWorkBeforeItIsDone) {
  const Stream stream(0);
  StreamGate gate(stream);
  Event event;
  event.record(stream);
  EXPECT_FALSE(event.query());
  gate.open_soon();
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST(Event, SynchronizesWithoutSpinningWhenBlocking) {
  const Stream stream(0);
  StreamGate gate(stream);
  Event event(EventOptions{.blocking = true});
  event.record(stream);
  gate.open_soon();
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST(Event, MarksOnlyWhatWasQueuedBeforeIt) {
  const Stream stream(0);
  Event event;
  event.record(stream);
  const StreamGate gate(stream);
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST(Event, IsWaitedForAsItWasWhenTheWaitWasQueued) {
  const Stream first(0);
  const Stream second(0);
  const Stream waiting(0);
  Event event;
  event.record(first);
  event.wait(waiting);
  const StreamGate gate(second);
  event.record(second);  // a new mark, which the wait above knows nothing of
  const StreamFlag done(waiting);
  EXPECT_TRUE(done.becomes_set());
  EXPECT_FALSE(event.query());
}

TEST(Event, MayBeWaitedForByAnyThread) {
  const Stream stream(0);
  StreamGate gate(stream);
  Event event;
  event.record(stream);
  std::thread waiter([&] { event.synchronize(); });
  gate.open();
  waiter.join();
  EXPECT_TRUE(event.query());
}

TEST(Event, MovesWithItsMark) {
  Event source;
  source.record(Stream(0));
  const void* handle = source.native_handle();
  Event target(std::move(source));
  EXPECT_EQ(target.native_handle(), handle);
  EXPECT_FALSE(source.is_created());  // NOLINT(bugprone-use-after-move): moved from means as if new
  source.record(Stream(0));
  target = std::move(source);
  EXPECT_TRUE(target.is_created());
  Event& itself = target;
  target = std::move(itself);
  EXPECT_TRUE(target.is_created());
  target.synchronize();
}

TEST(Event, MayBeDestroyedWhilePending) {
  const Stream stream(0);
  const Stream waiting(0);
  StreamGate gate(stream);
  {
    Event event;
    event.record(stream);
    event.wait(waiting);
  }
  const StreamFlag done(waiting);
  EXPECT_TRUE(done.stays_unset());
  gate.open();
  EXPECT_TRUE(done.becomes_set());
}

TEST(Event, MeasuresTime) {
  const Stream stream(0);
  Event start(timed);
  Event end(timed);
  start.record(stream);
  StreamGate gate(stream);
  gate.open_soon();  // after 20 ms
  end.record(stream);
  end.synchronize();
  const float elapsed = start.elapsed_time(end);
  EXPECT_GT(elapsed, 1.0F);
  EXPECT_LT(elapsed, 30000.0F);
  EXPECT_EQ(start.elapsed_time(start), 0.0F);
}

TEST(EventElapsedTime, NeedsTimingOnBothEvents) {
  Event with(timed);
  Event without;
  with.record();
  without.record();
  synchronize();
  EXPECT_TRUE(elapsed_time_refused(without, with, "start event was made without timing"));
  EXPECT_TRUE(elapsed_time_refused(with, without, "end event was made without timing"));
}

TEST(EventElapsedTime, NeedsBothEventsRecorded) {
  Event recorded(timed);
  const Event unrecorded(timed);
  recorded.record();
  synchronize();
  EXPECT_TRUE(elapsed_time_refused(unrecorded, recorded, "start event was never recorded"));
  EXPECT_TRUE(elapsed_time_refused(recorded, unrecorded, "end event was never recorded"));
}

TEST(EventElapsedTime, NeedsBothEventsComplete) {
  const Stream stream(0);
  Event complete(timed);
  Event incomplete(timed);
  complete.record(Stream(0));
  complete.synchronize();
  const StreamGate gate(stream);
  incomplete.record(stream);
  EXPECT_TRUE(elapsed_time_refused(incomplete, complete, "start event is not complete"));
  EXPECT_TRUE(elapsed_time_refused(complete, incomplete, "end event is not complete"));
}

TEST(Event, PrintsItself) {
  Event event;
  EXPECT_EQ(to_string(event), "an event that was never recorded");
  event.record(Stream(0));
  const std::string text = to_string(event);
  EXPECT_TRUE(text.starts_with("event 0x")) << text;
  EXPECT_TRUE(text.ends_with(" of device:0")) << text;
  std::ostringstream printed;
  printed << event;
  EXPECT_EQ(printed.str(), text);
}

TEST(Event, HasAHandleForOthersOnlyIfMadeForThem) {
  Event ordinary;
  EXPECT_TRUE(refuses([&] { static_cast<void>(ordinary.ipc_handle()); }, ErrorCode::invalid_argument,
                      {"Event::ipc_handle", "without options.interprocess"}));
  EXPECT_TRUE(refuses([] { const Event event({.enable_timing = true, .interprocess = true}); },
                      ErrorCode::invalid_argument,
                      {"Event", "options.interprocess and options.enable_timing", "expected one"}));
}

class EventOnTwoDevices : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices, found " << device_count();
  }
};

TEST_F(EventOnTwoDevices, IsRecordedOnItsFirstDeviceOnly) {
  Event event;
  event.record(Stream(1));
  EXPECT_EQ(event.device(), 1);
  EXPECT_TRUE(refuses([&] { event.record(Stream(0)); }, ErrorCode::invalid_argument,
                      {"Event::record", "stream is on device 0", "expected device 1"}));
  event.record(Stream(1));
  event.synchronize();
}

TEST_F(EventOnTwoDevices, IsWaitedForByAnyDevice) {
  const Stream earlier(0);
  const Stream later(1);
  StreamGate gate(earlier);
  Event event;
  event.record(earlier);
  event.wait(later);
  const StreamFlag done(later);
  EXPECT_TRUE(done.stays_unset());
  gate.open();
  EXPECT_TRUE(done.becomes_set());
}

TEST_F(EventOnTwoDevices, MeasuresNoTimeBetweenDevices) {
  Event start(timed);
  Event end(timed);
  start.record(Stream(0));
  end.record(Stream(1));
  start.synchronize();
  end.synchronize();
  EXPECT_TRUE(elapsed_time_refused(start, end, "start event is on device 0 and the end event on device 1"));
}

}  // namespace
}  // namespace tutti
