// SPDX-License-Identifier: Apache-2.0
#include "tutti/error.hpp"

namespace tutti {

std::string_view name_of(ErrorCode code) noexcept {
  switch (code) {
    case ErrorCode::invalid_argument:
      return "invalid_argument";
    case ErrorCode::out_of_memory:
      return "out_of_memory";
    case ErrorCode::unsupported:
      return "unsupported";
    case ErrorCode::peer_unavailable:
      return "peer_unavailable";
    case ErrorCode::device_failure:
      return "device_failure";
    case ErrorCode::transport_failure:
      return "transport_failure";
    case ErrorCode::timeout:
      return "timeout";
    case ErrorCode::aborted:
      return "aborted";
    case ErrorCode::internal:
      return "internal";
  }
  return "unknown";
}

Error::Error(ErrorCode code, const std::string& message, int native_code, std::source_location where)
    : std::runtime_error(message), code_(code), native_code_(native_code), where_(where) {}

OutOfMemoryError::OutOfMemoryError(const std::string& message, const Figures& figures, int native_code,
                                   std::source_location where)
    : Error(ErrorCode::out_of_memory, message, native_code, where), figures_(figures) {}

}  // namespace tutti
