// SPDX-License-Identifier: Apache-2.0
#include "tutti/stream.hpp"

#include "device/external_streams.hpp"
#include "support/errors.hpp"
#include "support/machines/absent_backend.hpp"
#include "support/stream_gate.hpp"
#include "tutti/error.hpp"
#include "tutti/event.hpp"
#include "tutti/tensor.hpp"

#include <optional>
#include <set>
#include <sstream>
#include <thread>
#include <unordered_set>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::refuses;
using test::StreamFlag;
using test::StreamGate;

class StreamsOfTwoDevices : public testing::Test {
 protected:
  void SetUp() override {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices, found " << device_count();
  }
};

TEST(Stream, ComesFromAPoolOf32RoundRobin) {
  std::vector<Stream> first;
  for (int i = 0; i < 32; ++i) first.emplace_back(0);
  const std::unordered_set<Stream> distinct(first.begin(), first.end());
  EXPECT_EQ(distinct.size(), 32U);
  EXPECT_FALSE(distinct.contains(default_stream(0)));
  for (int i = 0; i < 64; ++i) EXPECT_EQ(Stream(0), first[static_cast<std::size_t>(i % 32)]);
}

TEST(Stream, HasAPoolForEachPriorityAndClampsWhatIsOutOfRange) {
  const auto [least, greatest] = Runtime::get().backend().stream_priority_range(0);
  EXPECT_EQ(Stream(0, 1000).priority(), least);
  EXPECT_EQ(Stream(0, -1000).priority(), greatest);
  std::unordered_set<Stream> streams;
  for (int priority = greatest; priority <= least; ++priority) {
    const Stream stream(0, priority);
    EXPECT_EQ(stream.priority(), priority);
    streams.insert(stream);
  }
  EXPECT_EQ(streams.size(), static_cast<std::size_t>(least - greatest + 1));
}

TEST(Stream, IsNamedByItsCopies) {
  const Stream stream(0, -1);
  const Stream copy = stream;
  EXPECT_EQ(copy, stream);
  EXPECT_EQ(copy.device(), 0);
  EXPECT_EQ(copy.priority(), stream.priority());
  EXPECT_EQ(copy.native_handle(), stream.native_handle());
  EXPECT_EQ(std::hash<Stream>{}(copy), std::hash<Stream>{}(stream));
}

TEST(Stream, PrintsItself) {
  const Stream stream(0, -1);
  const std::string text = to_string(stream);
  EXPECT_TRUE(text.starts_with("stream 0x")) << text;
  EXPECT_NE(text.find(" of device:0, priority " + std::to_string(stream.priority())), std::string::npos)
      << text;
  EXPECT_EQ(to_string(default_stream(0)), "the default stream of device:0");
  std::ostringstream printed;
  printed << stream;
  EXPECT_EQ(printed.str(), text);
}

TEST(StreamGuard, DoesNothingForNoStream) {
  const Stream before(0);
  set_stream(before);
  const int device = current_device();
  {
    const StreamGuard guard(std::nullopt);
    EXPECT_EQ(current_stream(0), before);
    EXPECT_EQ(current_device(), device);
    set_stream(default_stream(0));
  }
  EXPECT_EQ(current_stream(0), default_stream(0)) << "nothing is restored either";
  {
    const std::optional<Stream> some = before;
    const StreamGuard guard(some);
    EXPECT_EQ(current_stream(0), before);
  }
  EXPECT_EQ(current_stream(0), default_stream(0));
}

