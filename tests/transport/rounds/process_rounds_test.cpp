// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"
#include "stream/stream_access.hpp"
#include "support/collectives/exercise.hpp"
#include "support/errors.hpp"
#include "support/machines/machines.hpp"
#include "support/stream_gate.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/threads/launch_helpers.hpp"
#include "tutti/collectives.hpp"
#include "tutti/graph.hpp"
#include "tutti/stream.hpp"
#include "tutti/sync_debug.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// What one process does alone, by rounds among its devices: when they are taken, and that they change
/// nothing but the time it takes. TUTTI_ROUNDS is on here, and threads may help.
namespace tutti {
namespace {

using test::StreamFlag;
using test::StreamGate;

bool went_by_rounds() {
  return last_plan().algorithm.find("round") != std::string::npos;
}
bool has_line(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}
void synchronize_devices() {
  for (int device = 0; device < device_count(); ++device) synchronize(device);
}

/// Whose work so far has failed.
int failing_devices() {
  int failing = 0;
  for (int device = 0; device < device_count(); ++device) {
    try {
      synchronize(device);
    } catch (const Error&) {
      ++failing;
    }
  }
  return failing;
}

/// Makes bursts of launches until threads help with them.
void start_helpers(std::size_t calls) {
  auto& helpers = Runtime::get().part<transport::LaunchHelpers>();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (!transport::LaunchHelpers::Lease(helpers, calls).has_help())
    ASSERT_LT(std::chrono::steady_clock::now(), end);
}

/// Current streams of the first devices for the scope's lifetime.
class OnStreams {
 public:
  explicit OnStreams(const std::vector<Stream>& streams) {
    for (const Stream& stream : streams) guards_.push_back(std::make_unique<StreamGuard>(stream));
  }
  OnStreams(const OnStreams&) = delete;
  OnStreams& operator=(const OnStreams&) = delete;
  ~OnStreams() {
    while (!guards_.empty()) guards_.pop_back();
  }

