// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/current_device.hpp"
#include "backend/handles.hpp"

#include <optional>

#include <cuda_runtime_api.h>

/// Converts the seam's handles to CUDA's.
namespace tutti::backend::cuda {

inline cudaStream_t native(StreamRef stream) {
  return reinterpret_cast<cudaStream_t>(stream.handle);
}
inline cudaEvent_t native(EventHandle event) {
  return reinterpret_cast<cudaEvent_t>(event);
}

/// Returns true for a legacy default stream, which cannot be captured.
inline bool is_legacy(StreamRef stream) {
  return stream.handle == nullptr || native(stream) == cudaStreamLegacy;
}

/// Makes the stream's device current if the stream is a default stream, which is a device's own only while
/// that device is current; other streams know theirs.
class StreamDevice {
 public:
  explicit StreamDevice(StreamRef stream) {
    if (is_legacy(stream) || native(stream) == cudaStreamPerThread) {
      current_.emplace(stream.device);
    } else {
      context_.emplace(stream.device);
    }
  }

 private:
  std::optional<CurrentDevice> current_;
  std::optional<AnyContext> context_;
};

}  // namespace tutti::backend::cuda
