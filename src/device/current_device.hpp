// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

/// What the calling thread has made current: a device, and a stream on each device.
struct ThreadCurrent {
  std::uint64_t generation = 0;  ///< of the runtime it belongs to; none has 0
  int device = 0;                ///< only where devices are virtual: else CUDA knows
  Stream* streams = nullptr;     ///< one per device
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

/// The calling thread's current device, whoever has made it so.
[[nodiscard]] inline int current_index(Runtime& runtime) {
  const std::optional<int> native = runtime.backend().native_device();
  return native ? *native : thread_current(runtime).device;
}

/// `device`; where that stands for the current device, the one that it is.
[[nodiscard]] inline Device resolved(Runtime& runtime, Device device) {
  return device.is_current() ? Device(current_index(runtime)) : device;
}

/// The index of an existing device. Throws as `Runtime::require_device` does, also for the host.
[[nodiscard]] inline int index_of(Runtime& runtime, Device device, std::string_view function) {
  const Device named = resolved(runtime, device);
  runtime.require_device(named, function);
  return named.index();
}

}  // namespace tutti