TEST(Stream, RefusesUnknownDevices) {
  const int count = device_count();
  const std::string given = "device is " + std::to_string(count);
  const auto refused = [&](const std::string& function, const std::function<void()>& call) {
    return refuses(call, ErrorCode::invalid_argument, {function, given});
  };
  EXPECT_TRUE(refused("Stream", [&] { Stream stream(count); }));
  EXPECT_TRUE(refused("default_stream", [&] { static_cast<void>(default_stream(count)); }));
  EXPECT_TRUE(refused("current_stream", [&] { static_cast<void>(current_stream(count)); }));
  EXPECT_TRUE(refused("ExternalStream", [&] { ExternalStream stream(Stream(0).native_handle(), count); }));
  EXPECT_TRUE(refuses([] { ExternalStream stream(Stream(0).native_handle(), Device::host()); },
                      ErrorCode::invalid_argument, {"ExternalStream", "device is the host"}));
}

TEST(Stream, IsIdleOnlyWhenItsWorkHasFinished) {
  const Stream stream(0);
  StreamGate gate(stream);
  EXPECT_FALSE(stream.query());
  gate.open();
  stream.synchronize();
  EXPECT_TRUE(stream.query());
}

TEST(Stream, SynchronizesUntilItsWorkIsDone) {
  const Stream stream(0);
  StreamGate gate(stream);
  const StreamFlag done(stream);
  EXPECT_TRUE(done.stays_unset());
  gate.open_soon();
  stream.synchronize();
  EXPECT_TRUE(done.is_set());
}

TEST(Stream, RunsIndependentlyOfOthers) {
  const Stream held(0);
  const Stream free(0);
  StreamGate gate(held);
  const StreamFlag done(free);
  EXPECT_TRUE(done.becomes_set());
  EXPECT_FALSE(held.query());
}

/// Checks that a stream of device `later_device` waits for one of device 0.
void expect_wait_for_another(int later_device) {
  const Stream earlier(0);
  const Stream later(later_device);
  StreamGate gate(earlier);
  later.wait_stream(earlier);
  const StreamFlag done(later);
  EXPECT_TRUE(done.stays_unset());
  gate.open();
  EXPECT_TRUE(done.becomes_set());
}

TEST(Stream, WaitsForAnother) {
  expect_wait_for_another(0);
}

TEST(Stream, DoesNotWaitForWorkQueuedAfterTheWait) {
  const Stream earlier(0);
  const Stream later(0);
  later.wait_stream(earlier);
  const StreamGate gate(earlier);
  const StreamFlag done(later);
  EXPECT_TRUE(done.becomes_set());
}

TEST(Stream, MayWaitForItself) {
  const Stream stream(0);
  stream.wait_stream(stream);
  const StreamFlag done(stream);
  EXPECT_TRUE(done.becomes_set());
}

TEST(Stream, RecordsEventsAndWaitsForThem) {
  const Stream earlier(0);
  const Stream later(0);
  StreamGate gate(earlier);
  Event event = earlier.record_event();
  later.wait_event(event);
  const StreamFlag done(later);
  EXPECT_TRUE(done.stays_unset());
  gate.open();
  EXPECT_TRUE(done.becomes_set());
  earlier.record_event(event);
  event.synchronize();
  EXPECT_TRUE(event.query());
}

TEST(CurrentStream, IsTheDefaultStreamAtFirst) {
  std::thread([] {
    for (int device = 0; device < device_count(); ++device) {
      EXPECT_EQ(current_stream(device), default_stream(device));
      EXPECT_EQ(current_stream(device).device(), device);
    }
    EXPECT_EQ(current_stream(), default_stream());
  }).join();
}

TEST(CurrentStream, BelongsToItsThread) {
  const Stream mine(0);
  set_stream(mine);
  std::thread([] {
    EXPECT_EQ(current_stream(0), default_stream(0));
    set_stream(Stream(0));
  }).join();
  EXPECT_EQ(current_stream(0), mine);
  set_stream(default_stream(0));
}

TEST(CurrentStream, IsRestoredByNestedGuards) {
  const Stream a(0);
  const Stream b(0);
  {
    const StreamGuard outer(a);
    EXPECT_EQ(current_stream(), a);
    {
      const StreamGuard inner(b);
      EXPECT_EQ(current_stream(), b);
    }
    EXPECT_EQ(current_stream(), a);
  }
  EXPECT_EQ(current_stream(), default_stream());
}

