// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string_view>

namespace tutti::transport {

/// How work of several devices that waits for one another can be queued.
enum class Launching : std::uint8_t {
  from_one_thread,  ///< launches return before their kernels end
  /// They return when these end: TUTTI_LAUNCH_BLOCKING=1, CUDA_LAUNCH_BLOCKING=1, or a debugger or profiler
  /// that does the same. Each device's kernels take a thread of their own.
  from_own_threads,
  impossible,  ///< launches of one device keep those of another waiting as well
};

/// For messages: what is the matter where launches block.
inline constexpr std::string_view launches_block =
    "kernel launches return only when the kernels have ended (TUTTI_LAUNCH_BLOCKING, CUDA_LAUNCH_BLOCKING, "
    "or a debugging or profiling tool)";

/// Finds that out, by launches that would wait for ever if they were not bounded. A runtime extension;
/// thread-safe.
class LaunchProbe {
 public:
  explicit LaunchProbe(Runtime& runtime) : runtime_(runtime) {}
  LaunchProbe(const LaunchProbe&) = delete;
  LaunchProbe& operator=(const LaunchProbe&) = delete;
  ~LaunchProbe() = default;

  /// Finds out once, on the first two of two devices or more, which speak for all. The first call waits for
  /// streams of its own there, for a few seconds at most. It throws what the backend throws.
  [[nodiscard]] Launching find(std::span<const int> devices);

 private:
  Runtime& runtime_;
  std::mutex mutex_;
  std::optional<Launching> known_;  ///< guarded by `mutex_`
};

}  // namespace tutti::transport
