// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device_properties.hpp"
#include "tutti/export.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti {

/// A location of memory: the host, or one device (a GPU or a virtual device) by index.
///
/// `Device{3}` is device 3, `Device::host()` the host. Devices print as "device:3" and "host", which `parse`
/// reads.
///
/// A negative index gives `Device::current()`: it stands for the calling thread's current device at the time
/// of use, wherever a call, list or struct of options names a device. So `set_device` and `DeviceGuard` do
/// nothing with it, and tensors never have it. No index means the host. Calls that need a device refuse the
/// host, and an index that does not exist, with Error(invalid_argument).
class Device {
 public:
  constexpr Device() = default;  ///< the host
  /// Makes device `index`. The conversion is implicit, so that a list of devices can be written {0, 1, 2}.
  constexpr Device(int index) noexcept : index_(index < 0 ? current_index : index) {}
  [[nodiscard]] static constexpr Device host() noexcept { return Device{}; }
  [[nodiscard]] static constexpr Device current() noexcept { return Device{current_index}; }
  /// Parses a device's name: "device:1" and "cuda:1" are device 1, whichever backend is in use, so that the
  /// same programs run on virtual devices; "device" and "cuda" are the current device; "host" and "cpu" are
  /// the host. Does not check whether the device exists. Throws Error(invalid_argument) for any other text.
  [[nodiscard]] TUTTI_EXPORT static Device parse(std::string_view text);

  [[nodiscard]] constexpr bool is_host() const noexcept { return index_ == host_index; }
  /// Returns whether this is `Device::current()`, whichever device that is.
  [[nodiscard]] constexpr bool is_current() const noexcept { return index_ == current_index; }
  /// Returns the device's index; -1 for the host and for `Device::current()`.
  [[nodiscard]] constexpr int index() const noexcept { return index_ < 0 ? -1 : index_; }
  friend constexpr auto operator<=>(Device, Device) = default;

 private:
  static constexpr int current_index = -2;
  static constexpr int host_index = -1;
  int index_ = host_index;
};

[[nodiscard]] TUTTI_EXPORT std::string to_string(Device device);
TUTTI_EXPORT std::ostream& operator<<(std::ostream& stream, Device device);

/// Returns whether `device_count` is more than 0. Never throws: returns false if that would throw.
[[nodiscard]] TUTTI_EXPORT bool is_available() noexcept;
/// Returns whether some call has selected a backend.
[[nodiscard]] TUTTI_EXPORT bool is_initialized() noexcept;
/// Selects the backend and creates the library's process-wide state; later calls do nothing. Thread-safe, and
/// called implicitly by everything that needs a device.
///
/// The environment variable `TUTTI_BACKEND` names the backend (`auto`, `cuda`, `host`). `auto`, the default,
/// takes GPUs if there are any, and otherwise virtual devices, with the reason in one line on standard error;
/// `host` takes virtual devices. Throws Error(unsupported) if `cuda` is requested and no GPU is usable, and
/// Error(invalid_argument) if this or another `TUTTI_` variable, or a file that one names, has an invalid
/// value.
///
/// A process that is forked afterwards cannot use its parent's devices: everything there that needs a device
/// throws Error(unsupported), except `virtual_devices::start`, which gives it its own devices.
TUTTI_EXPORT void init();
/// Returns the backend in use.
[[nodiscard]] TUTTI_EXPORT BackendKind backend_kind();

/// Returns the number of devices of the selected backend. If none is selected yet, returns the number for the
/// backend that `init` would select, without selecting it: a process forked afterwards may still use devices.
/// GPUs are then counted by NVML, respecting `CUDA_VISIBLE_DEVICES`, and not initialised; whether CUDA can
/// use them is found out by `init`. The call selects the backend only if NVML cannot tell: it is absent
/// though CUDA's driver is there, GPUs are divided by MIG, or `CUDA_VISIBLE_DEVICES` has values that are
/// neither plain indices nor UUIDs of GPUs.
///
/// The number is 0 if `cuda` is requested and no GPU is usable, for a virtual machine that was started
/// without devices, and in a forked process that cannot use its parent's devices. Throws
/// Error(invalid_argument) as `init` does.
[[nodiscard]] TUTTI_EXPORT int device_count();
/// Returns the calling thread's current device. On GPUs it is CUDA's, whether it was set by `set_device`,
/// `cudaSetDevice` or the thread's context. Otherwise a new thread starts at device 0, as with CUDA.
[[nodiscard]] TUTTI_EXPORT int current_device();
/// Makes `device` current for the calling thread; on GPUs as `cudaSetDevice` does. A negative index and the
/// host do nothing. Throws Error(invalid_argument) if there is no such device.
TUTTI_EXPORT void set_device(Device device);

[[nodiscard]] TUTTI_EXPORT const DeviceProperties& get_device_properties(Device device = Device::current());
[[nodiscard]] TUTTI_EXPORT std::string get_device_name(Device device = Device::current());
/// Returns the compute capability as (major, minor).
[[nodiscard]] TUTTI_EXPORT std::pair<int, int> get_device_capability(Device device = Device::current());
/// Returns the architectures for which this build carries machine code or PTX, for instance "sm_90",
/// "compute_90". Empty without CUDA.
[[nodiscard]] TUTTI_EXPORT std::vector<std::string> get_arch_list();
/// Returns the nvcc flags that would build for `get_arch_list()`.
[[nodiscard]] TUTTI_EXPORT std::string get_gencode_flags();

/// Returns whether kernels and copies on `device` may access the memory of `peer` directly. It is false for
/// device == peer, as in CUDA.
[[nodiscard]] TUTTI_EXPORT bool can_device_access_peer(Device device, Device peer);

/// Blocks the host until all work queued on `device` is done; rethrows the first failure of asynchronous work
/// there.
TUTTI_EXPORT void synchronize(Device device = Device::current());

/// Returns a GPU's memory across all processes; for a virtual device, returns that of this process, as every
/// process has its own. Memory cached by the caching allocator is not free.
[[nodiscard]] TUTTI_EXPORT MemoryInfo mem_get_info(Device device = Device::current());

/// Makes a device current for the scope's lifetime and restores the previous state, whoever had set it: on
/// GPUs the thread's context, or that it had none. Guards nest. Destroy a guard on the thread that created
/// it.
class TUTTI_EXPORT DeviceGuard {
 public:
  /// Makes `device` current. The host and the current device do nothing, so that a guard also works for "the
  /// device of this tensor".
  explicit DeviceGuard(Device device);
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard();

  /// Returns the device that was current before; -1 if the guard does nothing and no backend was selected
  /// yet.
  [[nodiscard]] int original_device() const noexcept { return original_; }

 private:
  int original_ = -1;
  bool restores_;
  void* context_ = nullptr;  ///< on GPUs the thread's context, nullptr if it had none
};

}  // namespace tutti

template <>
struct std::hash<tutti::Device> {
  std::size_t operator()(tutti::Device device) const noexcept { return std::hash<int>{}(device.index()); }
};
