// SPDX-License-Identifier: Apache-2.0
#include "device/peer_access.hpp"

#include "device/runtime.hpp"

namespace tutti {

PeerAccess::PeerAccess(Runtime& runtime)
    : backend_(runtime.backend()),
      device_count_(runtime.device_count()),
      enabled_(static_cast<std::size_t>(device_count_ * device_count_)) {}

void PeerAccess::enable(int device, int peer) {
  if (device == peer) return;
  std::atomic<bool>& enabled = enabled_[static_cast<std::size_t>(device * device_count_ + peer)];
  if (enabled.load(std::memory_order_acquire)) return;
  const std::lock_guard lock(mutex_);
  if (enabled.load(std::memory_order_relaxed)) return;
  backend_.enable_peer_access(device, peer);
  enabled.store(true, std::memory_order_release);
}

}  // namespace tutti
