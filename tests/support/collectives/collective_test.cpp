// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/collective_test.hpp"

#include "support/values/random.hpp"
#include "tutti/topology.hpp"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <regex>
#include <string_view>

namespace tutti::test {

namespace {

/// Whether neither of two devices may still use the other's memory directly.
bool are_strangers(const Topology& topology, std::size_t device, std::size_t peer) {
  const auto is_open = [&](std::size_t from, std::size_t to) {
    const PeerState state = topology.peers.at(from).at(to).state;
    return state == PeerState::usable || state == PeerState::untested;
  };
  return device != peer && !is_open(device, peer) && !is_open(peer, device);
}

/// How many of `devices` there are at most of which no two may use each other's memory.
std::size_t most_strangers(const Topology& topology, std::vector<Device> devices) {
  if (devices.empty()) return 0;
  const auto index = [](Device device) { return static_cast<std::size_t>(device.index()); };
  const Device last = devices.back();
  devices.pop_back();
  std::vector<Device> others;
  std::ranges::copy_if(devices, std::back_inserter(others),
                       [&](Device other) { return are_strangers(topology, index(last), index(other)); });
  const std::size_t with_last = 1 + most_strangers(topology, others);
  return others.size() == devices.size() ? with_last : std::max(with_last, most_strangers(topology, devices));
}

}  // namespace

std::vector<TransportKind> transports_under_test() {
  std::vector<TransportKind> transports{TransportKind::automatic, TransportKind::p2p, TransportKind::staged};
  const char* backend = std::getenv("TUTTI_BACKEND");
  // Asked of the environment, because the list is made before `main` and must not start the library.
  if (backend == nullptr || std::string_view(backend) != "host") transports.push_back(TransportKind::nccl);
  return transports;
}

const std::string& reason_against_nccl() {
  static const std::string reason = [] {
    if (on_virtual_devices()) return std::string("NCCL needs GPUs");
    if (device_count() < 2) return std::string("NCCL needs two GPUs");
    try {
      const Tensor probe = zeros({1}, {.device = 0});
      static_cast<void>(broadcast(probe, {0, 1}, {.transport = TransportKind::nccl}));
    } catch (const Error& error) {
      if (error.code() != ErrorCode::unsupported) throw;
      return std::string(error.what());
    }
    return std::string();
  }();
  return reason;
}

bool is_right_refusal_by_p2p(const std::string& refusal) {
  std::smatch said;
  if (!std::regex_search(refusal, said, std::regex("no two of the ([0-9]+) devices can access each other")))
    return false;
  const std::size_t count = std::stoul(said[1]);
  if (count != 2) return count <= most_strangers(discover_topology(), first_devices(device_count()));
  const std::regex pair("\\(.*?device ([0-9]+) .*?device ([0-9]+)");
  return std::regex_search(refusal, said, pair) &&
         are_strangers(discover_topology(), std::stoul(said[1]), std::stoul(said[2]));
}

void CollectiveTest::SetUp() {
  if (GetParam() == TransportKind::nccl && !reason_against_nccl().empty())
    GTEST_SKIP() << reason_against_nccl();
}

void CollectiveTest::TearDown() {
  EXPECT_NO_THROW(synchronize_all());
}

std::vector<std::int64_t> telling_sizes() {
  constexpr std::int64_t kibi = 1024;
  constexpr std::int64_t mebi = 1024 * kibi;
  std::vector<std::int64_t> sizes{
      0, 1, 2, 3, 15, 16, 17, 127, 511, 513, kibi, 4 * kibi + 1, 64 * kibi - 1, 64 * kibi};
  for (const std::int64_t size : {256 * kibi + 5, 512 * kibi + 1, mebi - 1, mebi, mebi + 7, 2 * mebi + 1,
                                  4 * mebi + 3, 9 * mebi + 11}) {
    const std::int64_t affordable = scaled(size);
    // The odd byte is what makes these sizes telling; keep it.
    sizes.push_back(affordable == size ? size : affordable | 1);
  }
  return sizes;
}

std::vector<Device> shuffled(std::vector<Device> devices) {
  for (std::size_t i = devices.size(); i > 1; --i) std::swap(devices[i - 1], devices[random_at(7, i) % i]);
  return devices;
}

}  // namespace tutti::test
