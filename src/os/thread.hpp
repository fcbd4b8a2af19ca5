// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/error.hpp"

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include <pthread.h>

namespace tutti::backend {

/// Describes an exception that nobody has handled.
struct Escaped {
  ErrorCode code = ErrorCode::internal;
  std::string_view what;  ///< valid as long as the exception is being handled

  /// Returns the exception that is being handled. Allocates no memory, as the exception may be about that.
  [[nodiscard]] static Escaped current() noexcept;
};

/// A thread of the library; the library starts threads in no other way.
///
/// In contrast to threads of the program, it
///  - receives no signals that are sent to the process, except SIGPROF if the thread that starts it receives
///    it, so that profilers see it. It receives the signals that it causes itself (SIGSEGV, SIGBUS, SIGFPE,
///    SIGILL, SIGTRAP, SIGSYS, SIGABRT). Writing to a closed pipe or beyond a file's limit (SIGPIPE, SIGXFSZ)
///    only makes the system call fail.
///  - computes in the default floating-point environment (`floating_point_environment.hpp`).
///  - runs on the processors that the process had when the library was loaded, as set by `taskset`, `numactl`
///    or a launcher of MPI, even if the thread that starts it has bound itself to fewer since. Processors
///    that the system has taken away since then are not used.
class Thread {
 public:
  struct Role {
    std::string name;     ///< shown by tools: 15 characters at most
    std::string purpose;  ///< completes "cannot start a thread ...", for instance "for stream 3 of device 0"
  };

  Thread() noexcept = default;
  /// Starts a thread that calls `work`. If an exception escapes from `work`, the thread calls `give_up` with
  /// it and ends. `give_up` should allocate no memory; exceptions that it throws are dropped. Throws
  /// Error(out_of_memory) if the system cannot start another thread.
  Thread(const Role& role, std::function<void()> work, std::function<void(const Escaped&)> give_up);
  Thread(Thread&& other) noexcept;
  Thread& operator=(Thread&& other) noexcept;
  ~Thread() { join(); }

  /// Returns whether the thread has been started, and neither been joined nor detached.
  [[nodiscard]] bool joinable() const noexcept { return joinable_; }
  /// Waits for the thread to end, if it is joinable. A thread that joins itself, as one does that calls
  /// `exit`, is detached instead.
  void join() noexcept;
  /// Detaches the thread: nobody waits for its end.
  void detach() noexcept;
  /// Forgets the thread in a forked child, where it does not run. The handle is not used: the system may have
  /// given it to a thread of the child.
  void leave_to_parent() noexcept { joinable_ = false; }

  /// Returns how many processors the library's threads may use, or 0 if the system does not say.
  [[nodiscard]] static std::size_t processors() noexcept;

 private:
  pthread_t handle_{};
  bool joinable_ = false;
};

}  // namespace tutti::backend
