// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace tutti::backend {

/// Some bytes that work reads or writes.
struct WatchedAccess {
  const std::byte* address = nullptr;
  std::size_t bytes = 0;
  bool writes = false;
};

/// What comes later on one stream of a meeting follows what another had queued before the meeting. Indices of
/// its streams.
struct MeetingOrder {
  std::size_t earlier = 0;
  std::size_t later = 0;
};

/// What the seam does not see by itself, told to who watches whether streams' accesses to memory are in an
/// order (`stream_sanitizer/`). Backends do not care.
class WatchCalls {
 public:
  WatchCalls(const WatchCalls&) = delete;
  WatchCalls& operator=(const WatchCalls&) = delete;

  /// Whether anybody watches: the calls below are for then. Stays as it is.
  [[nodiscard]] virtual bool is_watched() const noexcept { return false; }
  /// An allocator has handed out these bytes, or got them back.
  virtual void memory_taken(const void* /*address*/, std::size_t /*bytes*/) noexcept {}
  virtual void memory_given_back(const void* /*address*/, std::size_t /*bytes*/) noexcept {}
  /// Work that is queued on `stream` past the seam, next or just now, accesses this. `what` is its name. May
  /// throw, as calls that enqueue work.
  virtual void accesses(StreamRef /*stream*/, std::string_view /*what*/,
                        std::span<const WatchedAccess> /*touched*/) {}
  /// Streams are about to get work that waits for one another in ways the seam does not see: remembers what
  /// each has queued, until `end_meeting` is told which follow which.
  [[nodiscard]] virtual std::shared_ptr<void> begin_meeting(std::span<const StreamRef> /*streams*/) {
    return nullptr;
  }
  virtual void end_meeting(const std::shared_ptr<void>& /*meeting*/,
                           std::span<const MeetingOrder> /*orders*/) {}

 protected:
  WatchCalls() = default;
  ~WatchCalls() = default;
};

}  // namespace tutti::backend
