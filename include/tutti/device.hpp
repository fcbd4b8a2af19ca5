// SPDX-License-Identifier: Apache-2.0
#pragma once

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

/// Which implementation the devices of this process are.
enum class BackendKind : std::uint8_t {
  host,  ///< virtual devices on the CPU
  cuda,  ///< NVIDIA GPUs
};

/// The enumerator's name: "host" or "cuda".
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(BackendKind kind) noexcept;

/// A place memory lives in: the host, or one device (a GPU or a virtual device) by index.
///
/// `Device{3}` is device 3, `Device::host()` the host. Devices print as "device:3" and "host", which `parse`
/// reads.
///
/// A negative index means the calling thread's current device, in every call, list and struct of options that
/// names a device: it is `Device::current()`, and stands for the device that is current when it is used. So
/// `set_device` and `DeviceGuard` do nothing with it, and tensors never have it. The host is never meant by
/// an index. Calls that need a device refuse the host, and an index that does not exist, with
/// Error(invalid_argument).
class Device {
 public:
  constexpr Device() = default;  ///< the host
  /// Device `index`; implicit, so that a list of devices can be written {0, 1, 2}.
  constexpr Device(int index) noexcept : index_(index < 0 ? current_index : index) {}
  [[nodiscard]] static constexpr Device host() noexcept { return Device{}; }
  [[nodiscard]] static constexpr Device current() noexcept { return Device{current_index}; }
  /// The device that a text names: "device:1" and "cuda:1" are device 1, whichever backend is in use, so that
  /// the same programs run on virtual devices; "device" and "cuda" the current device; "host" and "cpu" the
  /// host. Whether there is such a device is not asked here. Throws Error(invalid_argument) for anything
  /// else.
  [[nodiscard]] TUTTI_EXPORT static Device parse(std::string_view text);

  [[nodiscard]] constexpr bool is_host() const noexcept { return index_ == host_index; }
  /// Whether it stands for the current device, whichever that is.
  [[nodiscard]] constexpr bool is_current() const noexcept { return index_ == current_index; }
  /// -1 for the host, and for what stands for the current device.
  [[nodiscard]] constexpr int index() const noexcept { return index_ < 0 ? -1 : index_; }
  friend constexpr auto operator<=>(Device, Device) = default;

 private:
  static constexpr int current_index = -2;
  static constexpr int host_index = -1;
  int index_ = host_index;
};

[[nodiscard]] TUTTI_EXPORT std::string to_string(Device device);
TUTTI_EXPORT std::ostream& operator<<(std::ostream& stream, Device device);

/// What a device is. Sizes are bytes, rates kHz. What virtual devices have no counterpart of is 0, or empty.
struct DeviceProperties {
  std::string name;
  int major = 0;  ///< compute capability; 0.0 for virtual devices
  int minor = 0;
  std::size_t total_memory = 0;
  int multiprocessor_count = 0;
  int warp_size = 0;  ///< threads that a multiprocessor runs in step; 1 for virtual devices
  std::size_t l2_cache_size = 0;
  int max_threads_per_block = 0;
  int max_threads_per_multiprocessor = 0;
  int registers_per_block = 0;  ///< of 32 bits
  int registers_per_multiprocessor = 0;
  std::size_t shared_memory_per_block = 0;        ///< without opting in
  std::size_t shared_memory_per_block_optin = 0;  ///< the most a kernel can opt in to
  std::size_t shared_memory_per_multiprocessor = 0;
  std::size_t constant_memory = 0;
  int clock_rate = 0;         ///< of the multiprocessors, at most
  int memory_clock_rate = 0;  ///< at most
  int memory_bus_width = 0;   ///< in bits
  int copy_engine_count = 0;
  bool is_integrated = false;       ///< shares the host's memory, as opposed to having its own
  bool is_multi_gpu_board = false;  ///< one of several GPUs of a board
  std::string uuid = {};   ///< as NVIDIA's tools show it, "GPU-" and 32 hexadecimal digits in five groups
  std::string pci_bus_id;  ///< empty for virtual devices
  int numa_node = -1;      ///< -1 if unknown
};

