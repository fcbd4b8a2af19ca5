// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"

#include <cstdint>
#include <optional>
#include <string_view>

namespace tutti {

/// The device that the calling thread has made current. It counts only where devices are virtual: CUDA keeps
/// its own.
struct ThreadDevice {
  std::uint64_t generation = 0;  ///< of the runtime it belongs to; none has 0
  int device = 0;
};

/// Plain data, so that reading it needs neither a guard nor a constructor call.
inline thread_local constinit ThreadDevice thread_device_state;

/// Returns the calling thread's device in `runtime`, 0 at first.
[[nodiscard]] inline int& thread_device(Runtime& runtime) {
  if (thread_device_state.generation != runtime.generation()) [[unlikely]]
    thread_device_state = {runtime.generation(), 0};
  return thread_device_state.device;
}

/// Returns the calling thread's current device, whoever has set it.
[[nodiscard]] inline int current_index(Runtime& runtime) {
  const std::optional<int> native = runtime.backend().native_device();
  return native ? *native : thread_device(runtime);
}

/// Returns `device`, or the current device if it stands for that.
[[nodiscard]] inline Device resolved(Runtime& runtime, Device device) {
  return device.is_current() ? Device(current_index(runtime)) : device;
}

/// Returns the index of an existing device. Throws as `Runtime::require_device` does, also for the host.
[[nodiscard]] inline int index_of(Runtime& runtime, Device device, std::string_view function) {
  const Device named = resolved(runtime, device);
  runtime.require_device(named, function);
  return named.index();
}

}  // namespace tutti
