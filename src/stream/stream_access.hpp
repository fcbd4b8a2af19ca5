// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "tutti/stream.hpp"

namespace tutti {

/// Converts between public streams and the backend's.
struct StreamAccess {
  [[nodiscard]] static backend::StreamRef ref(const Stream& stream) noexcept {
    return {static_cast<backend::StreamHandle>(stream.native_handle()), stream.device()};
  }
  [[nodiscard]] static Stream make(backend::StreamRef stream, int priority = 0) noexcept {
    return Stream(stream.handle, stream.device, priority);
  }
};

}  // namespace tutti
