// SPDX-License-Identifier: Apache-2.0
#include "cuda_libraries/require_gpus.hpp"
#include "device/blocking_call.hpp"
#include "tutti/cuda_interop.hpp"
#include "tutti/cuda_libraries.hpp"

#include <map>

namespace tutti {
namespace {

void check_blas(cublasStatus_t status, std::string_view call, int device) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw Error(ErrorCode::device_failure,
              fmt::format("{}: {}, on device {}", call, cublasGetStatusString(status), device), status);
}

/// A thread's handle for a device.
class BlasHandle {
 public:
  explicit BlasHandle(int device) { check_blas(cublasCreate(&handle_), "cublasCreate", device); }
  BlasHandle(const BlasHandle&) = delete;
  BlasHandle& operator=(const BlasHandle&) = delete;
  // The driver may be gone at process exit, and the handle with it: then this fails, which does not matter.
  ~BlasHandle() { static_cast<void>(cublasDestroy(handle_)); }

  [[nodiscard]] cublasHandle_t get() const noexcept { return handle_; }

 private:
  cublasHandle_t handle_ = nullptr;
};

}  // namespace

cublasHandle_t current_blas_handle(Device device) {
  require_gpus("current_blas_handle");
  thread_local std::map<int, BlasHandle> handles;
  const Stream stream = current_stream(device);
  if (!handles.contains(stream.device())) announce_blocking("current_blas_handle");
  const DeviceGuard current(stream.device());
  const cublasHandle_t handle = handles.try_emplace(stream.device(), stream.device()).first->second.get();
  check_blas(cublasSetStream(handle, to_cuda(stream)), "cublasSetStream", stream.device());
  return handle;
}

}  // namespace tutti
