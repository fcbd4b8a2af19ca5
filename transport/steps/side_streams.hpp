// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"

#include <cstddef>
#include <map>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti::transport {

/// Provides the library's own streams for side lanes, each beside a stream of a user, so that work on
/// unrelated streams stays unrelated. They are made once and reused by all launches beside the same stream.
/// With more than `most_per_device` users' streams, some share. A part of the runtime; thread-safe.
class SideStreams {
 public:
  explicit SideStreams(Runtime& runtime);
  SideStreams(const SideStreams&) = delete;
  SideStreams& operator=(const SideStreams&) = delete;
  ~SideStreams();

  static constexpr std::size_t most_per_device = 64;

  /// Returns the `k`-th stream beside `stream`, on its device.
  [[nodiscard]] backend::StreamRef beside(backend::StreamRef stream, std::size_t k);

 private:
  struct PerDevice {
    std::vector<backend::StreamRef> streams;
    std::map<std::pair<backend::StreamHandle, std::size_t>, std::size_t> index;  ///< into `streams`
    std::size_t next = 0;
  };
  Runtime& runtime_;
  std::mutex mutex_;
  std::vector<PerDevice> devices_;
};

}  // namespace tutti::transport
