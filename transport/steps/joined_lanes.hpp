// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace tutti::transport {

/// Makes streams part of a capture for the length of a call: one of them, the `origin`, is being captured,
/// and the others join it. What is allocated for them from then on is memory of the graph.
class JoinedLanes {
 public:
  /// Joins the streams. Throws if one cannot join the capture, which fails then as far as the backend does
  /// so.
  JoinedLanes(Runtime& runtime, backend::StreamRef origin, std::span<const backend::StreamRef> lanes);
  JoinedLanes(const JoinedLanes&) = delete;
  JoinedLanes& operator=(const JoinedLanes&) = delete;
  /// Brings back the streams of a call that has not ended: the capture goes on without it.
  ~JoinedLanes();

  [[nodiscard]] backend::StreamRef origin() const noexcept { return origin_; }
  /// Makes the origin follow the others; everything of the call must have been queued.
  void bring_back();

 private:
  Runtime& runtime_;
  backend::StreamRef origin_;
  std::vector<backend::StreamRef> others_;  ///< those that have to return
};

}  // namespace tutti::transport
