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

/// An order that a meeting makes: later work on stream `later` follows what `earlier` had queued before the
/// meeting. Indices of the meeting's streams.
struct MeetingOrder {
  std::size_t earlier = 0;
  std::size_t later = 0;
};

/// Reports what the seam's other calls do not show to the stream sanitizer (`stream_sanitizer/`), which
/// checks that accesses to memory are ordered. Backends ignore it.
class WatchCalls {
 public:
  WatchCalls(const WatchCalls&) = delete;
  WatchCalls& operator=(const WatchCalls&) = delete;

  /// Returns true if somebody watches; only then are the calls below needed. Does not change.
  [[nodiscard]] virtual bool is_watched() const noexcept { return false; }
  /// These report that an allocator has handed out these bytes, or got them back.
  virtual void memory_taken(const void* /*address*/, std::size_t /*bytes*/) noexcept {}
  virtual void memory_given_back(const void* /*address*/, std::size_t /*bytes*/) noexcept {}
  /// Reports accesses of work that is queued on `stream` without these calls, next or just now. `what` is its
  /// name. May throw, like calls that enqueue work.
  virtual void accesses(StreamRef /*stream*/, std::string_view /*what*/,
                        std::span<const WatchedAccess> /*touched*/) {}
  /// Prepares for work on the streams that will wait for one another in ways the seam does not see: remembers
  /// what each stream has queued, until `end_meeting` says which follow which.
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
