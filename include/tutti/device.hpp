#pragma once

#include "tutti/export.hpp"

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
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
/// `Device{3}` is device 3, `Device::host()` the host. Devices print as "device:3" and "host".
class Device {
 public:
  constexpr Device() = default;  ///< the host
  /// Device `index`; implicit, so that a list of devices can be written {0, 1, 2}. -1 is the host; what is
  /// below that is refused by every call that takes a device.
  constexpr Device(int index) noexcept : index_(index) {}
  [[nodiscard]] static constexpr Device host() noexcept { return Device{}; }

  [[nodiscard]] constexpr bool is_host() const noexcept { return index_ == host_index; }
  [[nodiscard]] constexpr int index() const noexcept { return index_; }
  friend constexpr auto operator<=>(Device, Device) = default;

 private:
  static constexpr int host_index = -1;
  int index_ = host_index;
};

[[nodiscard]] TUTTI_EXPORT std::string to_string(Device device);

/// What a device is. Sizes are bytes.
struct DeviceProperties {
  std::string name;
  int major = 0;  ///< compute capability; 0.0 for virtual devices
  int minor = 0;
  std::size_t total_memory = 0;
  int multiprocessor_count = 0;
  std::size_t l2_cache_size = 0;
  int max_threads_per_block = 0;
  std::size_t shared_memory_per_block = 0;
  int copy_engine_count = 0;
  std::string pci_bus_id;  ///< empty for virtual devices
  int numa_node = -1;      ///< -1 if unknown
};

/// True if there is at least one device of the selected backend. Never throws; initialises what it must.
[[nodiscard]] TUTTI_EXPORT bool is_available() noexcept;
/// True once some call has selected a backend.
[[nodiscard]] TUTTI_EXPORT bool is_initialized() noexcept;
/// Selects the backend and creates the library's process-wide state; later calls do nothing. Thread-safe, and
/// called implicitly by everything that needs a device.
///
/// The backend is the one named by the environment variable `TUTTI_BACKEND` (`auto`, `cuda`, `host`): `auto`,
/// the default, takes GPUs if there are any and virtual devices otherwise. Throws Error(unsupported) if
/// `cuda` is asked for and no GPU is usable, Error(invalid_argument) if it, or another `TUTTI_` variable or
/// the file that one names, holds anything else than it should.
///
/// A process that is forked afterwards cannot use its parent's devices: there, everything that needs a device
/// throws Error(unsupported), but for `virtual_devices::start`, which gives it devices of its own.
TUTTI_EXPORT void init();
/// The backend in use.
[[nodiscard]] TUTTI_EXPORT BackendKind backend_kind();

/// Number of devices of the selected backend; 0 only of a virtual machine that was started without. Throws as
/// `init` does, if it has to select a backend and there are no devices: `is_available` asks without throwing.
[[nodiscard]] TUTTI_EXPORT int device_count();
/// The calling thread's current device; a new thread starts at device 0.
[[nodiscard]] TUTTI_EXPORT int current_device();
/// Makes `device` current for the calling thread, and on GPUs also for the CUDA runtime. A negative index
/// does nothing. Throws Error(invalid_argument) if there is no such device.
TUTTI_EXPORT void set_device(int device);

// All below throw Error(invalid_argument) if there is no such device; -1 is none.

[[nodiscard]] TUTTI_EXPORT const DeviceProperties& get_device_properties(int device);
[[nodiscard]] TUTTI_EXPORT std::string get_device_name(int device);
/// (major, minor) compute capability.
[[nodiscard]] TUTTI_EXPORT std::pair<int, int> get_device_capability(int device);
/// Architectures this build carries machine code or PTX for, for instance "sm_90", "compute_90". Empty
/// without CUDA.
[[nodiscard]] TUTTI_EXPORT std::vector<std::string> get_arch_list();
/// The nvcc flags that would build for `get_arch_list()`.
[[nodiscard]] TUTTI_EXPORT std::string get_gencode_flags();

/// Whether kernels and copies on `device` may access the memory of `peer` directly. False for device == peer,
/// as in CUDA.
[[nodiscard]] TUTTI_EXPORT bool can_device_access_peer(int device, int peer);

/// Blocks the host until all work queued on `device` is done; rethrows the first failure of asynchronous work
/// there.
TUTTI_EXPORT void synchronize(int device);
/// The same for the current device.
TUTTI_EXPORT void synchronize();

/// Memory of a device.
struct MemoryInfo {
  std::size_t free = 0;   ///< bytes
  std::size_t total = 0;  ///< bytes
};
/// Of a GPU as a whole, whichever processes use it; of a virtual device as this process has it, as every
/// process has its own. What the caching allocator keeps is not free. A negative index is no device here,
/// neither the host nor the current one: Error(invalid_argument).
[[nodiscard]] TUTTI_EXPORT MemoryInfo mem_get_info(int device);

/// Makes a device current for the scope's lifetime; restores the previous one. Guards nest. A negative index
/// does nothing. Use on the thread that created it.
class TUTTI_EXPORT DeviceGuard {
 public:
  /// For "the device of this tensor" too: the host does nothing.
  explicit DeviceGuard(Device device);
  DeviceGuard(const DeviceGuard&) = delete;
  DeviceGuard& operator=(const DeviceGuard&) = delete;
  ~DeviceGuard();

  [[nodiscard]] int original_device() const noexcept { return original_; }

 private:
  int original_;
  bool restores_;
};

}  // namespace tutti

template <>
struct std::hash<tutti::Device> {
  std::size_t operator()(tutti::Device device) const noexcept { return std::hash<int>{}(device.index()); }
};
