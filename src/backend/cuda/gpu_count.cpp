// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.hpp"
#include "backend/visible_devices.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>
#include <dlfcn.h>

/// Counts GPUs without CUDA, whose first call would forbid children forked later to use it.
namespace tutti::backend {
namespace {

// NVML's binary interface, as far as it is needed here.
struct NvmlDeviceTag;
using NvmlDevice = NvmlDeviceTag*;
constexpr int nvml_success = 0;
constexpr int nvml_no_permission = 4;
constexpr int nvml_driver_not_loaded = 9;

/// A library that stays loaded: unloading a driver's is of no use.
class Library {
 public:
  explicit Library(const char* name) : handle_(dlopen(name, RTLD_LAZY | RTLD_LOCAL)) {}
  [[nodiscard]] bool is_loaded() const noexcept { return handle_ != nullptr; }
  template <class Function>
  [[nodiscard]] bool load(Function& function, const char* name) const noexcept {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    return function != nullptr;
  }

 private:
  void* handle_;
};

using Uuids = std::vector<std::string>;

class Nvml {
 public:
  explicit Nvml(const Library& library)
      : is_known_(library.load(init_, "nvmlInit_v2") && library.load(shutdown_, "nvmlShutdown") &&
                  library.load(driver_version_, "nvmlSystemGetCudaDriverVersion_v2") &&
                  library.load(count_, "nvmlDeviceGetCount_v2") &&
                  library.load(by_index_, "nvmlDeviceGetHandleByIndex_v2") &&
                  library.load(uuid_, "nvmlDeviceGetUUID") &&
                  library.load(mig_mode_, "nvmlDeviceGetMigMode")) {}

  /// Of the GPUs that this process may use; nothing if only CUDA can tell.
  [[nodiscard]] std::optional<Uuids> uuids() const {
    if (!is_known_) return std::nullopt;
    const int status = init_();
    if (status == nvml_driver_not_loaded) return Uuids();
    if (status != nvml_success) return std::nullopt;
    std::optional<Uuids> result = listed();
    shutdown_();
    return result;
  }

 private:
  [[nodiscard]] std::optional<Uuids> listed() const {
    int driver = 0;
    if (driver_version_(&driver) != nvml_success || driver / 1000 < CUDART_VERSION / 1000)
      return std::nullopt;
    unsigned count = 0;
    if (count_(&count) != nvml_success) return std::nullopt;
    Uuids uuids;
    for (unsigned index = 0; index < count; ++index) {
      NvmlDevice device = nullptr;
      const int status = by_index_(index, &device);
      if (status == nvml_no_permission) continue;
      std::array<char, 96> uuid{};
      if (status != nvml_success || uuid_(device, uuid.data(), uuid.size()) != nvml_success)
        return std::nullopt;
      unsigned mode = 0;
      unsigned pending = 0;
      const bool is_divided = mig_mode_(device, &mode, &pending) == nvml_success && mode != 0;
      if (is_divided) return std::nullopt;
      uuids.emplace_back(uuid.data());
    }
    return uuids;
  }

  int (*init_)() = nullptr;
  int (*shutdown_)() = nullptr;
  int (*driver_version_)(int*) = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*by_index_)(unsigned, NvmlDevice*) = nullptr;
  int (*uuid_)(NvmlDevice, char*, unsigned) = nullptr;
  int (*mig_mode_)(NvmlDevice, unsigned*, unsigned*) = nullptr;
  bool is_known_;
};

std::optional<Uuids> find_gpus() {
  if (!Library("libcuda.so.1").is_loaded()) return Uuids();  // no driver: CUDA finds none either
  const Library nvml("libnvidia-ml.so.1");
  return nvml.is_loaded() ? Nvml(nvml).uuids() : std::nullopt;
}

}  // namespace

std::optional<int> count_gpus_unstarted() {
  // Looked for once. Without a lock, which a child forked meanwhile would find held for ever: threads that
  // race both look.
  static std::atomic<const std::optional<Uuids>*> known = nullptr;
  const std::optional<Uuids>* found = known.load(std::memory_order_acquire);
  if (found == nullptr) {
    auto looked_for = std::make_unique<const std::optional<Uuids>>(find_gpus());
    if (known.compare_exchange_strong(found, looked_for.get(), std::memory_order_acq_rel))
      found = looked_for.release();
  }
  return *found ? count_visible(**found, std::getenv("CUDA_VISIBLE_DEVICES")) : std::nullopt;
}

}  // namespace tutti::backend
