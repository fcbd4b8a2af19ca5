// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <stdexcept>

/// Ctrl-C: long runs end at the next safe point with what they have.
namespace tutti::perf {

class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

/// From now on the first SIGINT or SIGTERM, which is what launchers and batch systems send, is noted for
/// `check_interrupt`. What follows within a second is the same wish: `timeout` signals the process, then its
/// group. A later one ends the process at once.
void watch_interrupts();
/// Throws Interrupted if a signal was noted. A few nanoseconds.
void check_interrupt();
/// How long ago the first signal was noted; nothing if none was.
[[nodiscard]] std::optional<std::chrono::nanoseconds> time_since_interrupt();

}  // namespace tutti::perf
