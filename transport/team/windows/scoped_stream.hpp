// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"

namespace tutti::transport::team {

/// Owns a stream of one device. Throws the backend's errors.
class ScopedStream {
 public:
  ScopedStream(backend::Backend& backend, int device)
      : backend_(backend), stream_(backend.create_stream(device, 0)) {}
  ScopedStream(const ScopedStream&) = delete;
  ScopedStream& operator=(const ScopedStream&) = delete;
  ~ScopedStream() { backend_.destroy_stream(stream_); }
  [[nodiscard]] backend::StreamRef get() const noexcept { return stream_; }

 private:
  backend::Backend& backend_;
  backend::StreamRef stream_;
};

}  // namespace tutti::transport::team
