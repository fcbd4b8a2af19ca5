// SPDX-License-Identifier: Apache-2.0
#include "support/memory/closed_memory.hpp"

#include "device/runtime.hpp"
#include "support/collectives/exercise.hpp"
#include "support/collectives/stream_order.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "tutti/communicator.hpp"
#include "tutti/graph.hpp"
#include "tutti/message.hpp"
#include "tutti/registered_memory.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

/// Operands in memory that a program has got for one device alone and has not registered. What other devices
/// would do with them is done with copies.
namespace tutti::test {
namespace {

bool is_through_stand_ins(const PlanSummary& plan) {
  return mentions(plan.algorithm, {"through stand-ins"});
}

class ClosedMemory : public EveryCollective {
 protected:
  static Exercise exercise(std::int64_t rows) { return make_exercise(collective(), first_devices(3), rows); }
  /// Returns inputs in closed memory, which hold `values`.
  std::vector<Tensor> inputs(const Exercise& run, ClosedKind kind, const std::vector<HostArray>& values) {
    std::vector<Tensor> made;
    for (std::size_t i = 0; i < run.inputs.size(); ++i)
      made.push_back(closed_.make(kind, run.dtype, run.inputs[i].sizes, run.inputs[i].device));
    fill(made, values);
    return made;
  }
  std::vector<Tensor> outputs(const Exercise& run, ClosedKind kind) {
    std::vector<Tensor> made;
    for (const Slot& output : run.outputs) {
      made.push_back(closed_.make(kind, run.dtype, output.sizes, output.device));
      made.back().fill_(-77);
    }
    return made;
  }
  static void fill(const std::vector<Tensor>& tensors, const std::vector<HostArray>& values) {
    for (std::size_t i = 0; i < tensors.size(); ++i) tensors[i].copy_(make_tensor(values[i], Device::host()));
  }
  /// Launches several times, each time with other inputs, and checks the outputs.
  static void expect_launches(const Exercise& run, const std::vector<Tensor>& in,
                              const std::vector<Tensor>& out, const std::function<void()>& launch) {
    for (std::uint64_t round = 1; round <= 3; ++round) {
      const std::vector<HostArray> values = run.values(test_seed() + round);
      fill(in, values);
      synchronize_all();
      launch();
      synchronize_all();
      EXPECT_TRUE(all_hold(run, out, run.expect(values)));
    }
  }
  /// Rounds let peers use less than steps do, and are not for virtual devices.
  static bool lets_peers_use_operands() {
    return transport() == TransportKind::p2p && Runtime::get().backend().kind() == BackendKind::host;
  }

