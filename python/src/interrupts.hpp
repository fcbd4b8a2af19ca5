// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator.hpp"

#include <functional>

/// Lets Ctrl-C end waits. Python runs signal handlers on the main thread alone, and not while that is in C++.
namespace tutti::python {

/// Calls `wait`, which may block, without the GIL. On the main thread another thread makes the call, so that
/// Ctrl-C raises KeyboardInterrupt here; the other thread then goes on waiting by itself, so `wait` must own
/// what it uses. Buries what is no longer used once the wait is over. Needs the GIL.
void wait_interruptibly(std::function<void()> wait);

/// Ends `communicator` if Ctrl-C arrives on the main thread during this object's life and the call then does
/// not return within a tenth of a second. Neither needs nor takes the GIL.
class AbortOnInterrupt {
 public:
  explicit AbortOnInterrupt(Communicator& communicator);
  AbortOnInterrupt(const AbortOnInterrupt&) = delete;
  AbortOnInterrupt& operator=(const AbortOnInterrupt&) = delete;
  ~AbortOnInterrupt();

 private:
  bool is_outermost_ = false;
};

/// Raises what a signal handler of Python raises, if one is due. Needs the GIL.
void check_signals();

}  // namespace tutti::python
