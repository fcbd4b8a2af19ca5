#pragma once

#include <stdexcept>

/// Ctrl-C: long runs end at the next safe point with what they have.
namespace tutti::perf {

class Interrupted : public std::runtime_error {
 public:
  Interrupted() : std::runtime_error("interrupted") {}
};

/// From now on the first SIGINT is noted for `check_interrupt`; a second one ends the process at once. The
/// same for SIGTERM, which is what launchers and batch systems send. A reader of the output that has gone is
/// no reason to end.
void watch_interrupts();
/// Throws Interrupted if a signal was noted. A few nanoseconds.
void check_interrupt();

}  // namespace tutti::perf
