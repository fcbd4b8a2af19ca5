// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device_properties.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

namespace tutti::backend {

/// A thread's native current device, and the context there, nullptr if it has none yet.
struct NativePlace {
  int device = -1;
  void* context = nullptr;
};

/// The connection between two devices, best first.
enum class LinkKind : std::uint8_t { self, nvlink, pcie_p2p, host_bridge };

struct Link {
  LinkKind kind = LinkKind::host_bridge;
  int lanes = 0;                 ///< NVLink connections, 0 if not applicable or unknown
  double gigabytes_per_s = 0.0;  ///< nominal payload rate in one direction, 0 if unknown
};

/// Describes devices, selects the one that a thread uses, and tells how they reach one another.
class DeviceCalls {
 public:
  DeviceCalls(const DeviceCalls&) = delete;
  DeviceCalls& operator=(const DeviceCalls&) = delete;

  [[nodiscard]] virtual BackendKind kind() const noexcept = 0;
  [[nodiscard]] virtual int device_count() const noexcept = 0;
  [[nodiscard]] virtual const DeviceProperties& properties(int device) const = 0;
  [[nodiscard]] virtual MemoryInfo memory_info(int device) = 0;
  /// Returns the calling thread's native current device, whoever has set it; nothing on virtual devices,
  /// which have none.
  [[nodiscard]] virtual std::optional<int> native_device() { return std::nullopt; }
  /// Sets the calling thread's native current device; no-op on virtual devices.
  virtual void set_current_device(int device) = 0;
  /// Sets the native current device until `leave_device` gets the result, on the same thread. That restores
  /// what was current before, including a context of the caller's own, or none, if the device has none yet.
  [[nodiscard]] virtual NativePlace enter_device(int /*device*/) { return {}; }
  virtual void leave_device(const NativePlace& /*previous*/) noexcept {}
  /// See `DeviceScope`. No-ops on virtual devices.
  virtual void open_device_scope() {}
  virtual void close_device_scope() noexcept {}
  /// Returns the least and greatest priority of streams as (least, greatest); numerically lower is more
  /// urgent.
  [[nodiscard]] virtual std::pair<int, int> stream_priority_range(int device) const = 0;
  [[nodiscard]] virtual Link link(int device, int peer) = 0;
  /// Returns true if NVLink certainly connects the device with a GPU, which this process or another one sees;
  /// the other one must return the same. Virtual devices have no bus.
  [[nodiscard]] virtual bool has_nvlink_to(int /*device*/, const std::string& /*pci_bus_id*/) {
    return false;
  }
  [[nodiscard]] virtual bool can_access_peer(int device, int peer) = 0;
  /// Lets `device` access the memory of `peer`. Idempotent. Throws Error(peer_unavailable) if refused.
  virtual void enable_peer_access(int device, int peer) = 0;
  /// Waits until every stream of `device` is idle; throws the first pending failure of the device.
  virtual void synchronize_device(int device) = 0;

 protected:
  DeviceCalls() = default;
  ~DeviceCalls() = default;
};

/// Allows calls on its thread, while it exists, to leave another native device current than they found; the
/// outermost scope restores the caller's. Without it, series of calls on default streams would switch back
/// and forth. Nobody else may change the thread's native device meanwhile.
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
