// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>

/// Ctrl-C: long runs end at the next safe point with what they have.
namespace tutti::perf {

class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

/// A row has taken longer than it may.
class TimedOut : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// From now on the first SIGINT, SIGTERM, which is what launchers and batch systems send, SIGHUP, that the
/// terminal has gone, or SIGPIPE, that the table's reader has, is noted for `check_interrupt`. What follows
/// within a second is the same wish: `timeout` signals the process, then its group. A later one ends the
/// process at once.
void watch_interrupts();
/// From now on `check_interrupt` throws TimedOut with this message. May be called once, by any thread.
void note_overtime(const std::string& message);
/// The row has ended.
void forget_overtime();
/// Throws Interrupted if a signal was noted, and TimedOut if it is overtime. A few nanoseconds.
void check_interrupt();
/// The message and how long ago it was noted; nothing if it is not overtime.
struct Overtime {
  std::string message;
  std::chrono::nanoseconds since;
};
[[nodiscard]] std::optional<Overtime> overtime();
/// How long ago the first signal was noted; nothing if none was.
[[nodiscard]] std::optional<std::chrono::nanoseconds> time_since_interrupt();

}  // namespace tutti::perf
