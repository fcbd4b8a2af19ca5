// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/virtual_devices.hpp"

#include <atomic>
#include <chrono>
#include <mutex>
#include <vector>

namespace tutti::backend::host {

/// Decides which operations fail, and how. Thread-safe; costs one load while there are no faults.
class Faults {
 public:
  /// The effect on one accepted operation.
  struct Disturbance {
    bool refused = false;  ///< fail while enqueuing
    bool failing = false;  ///< fail when it runs
    std::chrono::microseconds delay{0};
  };

  void inject(const virtual_devices::Fault& fault);
  void clear();
  [[nodiscard]] bool any() const noexcept { return any_.load(std::memory_order_relaxed); }

  /// Counts one operation against the `fail`, `fail_asynchronously` and `delay` faults that match it.
  /// `device` and `peer` are -1 where the operation has none.
  [[nodiscard]] Disturbance disturb(virtual_devices::Operation operation, int device, int peer = -1);
  /// Counts one operation that wrote through the link between `device` and `peer` against the `corrupt`
  /// faults.
  [[nodiscard]] bool corrupts(virtual_devices::Operation operation, int device, int peer);

 private:
  struct ActiveFault {
    virtual_devices::Fault fault;
    std::uint64_t seen = 0;  ///< matching operations so far
  };
  /// Counts one operation; true if `active` hits it.
  [[nodiscard]] static bool hits(ActiveFault& active, virtual_devices::Operation operation, int device,
                                 int peer);

  std::atomic<bool> any_{false};
  std::mutex mutex_;
  std::vector<ActiveFault> faults_;
};

}  // namespace tutti::backend::host
