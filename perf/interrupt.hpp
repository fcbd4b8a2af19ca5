#pragma once

#include <stdexcept>

/// Ctrl-C: long runs end at the next safe point with what they have.
namespace tutti::perf {

class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

/// From now on the first SIGINT is noted for `check_interrupt`; a second one ends the process at once.
void watch_interrupt();
/// The same for SIGTERM, which is what launchers send to the processes they started.
void watch_termination();
/// Throws Interrupted if a signal was noted. A few nanoseconds.
void check_interrupt();

}  // namespace tutti::perf
