// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/error.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include <pthread.h>

namespace tutti::backend {

/// An exception that nobody has handled.
struct Escaped {
  ErrorCode code = ErrorCode::internal;
  std::string_view what;  ///< valid as long as the exception is being handled

  /// The one that is being handled. Takes no memory, which may be what the exception is about.
  [[nodiscard]] static Escaped current() noexcept;
};

/// A thread of the library's own; there are no others.
///
/// It is not the program's: it
///  - takes none of the signals that are sent to the process, which are for the program's threads. It takes
///    what it brings upon itself (SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT), and SIGPROF if
///    the thread that starts it does: whoever measures where a process spends its time wants to see it. What
///    a write to a closed pipe or beyond a file's limit brings (SIGPIPE, SIGXFSZ) is an error of the call
///    alone.
///  - computes in the default floating-point environment (`floating_point_environment.hpp`),
///  - runs on the processors that the process had when the library was loaded, as `taskset`, `numactl` or a
///    launcher of MPI's has given it: not on those alone to which the thread that starts it may have bound
///    itself since. A system that has taken some of them away decides.
class Thread {
 public:
  struct Role {
    std::string name;     ///< what tools show of it: 15 characters at most
    std::string purpose;  ///< in "cannot start a thread ...": "for stream 3 of device 0"
  };

  Thread() noexcept = default;
  /// Starts a thread that calls `work`, and `give_up` with what `work` lets escape, as the last thing it
  /// does. `give_up` should take no memory; what it throws goes no further.
  /// Throws Error(out_of_memory) if the system has no thread left.
  Thread(const Role& role, std::function<void()> work, std::function<void(const Escaped&)> give_up);
  Thread(Thread&& other) noexcept;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { join(); }

  /// It has been started, and neither been joined nor let go.
  [[nodiscard]] bool joinable() const noexcept { return joinable_; }
  /// Waits for its end, if it is joinable. A thread that would wait for itself, as one does that calls
  /// `exit`, is let go instead.
  void join() noexcept;
  /// Lets it go: nobody waits for its end.
  void detach() noexcept;

  /// How many processors the library's threads may use; 0 if the system does not say.
  [[nodiscard]] static std::size_t processors() noexcept;

 private:
  pthread_t handle_{};
  bool joinable_ = false;
};

}  // namespace tutti::backend
