// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <vector>

namespace tutti::backend::host {

/// Records which devices have access to which others' memory. Thread-safe.
class PeerAccess {
 public:
  explicit PeerAccess(int device_count)
      : device_count_(static_cast<std::size_t>(device_count)), enabled_(device_count_ * device_count_) {}

  void enable(int device, int peer) noexcept { enabled_[index(device, peer)].store(true); }
  [[nodiscard]] bool enabled(int device, int peer) const noexcept {
    return enabled_[index(device, peer)].load();
  }

 private:
  [[nodiscard]] std::size_t index(int device, int peer) const noexcept {
    return static_cast<std::size_t>(device) * device_count_ + static_cast<std::size_t>(peer);
  }

  std::size_t device_count_;
  std::vector<std::atomic<bool>> enabled_;
};

}  // namespace tutti::backend::host
