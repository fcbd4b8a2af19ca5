// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "os/shared_flag.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::backend {

/// Whether a backend has signals, and whether several of them cost the host less than as many events between
/// devices.
enum class SignalSupport : std::uint8_t { none, available, cheaper };
/// How many signals one call can wait for.
inline constexpr std::size_t most_signals = 16;

/// Signals are flags in pinned memory that streams set and wait for. The backend does not know who waits for
/// whom, and streams may share hardware queues: a wait must be queued after the signals it waits for, or
/// neither may ever come.
class SignalCalls {
 public:
  SignalCalls(const SignalCalls&) = delete;
  SignalCalls& operator=(const SignalCalls&) = delete;

  [[nodiscard]] virtual SignalSupport signal_support() const noexcept = 0;
  /// Sets the flag once all earlier work of `stream` is done and, for devices that NVLink joins, can be seen.
  virtual void signal(StreamRef stream, SharedFlag& flag, std::uint32_t value) = 0;
  /// Later work on `stream` waits until each of the flags has come to `value`; `most_signals` at most.
  virtual void wait_signals(StreamRef stream, std::span<SharedFlag> flags, std::uint32_t value) = 0;
  /// Queues a kernel that waits until `flag` is not 0 any more, for so long at most, and then sets `outcome`
  /// to 1 if it has come to that, else to 2. Both in pinned memory. Tells what work that waits for other work
  /// can rely on: nothing else does (`team_round` aside, whose waits end with its team).
  virtual void wait_in_kernel(StreamRef stream, SharedFlag& flag, std::chrono::milliseconds longest,
                              SharedFlag& outcome) = 0;

 protected:
  SignalCalls() = default;
  ~SignalCalls() = default;
};

}  // namespace tutti::backend
