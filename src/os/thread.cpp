// SPDX-License-Identifier: Apache-2.0
#include "os/thread.hpp"

#include "os/floating_point_environment.hpp"

#include <array>
#include <csignal>
#include <exception>
#include <memory>
#include <new>
#include <system_error>
#include <utility>

#include <cxxabi.h>
#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

namespace tutti::backend {
namespace {

/// A set of processors that a process may use.
class Processors {
 public:
  /// Returns the processors at the time when the library was loaded, or of the first call, if that was
  /// earlier.
  static const Processors& of_process() noexcept {
    static const Processors at_load;
    return at_load;
  }

  [[nodiscard]] std::size_t count() const noexcept {
    return is_known_ ? static_cast<std::size_t>(CPU_COUNT_S(sizeof set_, set_.data())) : 0;
  }
  /// Restricts the calling thread to these processors, as far as the system still grants them.
  void use() const noexcept {
    if (is_known_) static_cast<void>(sched_setaffinity(0, sizeof set_, set_.data()));
  }

 private:
  // Taken from the process's first thread: the thread that loads the library may have bound itself.
  Processors() noexcept : is_known_(sched_getaffinity(getpid(), sizeof set_, set_.data()) == 0) {}

  std::array<cpu_set_t, 16> set_{};
  bool is_known_;
};

[[maybe_unused]] const Processors& read_when_loaded = Processors::of_process();

/// Gives threads that are started during its lifetime the signal mask of a library's thread.
class LibrarySignals {
 public:
  LibrarySignals() noexcept {
    pthread_sigmask(SIG_BLOCK, nullptr, &before_);
    sigset_t blocked;
    sigfillset(&blocked);
    for (const int own : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT})
      sigdelset(&blocked, own);
    if (sigismember(&before_, SIGPROF) == 0) sigdelset(&blocked, SIGPROF);
    pthread_sigmask(SIG_SETMASK, &blocked, nullptr);
  }
  LibrarySignals(const LibrarySignals&) = delete;
  LibrarySignals& operator=(const LibrarySignals&) = delete;
  ~LibrarySignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  sigset_t before_{};
};

/// Arguments of a new thread.
struct Start {
  std::array<char, 16> name{};
  std::function<void()> work;
  std::function<void(const Escaped&)> give_up;
};

void run(const Start& start) {
  try {
    start.work();
  } catch (const abi::__forced_unwind&) {
    throw;  // the thread is being cancelled, which only a program can have asked for
  } catch (...) {
    const Escaped escaped = Escaped::current();
    try {
      start.give_up(escaped);
    } catch (const abi::__forced_unwind&) {
      throw;
    } catch (...) {
      return;  // nobody is left to be told
    }
  }
}

void* enter(void* argument) {
  const std::unique_ptr<Start> start(static_cast<Start*>(argument));
  pthread_setname_np(pthread_self(), start->name.data());
  Processors::of_process().use();
  use_default_floating_point();
  run(*start);
  return nullptr;
}

}  // namespace

Escaped Escaped::current() noexcept {
  try {
    throw;
  } catch (const Error& error) {
    return {error.code(), error.what()};
  } catch (const std::bad_alloc&) {
    return {ErrorCode::out_of_memory, "out of memory"};
  } catch (const std::exception& error) {
    return {ErrorCode::internal, error.what()};
  } catch (...) {
    return {ErrorCode::internal, "something was thrown that is not a std::exception"};
  }
}

Thread::Thread(const Role& role, std::function<void()> work, std::function<void(const Escaped&)> give_up) {
  auto start = std::make_unique<Start>();
  role.name.copy(start->name.data(), start->name.size() - 1);
  start->work = std::move(work);
  start->give_up = std::move(give_up);
  int status = 0;
  {
    const LibrarySignals signals;
    status = pthread_create(&handle_, nullptr, &enter, start.get());
  }
  if (status != 0) {
    throw Error(ErrorCode::out_of_memory,
                fmt::format("cannot start a thread {}: {}; raise the limit that is reached: of threads "
                            "(ulimit -u, pids.max of a container) or of address space (ulimit -v)",
                            role.purpose, std::generic_category().message(status)),
                status);
  }
  static_cast<void>(start.release());  // owned by the thread now
  joinable_ = true;
}

Thread::Thread(Thread&& other) noexcept
    : handle_(other.handle_), joinable_(std::exchange(other.joinable_, false)) {}

Thread& Thread::operator=(Thread&& other) noexcept {
  if (this != &other) {
    join();
    handle_ = other.handle_;
    joinable_ = std::exchange(other.joinable_, false);
  }
  return *this;
}

void Thread::join() noexcept {
  if (!joinable_) return;
  if (pthread_equal(handle_, pthread_self()) != 0) return detach();
  pthread_join(handle_, nullptr);
  joinable_ = false;
}

void Thread::detach() noexcept {
  if (!joinable_) return;
  pthread_detach(handle_);
  joinable_ = false;
}

std::size_t Thread::processors() noexcept {
  return Processors::of_process().count();
}

}  // namespace tutti::backend
