// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <source_location>
#include <string>

#include <cuda_runtime_api.h>

namespace tutti::backend::cuda {

/// Throws the Error of a failed CUDA call: its text names the call, the device and CUDA's message.
/// Asynchronous failures become device_failure and name `work`, the operation queued last on the device, if
/// there is one.
[[noreturn]] void throw_error(cudaError_t status, const char* call, int device, const std::string& work = {},
                              std::source_location where = std::source_location::current());

/// Throws unless `status` is success. `device` is the one the call was about, -1 for none.
inline void check(cudaError_t status, const char* call, int device = -1,
                  std::source_location where = std::source_location::current()) {
  if (status != cudaSuccess) throw_error(status, call, device, {}, where);
}

/// Returns `status` and clears the runtime's record of the thread's last failure: the caller's own checks of
/// that record must not find what the library has handled.
inline cudaError_t forget(cudaError_t status) noexcept {
  if (status != cudaSuccess) static_cast<void>(cudaGetLastError());
  return status;
}

/// Allows the calling thread, while it captures a stream, to allocate and free memory and to query events
/// recorded elsewhere: none of it becomes part of the graph, and without this each would spoil the capture.
class RelaxedCapture {
 public:
  // This can fail at process exit only, when nothing is captured any more.
  RelaxedCapture() noexcept { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }
  RelaxedCapture(const RelaxedCapture&) = delete;
  RelaxedCapture& operator=(const RelaxedCapture&) = delete;
  ~RelaxedCapture() { static_cast<void>(cudaThreadExchangeStreamCaptureMode(&mode_)); }

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

}  // namespace tutti::backend::cuda
