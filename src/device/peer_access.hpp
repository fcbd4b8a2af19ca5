// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime_part.hpp"

#include <atomic>
#include <mutex>
#include <vector>

namespace tutti {

namespace backend {
class Backend;
}
class Runtime;

/// Remembers which devices may access each other's memory. Thread-safe.
class PeerAccess final : public RuntimePart {
 public:
  static constexpr PartSlot slot = PartSlot::peer_access;

  explicit PeerAccess(Runtime& runtime);

  /// Calls `Backend::enable_peer_access` once for each ordered pair; afterwards costs one atomic load.
  void enable(int device, int peer);

 private:
  backend::Backend& backend_;
  const int device_count_;
  std::mutex mutex_;
  std::vector<std::atomic<bool>> enabled_;  ///< by `device * device_count_ + peer`
};

}  // namespace tutti
