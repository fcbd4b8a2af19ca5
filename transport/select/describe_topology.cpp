// SPDX-License-Identifier: Apache-2.0
#include "base/format_bytes.hpp"
#include "device/runtime.hpp"
#include "transport/nccl/nccl.hpp"
#include "transport/probes/connectivity.hpp"
#include "tutti/topology.hpp"

#include <algorithm>
#include <numeric>
#include <set>

#include <fmt/format.h>

namespace tutti {
namespace {

/// Returns the label of a cell in the link matrix.
std::string label(const PeerLink& link) {
  switch (link.link) {
    case LinkClass::self:
      return "self";
    case LinkClass::nvlink:
      return link.lanes > 0 ? fmt::format("NV{}", link.lanes) : "NV";
    case LinkClass::pcie:
      return "PCIe";
    case LinkClass::host_bridge:
      break;
  }
  return "SYS";
}

/// Returns the meaning of the label.
std::string meaning(const PeerLink& link) {
  std::string text;
  switch (link.link) {
    case LinkClass::self:
      text = "the same device";
      break;
    case LinkClass::nvlink:
      text = link.lanes > 0 ? fmt::format("NVLink, {} connections", link.lanes) : "NVLink";
      break;
    case LinkClass::pcie:
      text = "peer access over PCIe";
      break;
    case LinkClass::host_bridge:
      text = "through host memory";
      break;
  }
  if (link.gigabytes_per_s > 0) text += fmt::format(", {:g} GB/s in each direction", link.gigabytes_per_s);
  return text;
}

/// All ordered pairs of different devices.
std::vector<PeerLink> pairs_of(const Topology& topology) {
  std::vector<PeerLink> pairs;
  for (std::size_t i = 0; i < topology.peers.size(); ++i) {
    for (std::size_t j = 0; j < topology.peers[i].size(); ++j) {
      if (i != j) pairs.push_back(topology.peers[i][j]);
    }
  }
  return pairs;
}

template <class Cell>
std::string matrix(const Topology& topology, Cell cell) {
  std::size_t width = 4;
  for (const auto& row : topology.peers) {
    for (const PeerLink& link : row) width = std::max(width, cell(link).size());
  }
  std::string text = fmt::format("  {:>6}", "");
  for (std::size_t column = 0; column < topology.peers.size(); ++column) {
    text += fmt::format("  {:>{}}", column, width);
  }
  text += '\n';
  for (std::size_t row = 0; row < topology.peers.size(); ++row) {
    text += fmt::format("  {:>6}", row);
    for (const PeerLink& link : topology.peers[row]) text += fmt::format("  {:>{}}", cell(link), width);
    text += '\n';
  }
  return text;
}

std::string device_table(const Topology& topology) {
  std::size_t name_width = 0;
  for (const DeviceProperties& device : topology.devices)
    name_width = std::max(name_width, device.name.size());
  std::string text;
  for (std::size_t index = 0; index < topology.devices.size(); ++index) {
    const DeviceProperties& device = topology.devices[index];
    text += fmt::format("  {:>6}  {:<{}}  {:>10}", index, device.name, name_width,
                        format_bytes(device.total_memory));
    if (device.major > 0) text += fmt::format("  compute {}.{}", device.major, device.minor);
    if (!device.pci_bus_id.empty()) text += "  " + device.pci_bus_id;
    text += '\n';
  }
  return text;
}

std::string link_table(const Topology& topology) {
  std::string text = "\nlinks\n" + matrix(topology, label) + '\n';
  std::set<std::string> explained;
  for (const PeerLink& link : pairs_of(topology)) {
    if (explained.insert(label(link)).second)
      text += fmt::format("  {:>6}  {}\n", label(link), meaning(link));
  }
  return text;
}

std::string peer_table(const Topology& topology) {
  const std::vector<PeerLink> pairs = pairs_of(topology);
  const PeerState first = pairs.front().state;
  const bool all_alike =
      std::ranges::all_of(pairs, [first](const PeerLink& pair) { return pair.state == first; });
  if (all_alike) return fmt::format("\npeer access: all pairs {}\n", name_of(first));
  const auto cell = [](const PeerLink& link) {
    return std::string(link.link == LinkClass::self ? "self" : name_of(link.state));
  };
  return "\npeer access of the row's device to the column's memory\n" + matrix(topology, cell);
}

}  // namespace

std::string_view name_of(LinkClass link) noexcept {
  switch (link) {
    case LinkClass::self:
      return "self";
    case LinkClass::nvlink:
      return "nvlink";
    case LinkClass::pcie:
      return "pcie";
    case LinkClass::host_bridge:
      break;
  }
  return "host_bridge";
}

std::string_view name_of(PeerState state) noexcept {
  switch (state) {
    case PeerState::untested:
      return "untested";
    case PeerState::usable:
      return "usable";
    case PeerState::unreachable:
      return "unreachable";
    case PeerState::corrupting:
      break;
  }
  return "corrupting";
}

Topology discover_topology() {
  Runtime& runtime = Runtime::get();
  const auto& connectivity = runtime.part<transport::Connectivity>();
  Topology topology;
  topology.backend = runtime.backend().kind();
  topology.peers.resize(static_cast<std::size_t>(runtime.device_count()));
  for (int device = 0; device < runtime.device_count(); ++device) {
    topology.devices.push_back(runtime.backend().properties(device));
    auto& row = topology.peers[static_cast<std::size_t>(device)];
    for (int peer = 0; peer < runtime.device_count(); ++peer) row.push_back(connectivity.link(device, peer));
  }
  topology.nccl = transport::nccl::availability(runtime).detail;
  return topology;
}

std::string to_string(const Topology& topology) {
  const std::size_t count = topology.devices.size();
  std::string text = fmt::format("{} {} (backend {})\n", count, count == 1 ? "device" : "devices",
                                 name_of(topology.backend));
  text += device_table(topology);
  if (count > 1) text += link_table(topology) + peer_table(topology);
  text += fmt::format("\nNCCL: {}\n", topology.nccl);
  return text;
}

void self_test_peers() {
  Runtime& runtime = Runtime::get();
  std::vector<int> devices(static_cast<std::size_t>(runtime.device_count()));
  std::iota(devices.begin(), devices.end(), 0);
  runtime.part<transport::Connectivity>().test(devices);
}

}  // namespace tutti
