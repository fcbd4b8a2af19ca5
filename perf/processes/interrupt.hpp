// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <optional>
#include <stdexcept>
#include <string>

/// Handles Ctrl-C: long runs end at the next safe point with what they have.
namespace tutti::perf {

class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

/// Reports that a row takes longer than it may.
class TimedOut : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// Notes signals for `check_interrupt` from now on: SIGINT; SIGTERM, which launchers and batch systems send;
/// SIGHUP, if the terminal is gone; SIGPIPE, if the reader of the table is gone. Further signals within a
/// second belong to the first one, because `timeout` signals the process, then its group. A later one ends
/// the process at once.
void watch_interrupts();
/// Makes `check_interrupt` throw TimedOut with this message from now on. May be called once, by any thread.
void note_overtime(const std::string& message);
/// Notes that the row has ended.
void forget_overtime();
/// Throws Interrupted if a signal was noted, and TimedOut if the row takes too long. Costs a few nanoseconds.
void check_interrupt();
/// The message of `note_overtime`, and the time since then.
struct Overtime {
  std::string message;
  std::chrono::nanoseconds since;
};
[[nodiscard]] std::optional<Overtime> overtime();
/// Returns the time since the first signal; nothing if there was none.
[[nodiscard]] std::optional<std::chrono::nanoseconds> time_since_interrupt();

}  // namespace tutti::perf
