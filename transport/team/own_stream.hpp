// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"

namespace tutti::transport::ranks {

/// A stream of one device for as long as the object lives. Throws what the backend throws.
class OwnStream {
 public:
  OwnStream(backend::Backend& backend, int device)
      : backend_(backend), stream_(backend.create_stream(device, 0)) {}
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  ~OwnStream() { backend_.destroy_stream(stream_); }
  [[nodiscard]] backend::StreamRef get() const noexcept { return stream_; }

 private:
  backend::Backend& backend_;
  backend::StreamRef stream_;
};

}  // namespace tutti::transport::ranks
