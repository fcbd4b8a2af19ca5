#pragma once

#include "runtime.hpp"

#include <cstdint>

namespace tutti {

/// What the calling thread has made current: a device, and a stream on each device.
struct ThreadCurrent {
  std::uint64_t generation = 0;  ///< of the runtime it belongs to; none has 0
  int device = 0;
  Stream* streams = nullptr;  ///< one per device
};

/// Plain data, so that reading it needs neither a guard nor a constructor call.
extern thread_local constinit ThreadCurrent thread_current_state;

/// Starts the thread anew at device 0 and the default streams of `runtime`.
void reset_thread_current(Runtime& runtime);

/// The calling thread's state in `runtime`.
[[nodiscard]] inline ThreadCurrent& thread_current(Runtime& runtime) {
  if (thread_current_state.generation != runtime.generation()) [[unlikely]]
    reset_thread_current(runtime);
  return thread_current_state;
}

/// `device`, or the current device if it is negative. Throws as `Runtime::require_device` does.
[[nodiscard]] inline int device_or_current(Runtime& runtime, int device, std::string_view function) {
  const int result = device < 0 ? thread_current(runtime).device : device;
  runtime.require_device(result, function);
  return result;
}

}  // namespace tutti
