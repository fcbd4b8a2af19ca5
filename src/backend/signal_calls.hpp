// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "os/shared_flag.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::backend {

/// A backend's support of signals; `cheaper` if several of them cost the host less than as many events
/// between devices.
enum class SignalSupport : std::uint8_t { none, available, cheaper };
/// The most signals that one call can wait for.
inline constexpr std::size_t most_signals = 16;

/// Orders streams by signals, flags in pinned memory that streams set and wait for. The backend does not know
/// who waits for whom, and streams may share hardware queues: a wait must be queued after the signals it
/// waits for, or neither may ever come.
class SignalCalls {
 public:
  SignalCalls(const SignalCalls&) = delete;
  SignalCalls& operator=(const SignalCalls&) = delete;

  [[nodiscard]] virtual SignalSupport signal_support() const noexcept = 0;
  /// Sets the flag once all earlier work of `stream` is done and visible to devices that NVLink connects.
  virtual void signal(StreamRef stream, SharedFlag& flag, std::uint32_t value) = 0;
  /// Makes later work on `stream` wait until each of the flags has reached `value`; `most_signals` at most.
  virtual void wait_signals(StreamRef stream, std::span<SharedFlag> flags, std::uint32_t value) = 0;
  /// Queues a kernel that waits until `flag` is not 0, for `longest` at most, and then sets `outcome` to 1 if
  /// it is, else to 2. Both are in pinned memory. It tests whether work may wait for other work: nothing else
  /// relies on that (except `team_round`, whose waits end with its team).
  virtual void wait_in_kernel(StreamRef stream, SharedFlag& flag, std::chrono::milliseconds longest,
                              SharedFlag& outcome) = 0;

 protected:
  SignalCalls() = default;
  ~SignalCalls() = default;
};

}  // namespace tutti::backend