/// Whether `device_count` is more than 0. Never throws: false where it would.
[[nodiscard]] TUTTI_EXPORT bool is_available() noexcept;
/// True once some call has selected a backend.
[[nodiscard]] TUTTI_EXPORT bool is_initialized() noexcept;
/// Selects the backend and creates the library's process-wide state; later calls do nothing. Thread-safe, and
/// called implicitly by everything that needs a device.
///
/// The backend is the one named by the environment variable `TUTTI_BACKEND` (`auto`, `cuda`, `host`): `auto`,
/// the default, takes GPUs if there are any and virtual devices otherwise, which it then says, with the
/// reason, in one line on standard error: `host` asks for them. Throws Error(unsupported) if
/// `cuda` is asked for and no GPU is usable, Error(invalid_argument) if it, or another `TUTTI_` variable or
/// the file that one names, holds anything else than it should.
///
/// A process that is forked afterwards cannot use its parent's devices: there, everything that needs a device
/// throws Error(unsupported), but for `virtual_devices::start`, which gives it devices of its own.
TUTTI_EXPORT void init();
/// The backend in use.
[[nodiscard]] TUTTI_EXPORT BackendKind backend_kind();

/// Number of devices of the selected backend. Before one is selected, of the one that `init` would select,
/// which this call does not do: a process forked afterwards may still use devices. GPUs are counted by NVML
/// then, with regard to `CUDA_VISIBLE_DEVICES`, and not touched; if CUDA cannot use them all the same, `init`
/// finds it out. Only what cannot be known so (NVML absent though CUDA's driver is there, GPUs divided by
/// MIG, values of `CUDA_VISIBLE_DEVICES` that are neither plain indices nor UUIDs of GPUs) selects the
/// backend.
///
/// 0 if `cuda` is asked for and no GPU is usable, of a virtual machine that was started without devices, and
/// in a process whose devices are its parent's. Throws Error(invalid_argument) as `init` does.
[[nodiscard]] TUTTI_EXPORT int device_count();
/// The calling thread's current device. On GPUs it is CUDA's, whoever has set it: `set_device`,
/// `cudaSetDevice`, or the context of the thread. Elsewhere a new thread starts at device 0, as with CUDA.
[[nodiscard]] TUTTI_EXPORT int current_device();
/// Makes `device` current for the calling thread, on GPUs as `cudaSetDevice`. A negative index and the host
/// do nothing. Throws Error(invalid_argument) if there is no such device.
TUTTI_EXPORT void set_device(Device device);

[[nodiscard]] TUTTI_EXPORT const DeviceProperties& get_device_properties(Device device = Device::current());
[[nodiscard]] TUTTI_EXPORT std::string get_device_name(Device device = Device::current());
/// (major, minor) compute capability.
[[nodiscard]] TUTTI_EXPORT std::pair<int, int> get_device_capability(Device device = Device::current());
/// Architectures this build carries machine code or PTX for, for instance "sm_90", "compute_90". Empty
/// without CUDA.
[[nodiscard]] TUTTI_EXPORT std::vector<std::string> get_arch_list();
/// The nvcc flags that would build for `get_arch_list()`.
[[nodiscard]] TUTTI_EXPORT std::string get_gencode_flags();

/// Whether kernels and copies on `device` may access the memory of `peer` directly. False for device == peer,
/// as in CUDA.
[[nodiscard]] TUTTI_EXPORT bool can_device_access_peer(Device device, Device peer);

/// Blocks the host until all work queued on `device` is done; rethrows the first failure of asynchronous work
/// there.
TUTTI_EXPORT void synchronize(Device device = Device::current());

/// Memory of a device.
struct MemoryInfo {
  std::size_t free = 0;   ///< bytes
  std::size_t total = 0;  ///< bytes
};
/// Of a GPU as a whole, whichever processes use it; of a virtual device as this process has it, as every
/// process has its own. What the caching allocator keeps is not free.
[[nodiscard]] TUTTI_EXPORT MemoryInfo mem_get_info(Device device = Device::current());

/// Makes a device current for the scope's lifetime; restores what was current before, whoever had set it: on
/// GPUs the thread's context, or that it had none. Guards nest. Use on the thread that created it.
class TUTTI_EXPORT DeviceGuard {
 public:
  /// For "the device of this tensor" too: the host does nothing, nor does the current device.
  explicit DeviceGuard(Device device);
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard();

  /// The device that was current before; -1 if the guard does nothing and no backend was selected yet.
  [[nodiscard]] int original_device() const noexcept { return original_; }

 private:
  int original_ = -1;
  bool restores_;
  void* context_ = nullptr;  ///< on GPUs the thread's, nullptr if it had none
};

}  // namespace tutti

template <>
struct std::hash<tutti::Device> {
  std::size_t operator()(tutti::Device device) const noexcept { return std::hash<int>{}(device.index()); }
};
