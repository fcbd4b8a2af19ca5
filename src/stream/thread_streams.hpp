// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "stream/stream_access.hpp"
#include "tutti/stream.hpp"

#include <cstdint>

namespace tutti {

/// The streams that the calling thread has made current.
struct ThreadStreams {
  std::uint64_t generation = 0;  ///< of the runtime they belong to; none has 0
  Stream* streams = nullptr;     ///< one per device
};

/// Plain data, so that reading it needs neither a guard nor a constructor call.
extern thread_local constinit ThreadStreams thread_streams_state;

/// Resets the thread's streams to the default streams of `runtime`.
void reset_thread_streams(Runtime& runtime);

/// Returns the calling thread's streams in `runtime`, one per device.
[[nodiscard]] inline Stream* thread_streams(Runtime& runtime) {
  if (thread_streams_state.generation != runtime.generation()) [[unlikely]]
    reset_thread_streams(runtime);
  return thread_streams_state.streams;
}

/// Returns the calling thread's current stream of `device`, which exists. Takes a few nanoseconds.
[[nodiscard]] inline backend::StreamRef current_stream_ref(Runtime& runtime, int device) {
  return StreamAccess::ref(thread_streams(runtime)[device]);
}

}  // namespace tutti