 private:
  ClosedTensors closed_;
};
TUTTI_FOR_EVERY_COLLECTIVE(ClosedMemory);

TEST_P(ClosedMemory, HoldsAllOperands) {
  for (const ClosedKind kind : all_closed_kinds) {
    for (const std::int64_t rows : {5, 60'000}) {
      SCOPED_TRACE(testing::Message() << rows << " rows, " << name_of(kind));
      const Exercise run = exercise(rows);
      const std::vector<HostArray> values = run.values(test_seed());
      const std::vector<Tensor> in = inputs(run, kind, values);
      const std::vector<Tensor> out = outputs(run, kind);
      write(run, in, out);
      EXPECT_TRUE(all_hold(run, out, run.expect(values)));
      EXPECT_TRUE(!lets_peers_use_operands() || is_through_stand_ins(last_plan()));
      EXPECT_TRUE(all_hold(run, make(run, in), run.expect(values)));
    }
  }
}

TEST_P(ClosedMemory, IsUsedInTheOrderOfItsStreams) {
  const Exercise run = exercise(97);
  const std::vector<Tensor> in = inputs(run, ClosedKind::pieces, run.values(0));
  const std::vector<Tensor> out = outputs(run, ClosedKind::pieces);
  for_each_interleaving(static_cast<int>(scaled(6)), [&](std::uint64_t seed) {
    const std::vector<HostArray> values = run.values(seed);
    const std::vector<Tensor> late = make_inputs(run, values);
    for (const Device device : first_devices()) keep_busy(current_stream(device.index()));
    for (std::size_t i = 0; i < in.size(); ++i) in[i].copy_(late[i]);
    write(run, in, out);
    std::vector<Tensor> saved;
    for (const Tensor& output : out) {
      saved.push_back(empty_like(output));
      saved.back().copy_(output);
    }
    for (const Tensor& input : in) input.fill_(0);
    for (const Tensor& output : out) output.fill_(0);
    EXPECT_TRUE(all_hold(run, saved, run.expect(values)));
  });
}

TEST_P(ClosedMemory, IsUsedByGraphs) {
  const PooledStreams streams;
  const Exercise run = exercise(97);
  const std::vector<Tensor> in = inputs(run, ClosedKind::pieces, run.values(0));
  const std::vector<Tensor> out = outputs(run, ClosedKind::pieces);
  write(run, in, out);  // the self-test is not for a capture
  synchronize_all();
  const Stream origin = current_stream(run.inputs.front().device.index());
  const Graph graph = Graph::capture(origin, [&] { write(run, in, out); });
  expect_launches(run, in, out, [&] { graph.launch(origin); });
}

TEST_P(ClosedMemory, IsUsedByPersistentCalls) {
  const Exercise run = exercise(97);
  const std::vector<Tensor> in = inputs(run, ClosedKind::pool, run.values(0));
  const std::vector<Tensor> out = outputs(run, ClosedKind::pool);
  std::optional<PersistentCollective> bound;
  carry(transport(), [&](const CollectiveOptions& options) { bound.emplace(run.bind(in, out, options)); });
  PersistentCollective& persistent = *bound;
  if (transport() == TransportKind::p2p) {
    EXPECT_TRUE(is_through_stand_ins(persistent.summary()));
    EXPECT_TRUE(mentions(persistent.explain(), {"through stand-ins", "register_memory"}));
  }
  const Stream stream(persistent.home_device());
  expect_launches(run, in, out, [&] { persistent.launch(stream); });
}

class OneProcess : public testing::Test {
 protected:
  static constexpr std::int64_t count = 1'500'000;  ///< of int32: more than two pieces
  static constexpr CollectiveOptions by_p2p{.transport = TransportKind::p2p};

  void SetUp() override {
    if (device_count() < 2 || !Runtime::get().backend().can_access_peer(0, 1))
      GTEST_SKIP() << "needs two devices, one of which has access to the other";
  }
  void TearDown() override { EXPECT_NO_THROW(synchronize_all()); }

  [[nodiscard]] Tensor make(ClosedKind kind, int device) {
    return closed_.make(kind, DType::int32, {count}, Device(device));
  }

  ClosedTensors closed_;
};

TEST_F(OneProcess, RegistrationOpensMemory) {
  const Tensor source = make(ClosedKind::pieces, 0);
  const Tensor target = make(ClosedKind::pieces, 1);
  source.fill_(3);
  broadcast(source, {target}, by_p2p);
  EXPECT_TRUE(holds(target, 3));
  EXPECT_TRUE(is_through_stand_ins(last_plan()));

  const MemoryRegistration of_source = register_memory(source.data(), source.nbytes());
  const MemoryRegistration of_target = register_memory(target.data(), target.nbytes());
  source.fill_(4);
  broadcast(source, {target}, by_p2p);
  EXPECT_TRUE(holds(target, 4));
  EXPECT_FALSE(is_through_stand_ins(last_plan()));
}

TEST_F(OneProcess, CopiesReachClosedMemory) {
  for (const ClosedKind kind : all_closed_kinds) {
    SCOPED_TRACE(name_of(kind));
    const Tensor source = make(kind, 0);
    const Tensor target = make(kind, 1);
    source.fill_(5);
    target.copy_(source);
    EXPECT_TRUE(holds(target, 5));
    EXPECT_TRUE(holds(source.to(Device(1)), 5));
    const Tensor converted = zeros({count}, {.dtype = DType::int64, .device = Device(1)});
    converted.copy_(source);
    EXPECT_TRUE(holds(converted.to(DType::int32), 5));
  }
}

TEST_F(OneProcess, CommunicatorsOfLocalDevicesTakeClosedMemory) {
  for (const ClosedKind kind : all_closed_kinds) {
    SCOPED_TRACE(name_of(kind));
    Communicator communicator({.devices = {Device(0), Device(1)}, .transport = TransportKind::p2p});
    for (const std::int64_t length : {std::int64_t{100}, count}) {
      const Tensor first = make(kind, 0).narrow(0, 0, length);
      const Tensor second = make(kind, 1).narrow(0, 0, length);
      first.fill_(1);
      second.fill_(2);
      communicator.all_reduce({first, second}, {first, second});
      EXPECT_TRUE(holds(first, 3));
      EXPECT_TRUE(holds(second, 3));
      EXPECT_TRUE(length < count || is_through_stand_ins(communicator.last_plan()));
      first.fill_(7);
      communicator.batch_send_recv({Message::send(first, 1), Message::recv(second, 0)});
      EXPECT_TRUE(holds(second, 7));
    }
  }
}

}  // namespace
}  // namespace tutti::test
