// SPDX-License-Identifier: Apache-2.0
#include "tutti/topology.hpp"

#include "support/environment.hpp"
#include "tutti/virtual_devices.hpp"

#include <string>

#include <gtest/gtest.h>

namespace tutti {
namespace {

testing::AssertionResult contains(const std::string& text, const std::string& part) {
  if (text.find(part) != std::string::npos) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "no \"" << part << "\" in:\n" << text;
}

/// Two GPUs that nobody has to own.
Topology two_gpus() {
  const DeviceProperties device{.name = "Imagined GPU",
                                .major = 9,
                                .minor = 0,
                                .total_memory = std::size_t{80} << 30,
                                .pci_bus_id = "0000:1b:00.0"};
  const PeerLink self{LinkClass::self, PeerState::usable, 0, 0};
  const PeerLink link{LinkClass::nvlink, PeerState::usable, 18, 450};
  return {BackendKind::cuda, {device, device}, {{self, link}, {link, self}}, "2.99.1"};
}

TEST(Topology, PrintsDevicesLinksPeersAndNccl) {
  EXPECT_EQ(to_string(two_gpus()),
            "2 devices (backend cuda)\n"
            "       0  Imagined GPU   80.00 GiB  compute 9.0  0000:1b:00.0\n"
            "       1  Imagined GPU   80.00 GiB  compute 9.0  0000:1b:00.0\n"
            "\n"
            "links\n"
            "             0     1\n"
            "       0  self  NV18\n"
            "       1  NV18  self\n"
            "\n"
            "    NV18  NVLink, 18 connections, 450 GB/s in each direction\n"
            "\n"
            "peer access: all pairs usable\n"
            "\n"
            "NCCL: 2.99.1\n");
}

TEST(Topology, PrintsAMatrixWherePairsDiffer) {
  Topology topology = two_gpus();
  topology.peers[1][0].state = PeerState::corrupting;
  EXPECT_TRUE(contains(to_string(topology),
                       "peer access of the row's device to the column's memory\n"
                       "                   0           1\n"
                       "       0        self      usable\n"
                       "       1  corrupting        self\n"));
}

TEST(Topology, PrintsOneDeviceWithoutMatrices) {
  Topology topology = two_gpus();
  topology.devices.resize(1);
  topology.peers = {{topology.peers[0][0]}};
  EXPECT_EQ(to_string(topology),
            "1 device (backend cuda)\n"
            "       0  Imagined GPU   80.00 GiB  compute 9.0  0000:1b:00.0\n"
            "\n"
            "NCCL: 2.99.1\n");
}

TEST(Topology, NamesAreTheEnumerators) {
  EXPECT_EQ(name_of(LinkClass::self), "self");
  EXPECT_EQ(name_of(LinkClass::nvlink), "nvlink");
  EXPECT_EQ(name_of(LinkClass::pcie), "pcie");
  EXPECT_EQ(name_of(LinkClass::host_bridge), "host_bridge");
  EXPECT_EQ(name_of(PeerState::untested), "untested");
  EXPECT_EQ(name_of(PeerState::usable), "usable");
  EXPECT_EQ(name_of(PeerState::unreachable), "unreachable");
  EXPECT_EQ(name_of(PeerState::corrupting), "corrupting");
}

TEST(Topology, DiscoversEveryPairWithoutTestingIt) {
  const Topology topology = discover_topology();
  ASSERT_EQ(topology.devices.size(), static_cast<std::size_t>(device_count()));
  ASSERT_EQ(topology.peers.size(), topology.devices.size());
  EXPECT_EQ(topology.backend, backend_kind());
  EXPECT_FALSE(topology.nccl.empty());
  for (int device = 0; device < device_count(); ++device) {
    const auto& row = topology.peers[static_cast<std::size_t>(device)];
    ASSERT_EQ(row.size(), topology.devices.size());
    for (int peer = 0; peer < device_count(); ++peer) {
      const PeerLink& link = row[static_cast<std::size_t>(peer)];
      EXPECT_EQ(link.link == LinkClass::self, device == peer);
      if (device != peer) {
        EXPECT_EQ(link.state == PeerState::unreachable, !can_device_access_peer(device, peer));
      }
    }
  }
}

TEST(Topology, AfterTheSelfTestEveryPairIsSettled) {
  self_test_peers();
  const Topology topology = discover_topology();
  for (int device = 0; device < device_count(); ++device) {
    for (int peer = 0; peer < device_count(); ++peer) {
      const bool reachable = device == peer || can_device_access_peer(device, peer);
      EXPECT_EQ(topology.peers[static_cast<std::size_t>(device)][static_cast<std::size_t>(peer)].state,
                reachable ? PeerState::usable : PeerState::unreachable)
          << "device " << device << " to device " << peer;
    }
  }
}

TEST(Topology, OfVirtualDevicesSaysSo) {
  if (!test::on_virtual_devices()) GTEST_SKIP() << "the devices are GPUs";
  virtual_devices::start(virtual_devices::VirtualMachine::from_topology("two-islands", 4));
  self_test_peers();
  const std::string text = to_string(discover_topology());
  EXPECT_TRUE(contains(text, "4 devices (backend host)\n"));
  EXPECT_TRUE(contains(text, "SYS  through host memory"));
  EXPECT_TRUE(contains(text, "NVLink"));
  EXPECT_TRUE(contains(text, "unreachable"));
  EXPECT_TRUE(contains(text, "usable"));
  EXPECT_TRUE(contains(text, "NCCL: not available: the devices are virtual\n"));
}

}  // namespace
}  // namespace tutti
