// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace tutti::backend {

/// What a thread has current natively: a device, and the context there, nullptr if it has none yet.
struct NativePlace {
  int device = -1;
  void* context = nullptr;
};

/// How two devices are connected, best first.
enum class LinkKind : std::uint8_t { self, nvlink, pcie_p2p, host_bridge };

struct Link {
  LinkKind kind = LinkKind::host_bridge;
  int lanes = 0;                 ///< NVLink connections, 0 if not applicable or unknown
  double gigabytes_per_s = 0.0;  ///< nominal payload rate in one direction, 0 if unknown
};

/// What the devices are, which one a thread uses, and how they reach one another.
class DeviceCalls {
 public:
  DeviceCalls(const DeviceCalls&) = delete;
  DeviceCalls& operator=(const DeviceCalls&) = delete;

  [[nodiscard]] virtual BackendKind kind() const noexcept = 0;
  [[nodiscard]] virtual int device_count() const noexcept = 0;
  [[nodiscard]] virtual const DeviceProperties& properties(int device) const = 0;
  [[nodiscard]] virtual MemoryInfo memory_info(int device) = 0;
  /// The calling thread's native current device, whoever has made it so; nothing on virtual devices, which
  /// have none.
  [[nodiscard]] virtual std::optional<int> native_device() { return std::nullopt; }
  /// Makes the calling thread's native current device follow; no-op on virtual devices.
  virtual void set_current_device(int device) = 0;
  /// The same until `leave_device` gets what this returns, on the same thread. What was current then is as it
  /// was: also a context that is the caller's own, or none, where the device has none yet.
  [[nodiscard]] virtual NativePlace enter_device(int /*device*/) { return {}; }
  virtual void leave_device(const NativePlace& /*previous*/) noexcept {}
  /// See `DeviceScope`. No-ops on virtual devices.
  virtual void open_device_scope() {}
  virtual void close_device_scope() noexcept {}
  /// Least and greatest priority of streams as (least, greatest); numerically lower is more urgent.
  [[nodiscard]] virtual std::pair<int, int> stream_priority_range(int device) const = 0;
  [[nodiscard]] virtual Link link(int device, int peer) = 0;
  /// Whether it is NVLink, for certain, that leads to a GPU: one that this process sees, or one of another
  /// process, which must then say the same. Virtual devices have no bus.
  [[nodiscard]] virtual bool has_nvlink_to(int /*device*/, const std::string& /*pci_bus_id*/) {
    return false;
  }
  [[nodiscard]] virtual bool can_access_peer(int device, int peer) = 0;
  /// Lets `device` access the memory of `peer`. Idempotent. Throws Error(peer_unavailable) if refused.
  virtual void enable_peer_access(int device, int peer) = 0;
  /// Blocks until every stream of `device` is idle; throws the first pending failure of the device.
  virtual void synchronize_device(int device) = 0;

 protected:
  DeviceCalls() = default;
  ~DeviceCalls() = default;
};

/// While it exists, calls on its thread may leave another native device current than they found; the
/// outermost one restores the caller's. Many calls about default streams would else switch to and fro. Nobody
/// else may change the thread's native device meanwhile.
class DeviceScope {
 public:
  explicit DeviceScope(DeviceCalls& calls) : calls_(calls) { calls_.open_device_scope(); }
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  ~DeviceScope() { calls_.close_device_scope(); }

 private:
  DeviceCalls& calls_;
};

}  // namespace tutti::backend