TEST(CurrentStream, OutlivesTheObjectsOfAnEndingThread) {
  struct Last {
    Stream expected;
    bool* as_expected;
    ~Last() { *as_expected = current_stream(0) == expected && current_device() == 0; }
  };
  bool as_expected = false;
  std::thread([&] {
    const Stream stream(0);
    // Made before the library keeps anything for this thread, so destroyed after all that C++ destroys.
    thread_local const Last last{stream, &as_expected};
    set_stream(stream);
    static_cast<void>(last.expected);
  }).join();
  EXPECT_TRUE(as_expected);
}

TEST(ExternalStream, NamesAStreamMadeElsewhere) {
  backend::Backend& backend = Runtime::get().backend();
  const backend::StreamRef made = backend.create_stream(0, 0);
  {
    const ExternalStream stream(made.handle, 0);
    EXPECT_EQ(stream.native_handle(), made.handle);
    EXPECT_EQ(stream, ExternalStream(made.handle, 0));
    const StreamGuard guard(stream);
    EXPECT_EQ(current_stream(0), stream);
    const StreamFlag done(current_stream(0));
    EXPECT_TRUE(done.becomes_set());
    stream.synchronize();
  }
  EXPECT_TRUE(backend.query_stream(made)) << "it still exists";
  backend.destroy_stream(made);
}

TEST(ExternalStream, AsksForThePriorityOfTheStream) {
  backend::Backend& backend = Runtime::get().backend();
  const auto [least, greatest] = backend.stream_priority_range(0);
  for (int priority = greatest; priority <= least; ++priority) {
    const backend::StreamRef made = backend.create_stream(0, priority);
    EXPECT_EQ(ExternalStream(made.handle, 0).priority(), priority);
    backend.destroy_stream(made);
  }
  EXPECT_EQ(ExternalStream(default_stream(0).native_handle(), 0).priority(), 0);
}

/// GPUs of which one stream is captured, which they tell only if they are asked for it.
class SecretiveBackend final : public test::AbsentBackend {
 public:
  explicit SecretiveBackend(StreamRef captured) : captured_(captured) {}
  BackendKind kind() const noexcept override { return BackendKind::cuda; }
  bool is_capturing(StreamRef stream) override { return stream == captured_; }

 private:
  const StreamRef captured_;
};

TEST(ExternalStream, IsSeenToBeCapturedWhileItIsCurrentInAThread) {
  const Stream made(0);
  SecretiveBackend backend({static_cast<backend::StreamHandle>(made.native_handle()), 0});
  const ExternalStream stream(made.native_handle(), 0);
  EXPECT_FALSE(has_capture_on(backend, 0)) << "it may be gone";
  {
    const StreamGuard guard(stream);
    EXPECT_TRUE(has_capture_on(backend, 0));
    EXPECT_FALSE(has_capture_on(backend, 1));
    std::thread([&] {
      set_stream(stream);
      EXPECT_TRUE(has_capture_on(backend, 0));
    }).join();
    EXPECT_TRUE(has_capture_on(backend, 0)) << "of the thread that has ended it was another one's too";
    const StreamGuard other{Stream(0)};
    EXPECT_FALSE(has_capture_on(backend, 0));
  }
  std::thread([&] { set_stream(stream); }).join();
  EXPECT_FALSE(has_capture_on(backend, 0));
}

TEST(ExternalStream, RefusesNullForVirtualDevices) {
  if (backend_kind() == BackendKind::cuda) {
    EXPECT_EQ(ExternalStream(nullptr, 0), default_stream(0));
  } else {
    EXPECT_TRUE(refuses([] { ExternalStream stream(nullptr, 0); }, ErrorCode::invalid_argument,
                        {"ExternalStream", "native_handle is nullptr"}));
  }
}

