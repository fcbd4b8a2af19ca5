// SPDX-License-Identifier: Apache-2.0
#include "tutti/persistent.hpp"

#include "support/collectives/collective_test.hpp"
#include "support/collectives/exercise.hpp"
#include "support/collectives/stream_order.hpp"
#include "support/errors.hpp"
#include "support/stream_gate.hpp"

#include <chrono>
#include <optional>
#include <thread>
#include <type_traits>

namespace tutti::test {
namespace {

static_assert(std::is_nothrow_move_constructible_v<PersistentCollective>);
static_assert(std::is_nothrow_move_assignable_v<PersistentCollective>);
static_assert(!std::is_copy_constructible_v<PersistentCollective>);

class Persistent : public EveryCollective {
 protected:
  static Exercise exercise(std::int64_t rows, int devices = 8) {
    return make_exercise(collective(), first_devices(devices), rows);
  }
  static PersistentCollective bind(const Exercise& exercise, Tensors inputs, Tensors outputs) {
    std::optional<PersistentCollective> bound;
    carry(transport(),
          [&](const CollectiveOptions& options) { bound.emplace(exercise.bind(inputs, outputs, options)); },
          {.determinism = Determinism::bitwise});
    return std::move(*bound);
  }

  /// Makes every device's current stream follow `stream`, as users do before they touch outputs elsewhere.
  static void let_others_follow(const Stream& stream) {
    for (const Device device : first_devices()) {
      if (current_stream(device.index()) == stream) continue;
      current_stream(device.index()).wait_stream(stream);
    }
  }
  /// The opposite: what is queued on any current stream comes before what is queued on `stream` later.
  static void follow_others(const Stream& stream) {
    for (const Device device : first_devices()) {
      if (current_stream(device.index()) == stream) continue;
      stream.wait_stream(current_stream(device.index()));
    }
  }
};
TUTTI_FOR_EVERY_COLLECTIVE(Persistent);

TEST_P(Persistent, DoesWhatTheEagerCallDoes) {
  for (const std::int64_t rows : {std::int64_t{0}, std::int64_t{1}, std::int64_t{343}, scaled(60'001)}) {
    SCOPED_TRACE(rows);
    const Exercise run = exercise(rows);
    const std::vector<HostArray> values = run.values(test_seed());
    const std::vector<Tensor> inputs = make_inputs(run, values);
    const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
    PersistentCollective persistent = bind(run, inputs, tensors_of(outputs));
    for (const TestTensor& output : outputs)
      EXPECT_TRUE(output.untouched()) << "binding must not run anything";
    const Stream stream(persistent.home_device());
    follow_others(stream);
    persistent.launch(stream);
    let_others_follow(stream);
    EXPECT_TRUE(all_hold(outputs, run.expect(values)));
  }
}

TEST_P(Persistent, SeesNewInputsAtEveryLaunch) {
  const Exercise run = exercise(257);
  const std::vector<Tensor> inputs = make_inputs(run, run.values(0));
  const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
  PersistentCollective persistent = bind(run, inputs, tensors_of(outputs));
  const Stream stream(persistent.home_device());
  for (std::uint64_t round = 1; round <= 10; ++round) {
    const std::vector<HostArray> values = run.values(test_seed() + round);
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].copy_(make_tensor(values[i], Device::host()));
    follow_others(stream);
    persistent.launch(stream);
    let_others_follow(stream);
    ASSERT_TRUE(all_hold(outputs, run.expect(values))) << "round " << round;
  }
}

TEST_P(Persistent, IsOrderedWithTheLaunchStream) {
  const Exercise run = exercise(97, 3);
  const std::vector<Tensor> inputs = make_inputs(run, run.values(0));
  const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
  PersistentCollective persistent = bind(run, inputs, tensors_of(outputs));
  for_each_interleaving(static_cast<int>(scaled(24)), [&](std::uint64_t seed) {
    const std::vector<HostArray> values = run.values(seed);
    const std::vector<Tensor> late = make_inputs(run, values);
    const Stream stream(persistent.home_device());
    for (const Device device : first_devices()) keep_busy(current_stream(device.index()));
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].copy_(late[i]);
    follow_others(stream);
    persistent.launch(stream);
    let_others_follow(stream);
    std::vector<Tensor> saved;
    for (const TestTensor& output : outputs) {
      saved.push_back(empty_like(output.tensor()));
      saved.back().copy_(output);
    }
    // The next round's inputs must not reach this round's outputs.
    for (const Tensor& input : inputs) input.fill_(0);
    EXPECT_TRUE(all_hold(run, saved, run.expect(values)));
  });
}

TEST_P(Persistent, LetsEarlierWorkOnTheLaunchStreamFinishFirst) {
  const Exercise run = exercise(97, 3);
  const std::vector<Tensor> inputs = make_inputs(run, run.values(0));
  const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
  std::vector<HostArray> before;
  for (const TestTensor& output : outputs) before.push_back(read(output));
  PersistentCollective persistent = bind(run, inputs, tensors_of(outputs));
  const Stream stream(persistent.home_device());
  for_each_interleaving(static_cast<int>(scaled(24)), [&](std::uint64_t seed) {
    const std::vector<HostArray> values = run.values(seed);
    const std::vector<Tensor> late = make_inputs(run, values);
    // Everything below is on the launch stream's own time: first what reads the outputs, then what writes the
    // inputs.
    follow_others(stream);
    keep_busy(stream);
    let_others_follow(stream);
    std::vector<Tensor> saved;
    for (const TestTensor& output : outputs) {
      saved.push_back(empty_like(output.tensor()));
      saved.back().copy_(output);
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) inputs[i].copy_(late[i]);
    follow_others(stream);
    persistent.launch(stream);
    let_others_follow(stream);
    EXPECT_TRUE(all_hold(run, saved, before)) << "an output was overwritten before it was read";
    EXPECT_TRUE(all_hold(outputs, run.expect(values)));
    before = run.expect(values);
  });
}

TEST_P(Persistent, LaunchesRunOneAfterAnother) {
  const Exercise run = exercise(1025);
  const std::vector<HostArray> values = run.values(test_seed());
  const std::vector<Tensor> inputs = make_inputs(run, values);
  const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
  PersistentCollective persistent = bind(run, inputs, tensors_of(outputs));
  const int home = persistent.home_device();
  Stream stream(home);
  follow_others(stream);
  for (int launch = 0; launch < 20; ++launch) {
    persistent.launch(stream);
    if (launch < 19) stream = Stream(home);  // nobody orders it with the one before
  }
  let_others_follow(stream);
  EXPECT_TRUE(all_hold(outputs, run.expect(values)));
}

TEST_P(Persistent, ALaunchWaitsForTheOneBeforeOnAnotherStream) {
  const Exercise run = exercise(64);
  const std::vector<HostArray> values = run.values(test_seed());
  const std::vector<Tensor> inputs = make_inputs(run, values);
  const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
  PersistentCollective persistent = bind(run, inputs, tensors_of(outputs));
  synchronize_all();
  const Stream held(persistent.home_device());
  const Stream free(persistent.home_device());
  test::StreamGate gate(held);
  persistent.launch(held);
  persistent.launch(free);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_FALSE(free.query());
  gate.open();
  let_others_follow(free);
  EXPECT_TRUE(all_hold(outputs, run.expect(values)));
}

TEST_P(Persistent, LaunchesOnTheCurrentStreamOfItsHomeDevice) {
  const Exercise run = exercise(64);
  const std::vector<HostArray> values = run.values(test_seed());
  const std::vector<Tensor> inputs = make_inputs(run, values);
  const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
  PersistentCollective persistent = bind(run, inputs, tensors_of(outputs));
  synchronize_all();
  const StreamGuard guard(Stream(persistent.home_device()));
  persistent.launch();
  let_others_follow(current_stream(persistent.home_device()));
  EXPECT_TRUE(all_hold(outputs, run.expect(values)));
}

TEST(PersistentHome, IsTheRootsDeviceWhoeverDoesTheWork) {
  const std::vector<Device> devices = first_devices();
  if (devices.size() < 2) GTEST_SKIP() << "needs two devices";
  const Device root = devices.back();
  for (const std::int64_t count : {16, 1 << 20}) {
    SCOPED_TRACE(count);
    const TensorOptions there{.dtype = DType::int32, .device = root};
    const Tensor source = full({count}, 3, there);
    const Tensor sum = zeros({count}, there);
    std::vector<Tensor> copies;
    std::vector<Tensor> summands;
    for (const Device device : devices) {
      const TensorOptions here{.dtype = DType::int32, .device = device};
      if (device != root) copies.push_back(zeros({count}, here));
      summands.push_back(full({count}, device.index() + 1, here));
    }
    synchronize_all();
    PersistentCollective broadcast = persistent_broadcast(source, copies);
    PersistentCollective reduce = persistent_reduce_add(summands, sum);
    EXPECT_EQ(broadcast.home_device(), root.index()) << broadcast.explain();
    EXPECT_EQ(reduce.home_device(), root.index()) << reduce.explain();
    const Stream stream(root.index());
    broadcast.launch(stream);
    reduce.launch(stream);
    stream.synchronize();
    for (const Tensor& copy : copies) EXPECT_TRUE(holds(copy, 3));
    const auto members = static_cast<std::int32_t>(devices.size());
    EXPECT_TRUE(holds(sum, members * (members + 1) / 2));
  }
}

TEST_P(Persistent, CompletesAfterItsDestruction) {
  const Exercise run = exercise(scaled(50'000));
  const std::vector<HostArray> values = run.values(test_seed());
  const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
  std::optional<Stream> used;
  {
    std::vector<Tensor> inputs = make_inputs(run, values);
    PersistentCollective persistent = bind(run, inputs, tensors_of(outputs));
    inputs.clear();  // it holds them
    const Stream stream(persistent.home_device());
    used = stream;
    follow_others(stream);
    keep_busy(stream);
    persistent.launch(stream);
  }
  let_others_follow(*used);
  EXPECT_TRUE(all_hold(outputs, run.expect(values)));
}

TEST_P(Persistent, MovesKeepItUsable) {
  const Exercise run = exercise(10);
  const std::vector<HostArray> values = run.values(test_seed());
  const std::vector<Tensor> inputs = make_inputs(run, values);
  const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
  PersistentCollective first = bind(run, inputs, tensors_of(outputs));
  PersistentCollective second = std::move(first);
  first = std::move(second);
  synchronize_all();
  first.launch();
  let_others_follow(current_stream(first.home_device()));
  EXPECT_TRUE(all_hold(outputs, run.expect(values)));
}

TEST_P(Persistent, RefusesStreamsOfOtherDevices) {
  const Exercise run = exercise(10);
  const std::vector<Tensor> inputs = make_inputs(run, run.values(1));
  const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
  PersistentCollective persistent = bind(run, inputs, tensors_of(outputs));
  EXPECT_EQ(persistent.home_device(), first_devices().front().index());
  const int elsewhere = first_devices().back().index();
  EXPECT_TRUE(refuses([&] { persistent.launch(Stream(elsewhere)); }, ErrorCode::invalid_argument,
                      {"stream", std::to_string(elsewhere), std::to_string(persistent.home_device())}));
  for (const TestTensor& output : outputs) EXPECT_TRUE(output.untouched());
}

TEST_P(Persistent, ExplainsItself) {
  const Exercise run = exercise(1000);
  const std::vector<Tensor> inputs = make_inputs(run, run.values(1));
  const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
  const PersistentCollective persistent = bind(run, inputs, tensors_of(outputs));
  const PlanSummary summary = persistent.summary();
  EXPECT_FALSE(summary.algorithm.empty());
  if (transport() == TransportKind::p2p || transport() == TransportKind::staged) {
    EXPECT_EQ(summary.transport, name_of(transport()));
  }
  EXPECT_NE(persistent.explain().find(summary.transport), std::string::npos) << persistent.explain();
}

TEST_P(Persistent, RefusesWhatTheEagerCallRefuses) {
  const Exercise run = exercise(10);
  const std::vector<Tensor> inputs = make_inputs(run, run.values(1));
  std::vector<Tensor> outputs = tensors_of(make_poisoned_outputs(run));
  outputs.back() = Tensor();
  EXPECT_TRUE(refuses([&] { static_cast<void>(run.bind(inputs, outputs, {})); }, ErrorCode::invalid_argument,
                      {"undefined"}));
}

}  // namespace
}  // namespace tutti::test
