// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.hpp"
#include "backend/cuda/nvml.hpp"
#include "backend/cuda/visible_devices.hpp"

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <cuda_runtime_api.h>

/// Counts GPUs without CUDA, whose first call would forbid children forked later to use it.
namespace tutti::backend {
namespace {

using cuda::nvml_success;
using cuda::NvmlDevice;
using cuda::NvmlSession;

using Uuids = std::vector<std::string>;

/// Returns the UUIDs of the GPUs that this process may use; nothing if only CUDA can tell.
std::optional<Uuids> listed_by(const NvmlSession& nvml) {
  int (*get_driver_version)(int*) = nullptr;
  int (*get_count)(unsigned*) = nullptr;
  int (*get_by_index)(unsigned, NvmlDevice*) = nullptr;
  int (*get_uuid)(NvmlDevice, char*, unsigned) = nullptr;
  int (*get_mig_mode)(NvmlDevice, unsigned*, unsigned*) = nullptr;
  const cuda::DriverLibrary& library = nvml.driver_library();
  const bool is_known = library.load(get_driver_version, "nvmlSystemGetCudaDriverVersion_v2") &&
                        library.load(get_count, "nvmlDeviceGetCount_v2") &&
                        library.load(get_by_index, "nvmlDeviceGetHandleByIndex_v2") &&
                        library.load(get_uuid, "nvmlDeviceGetUUID") &&
                        library.load(get_mig_mode, "nvmlDeviceGetMigMode");
  if (!is_known) return std::nullopt;
  int driver = 0;
  if (get_driver_version(&driver) != nvml_success || driver / 1000 < CUDART_VERSION / 1000)
    return std::nullopt;
  unsigned count = 0;
  if (get_count(&count) != nvml_success) return std::nullopt;
  Uuids uuids;
  for (unsigned index = 0; index < count; ++index) {
    NvmlDevice device = nullptr;
    const int status = get_by_index(index, &device);
    if (status == cuda::nvml_no_permission) continue;
    std::array<char, 96> uuid{};
    if (status != nvml_success || get_uuid(device, uuid.data(), uuid.size()) != nvml_success)
      return std::nullopt;
    unsigned mode = 0;
    unsigned pending = 0;
    const bool is_divided = get_mig_mode(device, &mode, &pending) == nvml_success && mode != 0;
    if (is_divided) return std::nullopt;
    uuids.emplace_back(uuid.data());
  }
  return uuids;
}

std::optional<Uuids> find_gpus() {
  if (!cuda::DriverLibrary("libcuda.so.1").is_loaded()) return Uuids();  // no driver: CUDA finds none either
  const NvmlSession nvml;
  if (nvml.status() == cuda::nvml_driver_not_loaded) return Uuids();
  return nvml.is_open() ? listed_by(nvml) : std::nullopt;
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
