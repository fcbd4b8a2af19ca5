// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace tutti::backend {

enum class EventTiming : std::uint8_t { off, on };
enum class EventWait : std::uint8_t { spin, block };  ///< what a host wait does with its CPU

/// A handle by which another process opens an event.
struct SharedEventHandle {
  std::array<std::byte, 64> bytes{};
};

/// Manages queues of work, and marks in them.
class StreamCalls {
 public:
  StreamCalls(const StreamCalls&) = delete;
  StreamCalls& operator=(const StreamCalls&) = delete;

  // Streams. Created ones do not synchronise with the legacy default stream.
  [[nodiscard]] virtual StreamRef default_stream(int device) = 0;
  [[nodiscard]] virtual StreamRef create_stream(int device, int priority) = 0;
  /// Returns the priority that the stream was made with, whoever has made it.
  [[nodiscard]] virtual int stream_priority(StreamRef stream) = 0;
  /// Returns the device of an existing stream that is named by handle and device; nothing if there is no such
  /// stream, as far as the backend can tell.
  [[nodiscard]] virtual std::optional<int> device_of(StreamRef stream) = 0;
  /// Destroys a stream, which need not be idle: its work still completes.
  virtual void destroy_stream(StreamRef stream) noexcept = 0;
  [[nodiscard]] virtual bool query_stream(StreamRef stream) = 0;  ///< true if idle
  virtual void synchronize_stream(StreamRef stream) = 0;
  /// Returns a number that distinguishes streams which had the same handle and device one after the other, of
  /// which the earlier may have unfinished work. Must not be called while `stream` is being captured.
  [[nodiscard]] virtual std::uint64_t stream_id(StreamRef stream) = 0;
  /// Returns true if the handle stands for another stream on another thread.
  [[nodiscard]] virtual bool is_of_calling_thread(StreamRef /*stream*/) const noexcept { return false; }
  /// Returns true if the stream and the legacy default stream wait for one another's work; false for that one
  /// itself.
  [[nodiscard]] virtual bool waits_for_default_stream(StreamRef /*stream*/) { return false; }
  /// Makes later work on `stream` wait for what `event` recorded last, as of this call. Never recorded:
  /// no-op.
  virtual void wait_event(StreamRef stream, EventHandle event) = 0;
  /// Returns true if the calling thread runs work of a stream. Such a thread must wait for no stream, as that
  /// one may wait for it.
  [[nodiscard]] virtual bool is_in_stream_work() const noexcept { return false; }
  /// Lets a backend that delays work, to run it in some order, go on with it. Called repeatedly by a thread
  /// that has queued work and waits for something else, such as another process. Does not block.
  virtual void wait_elsewhere() noexcept {}
  /// Runs `function(argument)` on a thread of the backend, in stream order. On GPUs it must not call into the
  /// backend; on virtual devices it must not wait for it.
  virtual void launch_host_function(StreamRef stream, void (*function)(void*), void* argument) = 0;

  // Events. `device` is where it will be recorded.
  [[nodiscard]] virtual EventHandle create_event(int device, EventTiming timing, EventWait wait) = 0;
  /// Creates an event without timing that other processes may open. Throws Error(unsupported).
  [[nodiscard]] virtual EventHandle create_shared_event(int device, EventWait wait) = 0;
  /// Returns the handle of an event from `create_shared_event`. Throws Error(unsupported).
  [[nodiscard]] virtual SharedEventHandle share_event(EventHandle event) = 0;
  /// Opens another process's event. Throws Error(invalid_argument) if it is no such handle, or of another
  /// device, and Error(peer_unavailable).
  [[nodiscard]] virtual EventHandle open_event(int device, const SharedEventHandle& handle) = 0;
  virtual void destroy_event(EventHandle event) noexcept = 0;
  virtual void record_event(EventHandle event, StreamRef stream) = 0;
  [[nodiscard]] virtual bool query_event(EventHandle event) = 0;  ///< true if complete or never recorded
  /// Like `query_event`, but also true if the work failed. Does not report failures: they stay pending.
  [[nodiscard]] virtual bool has_passed(EventHandle event) noexcept = 0;
  virtual void synchronize_event(EventHandle event) = 0;
  /// Returns the milliseconds between two completed recordings with timing on.
  [[nodiscard]] virtual float elapsed_time(EventHandle start, EventHandle end) = 0;

 protected:
  StreamCalls() = default;
  ~StreamCalls() = default;
};

}  // namespace tutti::backend