TEST_F(StreamsOfTwoDevices, DifferEvenWithEqualHandles) {
  EXPECT_NE(default_stream(0), default_stream(1));
  // Of different devices, handles are equal on GPUs alone: those of the default streams.
  EXPECT_NE(std::hash<Stream>{}(default_stream(0)), std::hash<Stream>{}(default_stream(1)));
}

TEST_F(StreamsOfTwoDevices, AreNotTakenForStreamsOfAnotherDevice) {
  const Stream stream(0);
  EXPECT_TRUE(refuses([&] { ExternalStream elsewhere(stream.native_handle(), 1); },
                      ErrorCode::invalid_argument,
                      {"ExternalStream", "a stream of device 0", "of device 1"}));
}

TEST(ExternalStream, RefusesWhatIsNoStreamOfVirtualDevices) {
  if (backend_kind() == BackendKind::cuda) GTEST_SKIP() << "the driver may crash on what never was a stream";
  int no_stream = 0;
  EXPECT_TRUE(refuses([&] { ExternalStream stream(&no_stream, 0); }, ErrorCode::invalid_argument,
                      {"ExternalStream", "no stream that exists"}));
  backend::Backend& backend = Runtime::get().backend();
  const backend::StreamRef made = backend.create_stream(0, 0);
  backend.destroy_stream(made);
  EXPECT_TRUE(refuses([&] { ExternalStream stream(made.handle, 0); }, ErrorCode::invalid_argument,
                      {"ExternalStream", "no stream that exists"}));
}

TEST_F(StreamsOfTwoDevices, AreUsableWhicheverDeviceIsCurrent) {
  const Stream stream(1);
  const StreamGuard guard(stream);
  const DeviceGuard elsewhere(0);
  EXPECT_EQ(current_device(), 0);
  const Tensor seen = full({1000}, 7, {.device = 1}).to(Device::host(), Blocking::no);
  const StreamFlag done(stream);
  stream.synchronize();
  EXPECT_EQ(seen.to_vector<float>(), std::vector<float>(1000, 7));
  EXPECT_TRUE(stream.query());
  // CUDA has been seen to say this of an event somewhat later than that its stream had come to the end.
  EXPECT_TRUE(done.becomes_set());
}

TEST_F(StreamsOfTwoDevices, ComeFromTheCurrentDeviceUnlessToldOtherwise) {
  const DeviceGuard guard(1);
  EXPECT_EQ(Stream().device(), 1);
  EXPECT_EQ(Stream(0).device(), 0);
  EXPECT_EQ(default_stream().device(), 1);
  EXPECT_EQ(current_stream().device(), 1);
}

TEST_F(StreamsOfTwoDevices, AreCurrentOnePerDevice) {
  const Stream on_zero(0);
  const Stream on_one(1);
  set_stream(on_zero);
  set_stream(on_one);
  EXPECT_EQ(current_device(), 1) << "a stream comes with its device";
  EXPECT_EQ(current_stream(0), on_zero);
  EXPECT_EQ(current_stream(1), on_one);
  set_stream(default_stream(1));
  set_stream(default_stream(0));
  EXPECT_EQ(current_device(), 0);
}

TEST_F(StreamsOfTwoDevices, AreSwitchedByAGuardTogetherWithTheDevice) {
  const Stream before(1);
  set_stream(before);
  set_device(0);
  {
    const Stream within(1);
    const StreamGuard guard(within);
    EXPECT_EQ(current_device(), 1);
    EXPECT_EQ(current_stream(1), within);
  }
  EXPECT_EQ(current_device(), 0);
  EXPECT_EQ(current_stream(1), before);
  set_stream(default_stream(1));
  set_device(0);
}

TEST_F(StreamsOfTwoDevices, WaitForEachOther) {
  expect_wait_for_another(1);
}

}  // namespace
}  // namespace tutti
