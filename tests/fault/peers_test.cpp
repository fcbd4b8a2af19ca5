// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/exercise.hpp"
#include "support/machines/machines.hpp"
#include "tutti/topology.hpp"

#include <algorithm>
#include <string>

namespace tutti::test {
namespace {

using virtual_devices::FaultKind;
using virtual_devices::Operation;

class Peers : public EveryCollective {
 protected:
  void SetUp() override { boot(); }
  void TearDown() override {
    virtual_devices::clear_faults();
    EveryCollective::TearDown();
  }

  /// The collective, with every device as root, of small and of large tensors.
  static void expect_right_results() {
    std::vector<Device> devices = first_devices();
    for (std::size_t root = 0; root < devices.size(); ++root) {
      std::swap(devices[0], devices[root]);
      for (const std::int64_t rows : {std::int64_t{10}, scaled(30'001)}) {
        const Exercise run = make_exercise(collective(), devices, rows);
        const std::vector<HostArray> values = run.values(test_seed() + root);
        const std::vector<Tensor> inputs = make_inputs(run, values);
        ASSERT_TRUE(all_hold(run, make(run, inputs), run.expect(values))) << "root " << to_string(devices[0]);
        const std::vector<TestTensor> outputs = make_poisoned_outputs(run);
        write(run, inputs, tensors_of(outputs));
        ASSERT_TRUE(all_hold(outputs, run.expect(values))) << "root " << to_string(devices[0]);
      }
    }
  }

  static PeerState state(int device, int peer) {
    return discover_topology().peers[static_cast<std::size_t>(device)][static_cast<std::size_t>(peer)].state;
  }
};
TUTTI_FOR_EVERY_COLLECTIVE(Peers);

TEST_P(Peers, ThatRefuseAccessAreReachedAnotherWay) {
  virtual_devices::inject({.operation = Operation::enable_peer, .count = forever});
  expect_right_results();
}

TEST_P(Peers, ThatRefuseOneAnotherDoNotDisturbTheOthers) {
  virtual_devices::inject({.operation = Operation::enable_peer, .device = 0, .peer = 1, .count = forever});
  virtual_devices::inject({.operation = Operation::enable_peer, .device = 3, .peer = 2, .count = forever});
  expect_right_results();
  self_test_peers();
  EXPECT_EQ(state(0, 1), PeerState::unreachable);
  EXPECT_EQ(state(3, 2), PeerState::unreachable);
  EXPECT_EQ(state(0, 2), PeerState::usable);
}

TEST_P(Peers, WhoseLinkCorruptsAreVetoedBeforeUserDataMoves) {
  for (const Operation damaged : {Operation::kernel, Operation::copy}) {
    boot();
    virtual_devices::inject(
        {.operation = damaged, .kind = FaultKind::corrupt, .device = 0, .peer = 1, .count = forever});
    virtual_devices::inject(
        {.operation = damaged, .kind = FaultKind::corrupt, .device = 1, .peer = 0, .count = forever});
    expect_right_results();
    self_test_peers();
    EXPECT_EQ(state(0, 1), PeerState::corrupting);
    EXPECT_EQ(state(0, 2), PeerState::usable);
    EXPECT_EQ(state(2, 3), PeerState::usable);
  }
}

TEST_P(Peers, AreAllAvoidedWhereEveryLinkCorrupts) {
  for (const Operation damaged : {Operation::kernel, Operation::copy}) {
    virtual_devices::inject({.operation = damaged, .kind = FaultKind::corrupt, .count = forever});
  }
  expect_right_results();
}

TEST(SelfTest, FindsCorruptionInOneDirection) {
  boot();
  virtual_devices::inject(
      {.operation = Operation::kernel, .kind = FaultKind::corrupt, .device = 2, .peer = 1, .count = forever});
  self_test_peers();
  const Topology topology = discover_topology();
  EXPECT_EQ(topology.peers[2][1].state, PeerState::corrupting);
  EXPECT_EQ(topology.peers[0][3].state, PeerState::usable);
  EXPECT_NE(to_string(topology).find(name_of(PeerState::corrupting)), std::string::npos)
      << to_string(topology);
  virtual_devices::clear_faults();
}

TEST(SelfTest, RunsOncePerPair) {
  boot();
  self_test_peers();
  const std::uint64_t before = virtual_devices::operations_enqueued();
  self_test_peers();
  EXPECT_EQ(virtual_devices::operations_enqueued(), before);
}

/// A virtual machine by topology and number of devices.
class Topologies : public testing::TestWithParam<std::tuple<std::string, int>> {
 protected:
  void SetUp() override { boot(std::get<0>(GetParam()), std::get<1>(GetParam())); }
  void TearDown() override { EXPECT_NO_THROW(synchronize_all()); }
};
INSTANTIATE_TEST_SUITE_P(Machines, Topologies,
                         testing::Combine(testing::Values("island", "two-islands", "pcie", "pcie-p2p"),
                                          testing::Values(2, 3, 4, 8)),
                         [](const auto& parameters) {
                           std::string name = std::get<0>(parameters.param);
                           std::ranges::replace(name, '-', '_');
                           return name + "_" + std::to_string(std::get<1>(parameters.param));
                         });

TEST_P(Topologies, CarryEveryCollectiveByEveryTransport) {
  const std::vector<Device> devices = shuffled(first_devices());
  for (const CollectiveForm collective : all_collectives) {
    for (const TransportKind transport : transports_under_test()) {
      for (const std::int64_t rows : {std::int64_t{1}, std::int64_t{129}, scaled(20'001)}) {
        const Exercise run = make_exercise(collective, devices, rows, DType::float16);
        const std::vector<HostArray> values = run.values(test_seed());
        const std::vector<Tensor> inputs = make_inputs(run, values);
        std::vector<Tensor> results;
        carry(transport, [&](const CollectiveOptions& options) { results = run.make(inputs, options); },
              {.determinism = Determinism::bitwise});
        ASSERT_TRUE(all_hold(run, results, run.expect(values))) << name_of(transport) << " rows " << rows;
      }
    }
  }
}

TEST_P(Topologies, GatherToTheHostAndScatterFromIt) {
  const std::vector<Device> devices = shuffled(first_devices());
  const HostArray values = random_bits(DType::int32, {scaled(50'000), 3}, test_seed());
  for (const TransportKind transport : transports_under_test()) {
    carry(transport, [&](const CollectiveOptions& options) {
      const std::vector<Tensor> chunks =
          scatter(make_tensor(values, Device::host()), devices, {}, 0, {}, options);
      EXPECT_TRUE(holds(gather(chunks, 0, Device::host(), options), Device::host(), values))
          << name_of(transport);
    });
  }
}

}  // namespace
}  // namespace tutti::test
