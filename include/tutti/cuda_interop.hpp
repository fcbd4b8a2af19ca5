// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/event.hpp"
#include "tutti/stream.hpp"

#include <cuda_runtime_api.h>

/// Converts between the library's handles and CUDA's, for programs with CUDA code of their own. Valid only
/// while `backend_kind()` is `cuda`: virtual devices' handles are not CUDA's. Needs the CUDA toolkit.
namespace tutti {

/// Returns the stream behind a `Stream`, for launches and CUDA calls. A default stream is nullptr, which
/// names the default stream of whichever device is current: make the stream's device current first.
[[nodiscard]] inline cudaStream_t to_cuda(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native_handle());
}

/// Wraps a `cudaStream_t` of `device` as a `Stream`; the caller keeps it alive and destroys it.
[[nodiscard]] inline ExternalStream from_cuda(cudaStream_t stream, Device device) {
  return {stream, device};
}

/// Returns the event behind an `Event`: nullptr before its first record, unless it is shared with other
/// processes.
[[nodiscard]] inline cudaEvent_t to_cuda(const Event& event) {
  return static_cast<cudaEvent_t>(event.native_handle());
}

}  // namespace tutti
