// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>

namespace tutti::transport {

/// Ways to queue work of several devices that waits for one another.
enum class Launching : std::uint8_t {
  from_one_thread,  ///< launches return before their kernels end
  /// Launches return when their kernels end: with TUTTI_LAUNCH_BLOCKING=1, CUDA_LAUNCH_BLOCKING=1, or a
  /// debugger or profiler that does the same. Each device's kernels need a thread of their own.
  from_own_threads,
  impossible,  ///< launches on one device also keep those on another waiting
};

/// Describes, for messages, a machine on which launches block.
inline constexpr std::string_view launches_block =
    "kernel launches return only when the kernels have ended (TUTTI_LAUNCH_BLOCKING, CUDA_LAUNCH_BLOCKING, "
    "or a debugging or profiling tool)";

/// Finds out how to queue such work, by bounded launches that would otherwise wait for ever. A part of
/// the runtime; thread-safe.
class LaunchProbe {
 public:
  explicit LaunchProbe(Runtime& runtime) : runtime_(runtime) {}
  LaunchProbe(const LaunchProbe&) = delete;
  LaunchProbe& operator=(const LaunchProbe&) = delete;
  ~LaunchProbe() = default;

  /// Returns the way to queue work, found once on the first two of two or more devices, which stand for all.
  /// The first call waits for its own streams there, for a few seconds at most. Throws the backend's errors.
  [[nodiscard]] Launching find(std::span<const int> devices);

 private:
  Runtime& runtime_;
  std::mutex mutex_;
  std::optional<Launching> known_;  ///< guarded by `mutex_`
};

}  // namespace tutti::transport