 private:
  std::vector<std::unique_ptr<StreamGuard>> guards_;
};

class ProcessRounds : public testing::Test {
 protected:
  void SetUp() override { test::boot("island", 4); }
  static Tensor on(int device, std::int64_t elements = 100, double value = 0) {
    return full({elements}, value, {.dtype = DType::float32, .device = device});
  }
  static bool holds(const Tensor& tensor, float value) {
    return std::ranges::count(tensor.to_vector<float>(), value) == tensor.numel();
  }
};

class ProcessRoundsOf : public ProcessRounds, public testing::WithParamInterface<CollectiveForm> {};
INSTANTIATE_TEST_SUITE_P(Collectives, ProcessRoundsOf, testing::ValuesIn(test::all_collectives),
                         [](const auto& parameters) { return std::string(name_of(parameters.param)); });

TEST_P(ProcessRoundsOf, CarrySmallCallsAmongAnyDevices) {
  for (const std::vector<Device>& devices : {std::vector<Device>{0, 1}, {3, 1}, {2, 0, 1}, {1, 3, 2, 0}}) {
    for (const std::int64_t rows : {1, 57, 1024, 20'000}) {
      const test::Exercise exercise = test::make_exercise(GetParam(), devices, rows);
      const auto values = exercise.values(static_cast<std::uint64_t>(rows));
      const std::vector<Tensor> results = exercise.make(test::make_inputs(exercise, values), {});
      EXPECT_TRUE(went_by_rounds()) << rows << " rows on " << devices.size() << ": " << last_plan().algorithm;
      EXPECT_EQ(last_plan().transport, "p2p");
      EXPECT_TRUE(test::all_hold(exercise, results, exercise.expect(values)));
    }
  }
}

TEST_P(ProcessRoundsOf, MakeTheBitsThatStepsMake) {
  const test::Exercise exercise = test::make_exercise(GetParam(), {2, 0, 3, 1}, 1000, DType::float16);
  const auto values = exercise.values(7);
  const std::vector<Tensor> inputs = test::make_inputs(exercise, values);
  const std::vector<Tensor> by_rounds = exercise.make(inputs, {});
  EXPECT_TRUE(went_by_rounds());
  const std::vector<Tensor> by_steps = exercise.make(inputs, {.transport = TransportKind::staged});
  EXPECT_FALSE(went_by_rounds());
  ASSERT_EQ(by_rounds.size(), by_steps.size());
  for (std::size_t i = 0; i < by_rounds.size(); ++i) {
    EXPECT_EQ(by_rounds[i].contiguous().to_vector<Float16>(), by_steps[i].contiguous().to_vector<Float16>());
  }
}

TEST_F(ProcessRounds, AreExplainedWithWhatIsTakenOtherwise) {
  const std::string text = explain({.collective = Collective::broadcast, .bytes = 4096, .devices = {0, 2}});
  EXPECT_TRUE(has_line(text, "algorithm: 1 low-latency round\n")) << text;
  EXPECT_TRUE(has_line(text, "members: device:0, device:2\n")) << text;
  EXPECT_TRUE(has_line(text, "otherwise")) << text;
  const std::string large = explain({.collective = Collective::broadcast,
                                     .bytes = std::uint64_t{32} * transport::mib + 4,
                                     .devices = {0, 2}});
  EXPECT_TRUE(has_line(large, "bytes are more than the ")) << large;
}

TEST_F(ProcessRounds, LeaveToStepsWhatTheyCannotCarry) {
  const Tensor source = on(0, 100, 3);
  const std::vector<Tensor> twice{on(1), on(1)};
  broadcast(source, twice);
  EXPECT_FALSE(went_by_rounds());
  static_cast<void>(scatter(full({100}, 3, {.dtype = DType::float32}), {0, 1}));
  EXPECT_FALSE(went_by_rounds());
  static_cast<void>(broadcast(source, {1, 2}, {.transport = TransportKind::staged}));
  EXPECT_FALSE(went_by_rounds());
  for (const Tensor& result : twice) EXPECT_TRUE(holds(result, 3));
}

TEST_F(ProcessRounds, CopyToTheRootAsWell) {
  const Tensor source = on(0, 100, 3);
  const std::vector<Tensor> out{on(0), on(1), on(2)};
  broadcast(source, out);
  EXPECT_TRUE(went_by_rounds());
  for (const Tensor& result : out) EXPECT_TRUE(holds(result, 3));
}

/// Between two devices, where operands are read where they lie.
TEST_P(ProcessRoundsOf, CarryLargeCallsBetweenTwoDevices) {
  const test::Exercise exercise = test::make_exercise(GetParam(), {3, 1}, 300'000);
  const auto values = exercise.values(11);
  const std::vector<Tensor> inputs = test::make_inputs(exercise, values);
  const std::vector<Tensor> results = exercise.make(inputs, {});
  EXPECT_EQ(last_plan().algorithm, "1 direct round");
  EXPECT_TRUE(test::all_hold(exercise, results, exercise.expect(values)));
}

TEST_F(ProcessRounds, LeaveToStepsWhatCannotBeGiven) {
  constexpr std::int64_t elements = 300'000;
  const std::vector<Tensor> out{on(1, elements)};
  broadcast(on(0, elements, 2), out);
  EXPECT_EQ(last_plan().algorithm, "1 direct round");
  EXPECT_TRUE(holds(out[0], 2));
  void* const memory = Runtime::get().backend().allocate_device(0, elements * sizeof(float));
  Tensor foreign(TensorView(memory, DType::float32, {elements}, Device(0)));
  foreign.fill_(3);
  broadcast(foreign, out);
  EXPECT_FALSE(went_by_rounds());
  EXPECT_TRUE(holds(out[0], 3));
  synchronize_devices();
  Runtime::get().backend().free_device(0, memory);
}

TEST_F(ProcessRounds, AreLeftOutOfGraphs) {
  const Tensor source = on(0, 100, 3);
  const std::vector<Tensor> out{on(1), on(2)};
  broadcast(source, out);
  EXPECT_TRUE(went_by_rounds());
  synchronize_devices();
  const std::vector<Stream> streams{Stream(0), Stream(1), Stream(2)};
  const OnStreams current(streams);
  std::vector<Tensor> results;
  Graph graph = Graph::capture(streams[0], [&] {
    broadcast(source, out);
    EXPECT_FALSE(went_by_rounds());
    results = broadcast(source, {1, 2});
    EXPECT_FALSE(went_by_rounds());
  });
  source.fill_(4);
  synchronize_devices();
  graph.launch(streams[0]);
  streams[0].synchronize();
  for (const std::vector<Tensor>& made : {out, results}) {
    for (const Tensor& result : made) EXPECT_TRUE(holds(result, 4));
  }
}

/// Calls on other streams are unrelated, and go by steps meanwhile.
TEST_F(ProcessRounds, MakeNoStreamWaitForCallsOnOthers) {
  const Tensor source = on(0, 100, 3);
  const std::vector<Tensor> out{on(1)};
  const std::vector<Tensor> others{on(1)};
  synchronize_devices();
  broadcast(source, out);
  const std::vector<Stream> streams{Stream(0), Stream(1)};
  {
    StreamGate gate(default_stream(1));
    broadcast(source, out);
    EXPECT_TRUE(went_by_rounds());
    {
      const OnStreams current(streams);
      broadcast(source, others);
      EXPECT_FALSE(went_by_rounds());
      EXPECT_TRUE(StreamFlag(streams[1]).becomes_set());
    }
    EXPECT_FALSE(StreamFlag(default_stream(1)).is_set());
  }
  synchronize_devices();
  {
    const OnStreams current(streams);
    broadcast(source, others);
    EXPECT_TRUE(went_by_rounds());
    streams[1].synchronize();
  }
  EXPECT_TRUE(holds(others[0], 3));
}

/// A result is written once its stream gets there; the root does not wait for that.
TEST_F(ProcessRounds, HoldTheRootForNoStreamOfResults) {
  const Tensor source = on(0, 100, 3);
  static_cast<void>(broadcast(source, {1, 2}));
  synchronize_devices();
  StreamGate gate(default_stream(1));
  const std::vector<Tensor> results = broadcast(source, {1, 2});
  EXPECT_TRUE(went_by_rounds());
  EXPECT_TRUE(StreamFlag(default_stream(0)).becomes_set());
  source.fill_(4);
  gate.open();
  for (const Tensor& result : results) EXPECT_TRUE(holds(result, 3));
}

/// Results are allocated for their own streams, where memory may still be in use: whoever carries them waits.
TEST_F(ProcessRounds, WriteNoResultBeforeItsMemoryIsFree) {
  const Tensor source = on(0, 100, 3);
  synchronize_devices();
  const std::vector<Stream> streams{Stream(0), Stream(1)};
  for (const bool by_rounds : {true, false}) {
    StreamGate others(default_stream(1));
    if (!by_rounds) static_cast<void>(broadcast(source, {1}));  // on the default streams, and under way
    const OnStreams current(streams);
    StreamGate gate(streams[1]);
    const void* address = nullptr;
    {
      const Tensor before = on(1);
      before.fill_(9);
      address = before.data();
    }
    const std::vector<Tensor> results = broadcast(source, {1});
    EXPECT_EQ(went_by_rounds(), by_rounds);
    EXPECT_EQ(results[0].data(), address) << "else this shows nothing";
    gate.open();
    EXPECT_TRUE(holds(results[0], 3));
    others.open();
    synchronize_devices();
  }
}

TEST_F(ProcessRounds, AreNotTakenOnStreamsThatMayGo) {
  backend::Backend& backend = Runtime::get().backend();
  const backend::StreamRef own = backend.create_stream(1, 0);
  {
    const Tensor source = on(0, 100, 3);
    const std::vector<Tensor> out{on(1)};
    synchronize_devices();
    {
      const StreamGuard current(StreamAccess::make(own));
      broadcast(source, out);
      EXPECT_FALSE(went_by_rounds());
    }
    synchronize_devices();
    EXPECT_TRUE(holds(out[0], 3));
  }
  backend.destroy_stream(own);
}

TEST_F(ProcessRounds, AreTakenOnStreamsOfTheProgramThatDoNotGo) {
  backend::Backend& backend = Runtime::get().backend();
  const backend::StreamRef made = backend.create_stream(1, 0);  // never destroyed, as it becomes permanent
  const Tensor source = on(0, 100, 3);
  const std::vector<Tensor> out{on(1)};
  synchronize_devices();
  const StreamGuard current(StreamAccess::make(made));
  for (int call = 0; call < 6; ++call) {
    if (call == 2) static_cast<void>(PermanentStream(made.handle, 1));
    source.fill_(call);
    broadcast(source, out);
    EXPECT_EQ(went_by_rounds(), call >= 2);
    EXPECT_TRUE(holds(out[0], static_cast<float>(call)));
    synchronize_devices();
  }
}

TEST_F(ProcessRounds, AreGivenUpForStepsOnceALaunchHasFailedHalfWay) {
  const Tensor source = on(0, 100, 3);
  const std::vector<Tensor> out{on(1), on(2)};
  broadcast(source, out);
  synchronize_devices();
  {
    const test::InjectedFault fault({.operation = virtual_devices::Operation::kernel, .skip = 1});
    EXPECT_TRUE(test::refuses([&] { broadcast(source, out); }, ErrorCode::device_failure, {"injected"}));
  }
  static_cast<void>(failing_devices());  // what was launched may have been ended, and says so then
  source.fill_(5);
  broadcast(source, out);
  EXPECT_FALSE(went_by_rounds());
  for (const Tensor& result : out) EXPECT_TRUE(holds(result, 5));
}

/// Threads that help launch a round on the other devices meanwhile, unless the stream sanitizer watches: the
/// first failure ends the launch then.
TEST_F(ProcessRounds, AreGivenUpForStepsOnceALaunchHasFailedAmongHelpers) {
  const Tensor source = on(0, 100, 3);
  const std::vector<Tensor> out{on(1), on(2), on(3)};
  for (int i = 0; i < 100; ++i) broadcast(source, out);
  synchronize_devices();
  start_helpers(4);
  const std::uint64_t before = virtual_devices::operations_enqueued();
  {
    const test::InjectedFault fault({.operation = virtual_devices::Operation::kernel, .device = Device(0)});
    EXPECT_TRUE(test::refuses([&] { broadcast(source, out); }, ErrorCode::device_failure, {"injected"}));
  }
  const bool have_helped = virtual_devices::operations_enqueued() - before >= 3;
  EXPECT_NE(have_helped, Runtime::get().backend().is_watched());
  EXPECT_EQ(failing_devices(), have_helped ? 3 : 0);  // what they wait for does not come
  source.fill_(5);
  broadcast(source, out);
  EXPECT_FALSE(went_by_rounds());
  for (const Tensor& result : out) EXPECT_TRUE(holds(result, 5));
}

TEST_F(ProcessRounds, KeepNobodyWaitingForADeviceThatHasFailed) {
  const Tensor source = on(0, 100, 3);
  const std::vector<Tensor> out{on(1), on(2)};
  broadcast(source, out);
  synchronize_devices();
  {
    const test::InjectedFault fault({.operation = virtual_devices::Operation::kernel,
                                     .kind = virtual_devices::FaultKind::fail_asynchronously,
                                     .device = Device(0)});
    broadcast(source, out);
    EXPECT_TRUE(went_by_rounds());
  }
  EXPECT_EQ(failing_devices(), 3);
  broadcast(source, out);
  EXPECT_FALSE(went_by_rounds());
  for (const Tensor& result : out) EXPECT_TRUE(holds(result, 3));
}

TEST_F(ProcessRounds, HaveWindowsForSoManySetsOfDevicesAndNoMore) {
  int by_rounds = 0;
  for (const auto& [root, other] : std::initializer_list<std::pair<int, int>>{
           {0, 1}, {1, 0}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}, {3, 2}}) {
    const std::vector<Tensor> out{on(other)};
    broadcast(on(root, 100, 6), out);
    by_rounds += went_by_rounds() ? 1 : 0;
    EXPECT_TRUE(holds(out[0], 6));
  }
  EXPECT_EQ(by_rounds, 5);  // the first two are of one set
  const std::string text =
      explain({.collective = Collective::broadcast, .bytes = 64, .devices = {2, 3}, .root = 2});
  EXPECT_TRUE(has_line(text, "rounds not taken: 4 other sets of devices have windows")) << text;
}

TEST_F(ProcessRounds, MakeNoWindowsWhileCallsMustNotBlock) {
  const Tensor source = on(0, 100, 3);
  const std::vector<Tensor> out{on(1)};
  static_cast<void>(broadcast(on(0, 1 << 20), {1, 2}));  // which tests how they are connected
  set_sync_debug_mode(SyncDebugMode::error);
  broadcast(source, out);
  EXPECT_FALSE(went_by_rounds());
  set_sync_debug_mode(SyncDebugMode::none);
  broadcast(source, out);
  EXPECT_TRUE(went_by_rounds());
}

TEST_F(ProcessRounds, OfManyThreadsTakeTurns) {
  std::vector<std::thread> threads;
  for (int number = 0; number < 4; ++number) {
    threads.emplace_back([number] {
      for (int i = 0; i < 50; ++i) {
        const auto value = static_cast<float>(number * 100 + i);
        const std::vector<Tensor> results = broadcast(on(number, 500, value), {0, 1, 2, 3});
        const Tensor sum = reduce_add(results, number);
        EXPECT_TRUE(holds(sum, 4 * value)) << number << ' ' << i;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  synchronize_devices();
}

TEST_F(ProcessRounds, GiveTheirMemoryBackWithTheMachine) {
  for (int i = 0; i < 3; ++i) {
    static_cast<void>(broadcast(on(0), {0, 1, 2, 3}));
    EXPECT_TRUE(went_by_rounds());
    synchronize_devices();
    test::boot("island", 4, std::size_t{16} << 20U);
  }
}

}  // namespace
}  // namespace tutti
