// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include <dlfcn.h>

/// Declares the part of NVML's binary interface that is needed: its header need not be installed where tutti
/// is built, and its library is loaded at run time.
namespace tutti::backend::cuda {

struct NvmlDeviceTag;
using NvmlDevice = NvmlDeviceTag*;

inline constexpr int nvml_success = 0;
inline constexpr int nvml_no_permission = 4;
inline constexpr int nvml_insufficient_size = 7;
inline constexpr int nvml_driver_not_loaded = 9;
inline constexpr int nvml_library_not_found = 12;
inline constexpr int nvml_function_not_found = 13;

/// A library that stays loaded: unloading a driver's is of no use.
class DriverLibrary {
 public:
  explicit DriverLibrary(const char* name) : handle_(dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {}
  [[nodiscard]] bool is_loaded() const noexcept { return handle_ != nullptr; }
  /// Loads the function of that name into `function`. Returns false, and sets nullptr, if there is none.
  template <class Function>
  bool load(Function& function, const char* name) const noexcept {
    function = is_loaded() ? reinterpret_cast<Function>(dlsym(handle_, name)) : nullptr;
    return function != nullptr;
  }

 private:
  void* handle_;
};

/// A session of NVML, which counts its sessions.
class NvmlSession {
 public:
  NvmlSession() {
    int (*init)() = nullptr;
    if (!library_.is_loaded()) return;
    status_ = nvml_function_not_found;
    if (library_.load(shutdown_, "nvmlShutdown") && library_.load(init, "nvmlInit_v2")) status_ = init();
    library_.load(by_bus_id_, "nvmlDeviceGetHandleByPciBusId_v2");
  }
  NvmlSession(const NvmlSession&) = delete;
  NvmlSession& operator=(const NvmlSession&) = delete;
  ~NvmlSession() {
    if (is_open()) shutdown_();
  }

  [[nodiscard]] bool is_open() const noexcept { return status_ == nvml_success; }
  /// Returns NVML's status at the session's begin; `nvml_library_not_found` if there is no NVML.
  [[nodiscard]] int status() const noexcept { return status_; }
  /// Finds the device with that bus id. Returns NVML's status, or that of the session's begin, if that has
  /// failed.
  [[nodiscard]] int find(const std::string& pci_bus_id, NvmlDevice& device) const {
    if (!is_open()) return status_;
    return by_bus_id_ == nullptr ? nvml_function_not_found : by_bus_id_(pci_bus_id.c_str(), &device);
  }
  [[nodiscard]] const DriverLibrary& driver_library() const noexcept { return library_; }

 private:
  DriverLibrary library_{"libnvidia-ml.so.1"};
  int (*shutdown_)() = nullptr;
  int (*by_bus_id_)(const char*, NvmlDevice*) = nullptr;
  int status_ = nvml_library_not_found;
};

}  // namespace tutti::backend::cuda
