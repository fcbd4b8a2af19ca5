// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace tutti::transport {

/// Streams that are part of a capture for the length of a call: of one of them, the `origin`, it is known
/// that it is being captured, and the others join it. What is allocated for them from then on is memory of
/// the graph.
class JoinedLanes {
 public:
  /// What cannot join the capture throws, and has it fail as far as the backend does so.
  JoinedLanes(Runtime& runtime, backend::StreamRef origin, std::span<const backend::StreamRef> lanes);
  JoinedLanes(const JoinedLanes&) = delete;
  JoinedLanes& operator=(const JoinedLanes&) = delete;
  /// Brings back those of a call that has not come to its end: the capture goes on without it.
  ~JoinedLanes();

  [[nodiscard]] backend::StreamRef origin() const noexcept { return origin_; }
  /// Has the origin follow the others, after everything of the call has been queued.
  void bring_back();

 private:
  Runtime& runtime_;
  backend::StreamRef origin_;
  std::vector<backend::StreamRef> others_;  ///< those that have to come back
};

}  // namespace tutti::transport
