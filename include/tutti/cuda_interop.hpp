// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/event.hpp"
#include "tutti/stream.hpp"

#include <cuda_runtime_api.h>

/// For programs that mix tutti with CUDA code of their own. The only public header that needs the CUDA
/// toolkit. Valid while `backend_kind()` is `cuda`: virtual devices' handles are not CUDA's.
namespace tutti {

/// The stream behind a `Stream`, for launches and CUDA calls. A default stream is nullptr, which names the
/// default stream of whichever device is current: make the stream's device current first.
[[nodiscard]] inline cudaStream_t to_cuda(const Stream& stream) {
  return static_cast<cudaStream_t>(stream.native_handle());
}

/// A `cudaStream_t` of `device` as a `Stream`; the caller keeps it alive and destroys it.
[[nodiscard]] inline ExternalStream from_cuda(cudaStream_t stream, Device device) {
  return {stream, device};
}

/// The event behind an `Event`; nullptr before its first record, unless it is shared with other processes.
[[nodiscard]] inline cudaEvent_t to_cuda(const Event& event) {
  return static_cast<cudaEvent_t>(event.native_handle());
}

}  // namespace tutti
