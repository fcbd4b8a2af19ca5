// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/cuda_error.hpp"

#include "tutti/error.hpp"

#include <fmt/format.h>

namespace tutti::backend::cuda {
namespace {

ErrorCode classify(cudaError_t status) {
  switch (status) {
    case cudaErrorMemoryAllocation:
      return ErrorCode::out_of_memory;
    case cudaErrorInvalidValue:
    case cudaErrorInvalidDevice:
    case cudaErrorInvalidResourceHandle:
      return ErrorCode::invalid_argument;
    case cudaErrorNotSupported:
    case cudaErrorNoDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
    case cudaErrorStreamCaptureUnsupported:
    case cudaErrorStreamCaptureInvalidated:
    case cudaErrorStreamCaptureIsolation:
    case cudaErrorStreamCaptureImplicit:
    case cudaErrorStreamCaptureUnjoined:
    case cudaErrorStreamCaptureMerge:
      return ErrorCode::unsupported;
    case cudaErrorPeerAccessUnsupported:
    case cudaErrorTooManyPeers:
      return ErrorCode::peer_unavailable;
    default:
      return ErrorCode::device_failure;
  }
}

}  // namespace

void throw_error(cudaError_t status, const char* call, int device, const std::string& work,
                 std::source_location where) {
  forget(status);
  std::string message =
      fmt::format("{}: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status));
  if (device >= 0) message += fmt::format(", on device {}", device);
  if (!work.empty()) message += fmt::format("; the operation queued there last was {}", work);
  throw Error(classify(status), message, static_cast<int>(status), where);
}

}  // namespace tutti::backend::cuda
