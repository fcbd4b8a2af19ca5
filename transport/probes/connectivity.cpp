// SPDX-License-Identifier: Apache-2.0
#include "transport/probes/connectivity.hpp"

#include "device/blocking_call.hpp"
#include "device/peer_access.hpp"
#include "settings/log.hpp"
#include "tutti/error.hpp"

#include <set>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport {
namespace {

LinkClass class_of(backend::LinkKind kind) {
  switch (kind) {
    case backend::LinkKind::self:
      return LinkClass::self;
    case backend::LinkKind::nvlink:
      return LinkClass::nvlink;
    case backend::LinkKind::pcie_p2p:
      return LinkClass::pcie;
    case backend::LinkKind::host_bridge:
      break;
  }
  return LinkClass::host_bridge;
}

}  // namespace

Connectivity::Connectivity(Runtime& runtime)
    : runtime_(runtime),
      count_(runtime.device_count()),
      states_(static_cast<std::size_t>(count_) * static_cast<std::size_t>(count_)),
      reasons_(states_.size()),
      streams_(static_cast<std::size_t>(count_)) {
  links_.reserve(states_.size());
  for (int device = 0; device < count_; ++device) {
    for (int peer = 0; peer < count_; ++peer) {
      const backend::Link link = runtime.backend().link(device, peer);
      PeerState state = PeerState::unreachable;
      if (device == peer) {
        state = PeerState::usable;
      } else if (runtime.backend().can_access_peer(device, peer)) {
        state = PeerState::untested;
      }
      links_.push_back({.link = class_of(link.kind),
                        .state = state,
                        .lanes = link.lanes,
                        .gigabytes_per_s = link.gigabytes_per_s});
      states_[index(device, peer)].store(state);
    }
  }
}

Connectivity::~Connectivity() {
  for (const backend::StreamRef stream : streams_) {
    if (stream != backend::StreamRef{}) runtime_.backend().destroy_stream(stream);
  }
}

PeerLink Connectivity::link(int device, int peer) const {
  PeerLink link = links_[index(device, peer)];
  link.state = state(device, peer);
  return link;
}

bool Connectivity::direct(int device, int peer, std::span<const int> among) {
  if (state(device, peer) == PeerState::untested) {
    std::vector<int> devices(among.begin(), among.end());
    devices.insert(devices.end(), {device, peer});
    test(devices);
  }
  return state(device, peer) == PeerState::usable;
}

void Connectivity::test(std::span<const int> among) {
  const std::lock_guard lock(test_mutex_);
  const std::vector<DevicePair> pairs = enable_untested(among);
  if (pairs.empty()) return;

  const BlockingCall blocks(
      "the first call that moves data between these devices, which tests how they are connected");
  create_streams(pairs);
  try {
    SelfTest self_test(runtime_, streams_, pairs);
    const std::vector<std::string> findings = self_test.run();
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      settle(pairs[i], findings[i].empty() ? PeerState::usable : PeerState::corrupting, findings[i]);
    }
  } catch (const OutOfMemoryError& error) {
    if (std::exchange(told_of_shortage_, true)) return;
    log_warning(fmt::format("peer access is not used for now, because there is no memory to test it: {}",
                            error.what()));
  }
}

std::string Connectivity::reason(int device, int peer) const {
  switch (state(device, peer)) {
    case PeerState::usable:
      return {};
    case PeerState::untested:
      return fmt::format("peer access from device {} to device {} is not tested", device, peer);
    case PeerState::unreachable:
    case PeerState::corrupting:
      break;
  }
  const std::lock_guard lock(test_mutex_);
  const std::string& known = reasons_[index(device, peer)];
  return known.empty() ? fmt::format("device {} has no peer access to device {}", device, peer) : known;
}

std::size_t Connectivity::index(int device, int peer) const noexcept {
  return static_cast<std::size_t>(device) * static_cast<std::size_t>(count_) + static_cast<std::size_t>(peer);
}

PeerState Connectivity::state(int device, int peer) const noexcept {
  return states_[index(device, peer)].load(std::memory_order_acquire);
}

std::vector<DevicePair> Connectivity::enable_untested(std::span<const int> among) {
  const std::set<int> devices(among.begin(), among.end());
  std::vector<DevicePair> pairs;
  for (const int device : devices) {
    for (const int peer : devices) {
      if (state(device, peer) != PeerState::untested) continue;
      try {
        runtime_.part<PeerAccess>().enable(device, peer);
        pairs.push_back({device, peer});
      } catch (const Error& error) {
        if (error.code() != ErrorCode::peer_unavailable) throw;
        settle({device, peer}, PeerState::unreachable,
               fmt::format("peer access from device {} to device {} was refused: {}", device, peer,
                           error.what()));
      }
    }
  }
  return pairs;
}

void Connectivity::create_streams(std::span<const DevicePair> pairs) {
  // Not for all devices: the first stream of a GPU costs memory and time there.
  for (const DevicePair& pair : pairs) {
    for (const int device : {pair.device, pair.peer}) {
      backend::StreamRef& stream = streams_[static_cast<std::size_t>(device)];
      if (stream == backend::StreamRef{}) stream = runtime_.backend().create_stream(device, 0);
    }
  }
}

void Connectivity::settle(DevicePair pair, PeerState state, const std::string& reason) {
  const std::size_t entry = index(pair.device, pair.peer);
  reasons_[entry] = reason;
  states_[entry].store(state, std::memory_order_release);
  if (!reason.empty()) log_warning(reason + "; this pair is not used directly");
}

}  // namespace tutti::transport
