// SPDX-License-Identifier: Apache-2.0
#include "interrupts.hpp"

#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include <nanobind/nanobind.h>
#include <semaphore.h>
#include <unistd.h>

namespace tutti::python {
namespace {

namespace nb = nanobind;
using std::chrono::milliseconds;

/// Python's main thread is the one that a process starts with.
bool is_main_thread() {
  return ::gettid() == ::getpid();
}

/// A wait that another thread makes.
class Wait {
 public:
  explicit Wait(std::function<void()> work) : work_(std::move(work)) {}

  void run() {
    std::exception_ptr error;
    try {
      work_();
    } catch (...) {
      error = std::current_exception();
    }
    const std::lock_guard lock(mutex_);
    error_ = error;
    is_over_ = true;
    over_.notify_all();
  }

  /// Returns whether it is over within that time; throws what the work has thrown.
  bool is_over_within(milliseconds time) {
    std::unique_lock lock(mutex_);
    if (!over_.wait_for(lock, time, [this] { return is_over_; })) return false;
    if (error_) std::rethrow_exception(error_);
    return true;
  }

 private:
  std::function<void()> work_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::exception_ptr error_;
};

/// A thread that makes one wait after another. If a wait is abandoned, so is its thread.
class Waiter {
 public:
  void start(std::shared_ptr<Wait> wait) {
    const std::lock_guard lock(mutex_);
    next_ = std::move(wait);
    has_next_.notify_one();
  }
  void leave() { start(nullptr); }

  static std::shared_ptr<Waiter> make() {
    auto waiter = std::make_shared<Waiter>();
    std::thread([waiter] { waiter->serve(); }).detach();
    return waiter;
  }

 private:
  void serve() {
    for (;;) {
      std::unique_lock lock(mutex_);
      has_next_.wait(lock, [this] { return next_.has_value(); });
      const std::shared_ptr<Wait> wait = std::move(*next_);
      next_.reset();
      lock.unlock();
      if (wait == nullptr) return;
      wait->run();
    }
  }

  std::mutex mutex_;
  std::condition_variable has_next_;
  std::optional<std::shared_ptr<Wait>> next_;
};

/// The main thread's waiter while that does not wait; a forked child makes its own.
std::shared_ptr<Waiter>& idle_waiter() {
  static auto* const waiter = new std::shared_ptr<Waiter>;  // kept: its thread may outlive static objects
  static pid_t owner = 0;
  if (owner != ::getpid()) {
    owner = ::getpid();
    new (waiter) std::shared_ptr<Waiter>;  // the parent's has no thread here
  }
  return *waiter;
}

/// A waiter for one wait of the main thread. Waits may nest, as signal handlers may wait.
class UsedWaiter {
 public:
  UsedWaiter() : waiter_(std::exchange(idle_waiter(), nullptr)) {
    if (waiter_ == nullptr) waiter_ = Waiter::make();
  }
  UsedWaiter(const UsedWaiter&) = delete;
  UsedWaiter& operator=(const UsedWaiter&) = delete;
  /// Unless the wait is over, and so the thread ready for the next, lets the thread go once it is.
  ~UsedWaiter() {
    if (is_over_ && idle_waiter() == nullptr) {
      idle_waiter() = std::move(waiter_);
    } else {
      waiter_->leave();
    }
  }

  void start(std::shared_ptr<Wait> wait) { waiter_->start(std::move(wait)); }
  void set_over() noexcept { is_over_ = true; }

 private:
  std::shared_ptr<Waiter> waiter_;
  bool is_over_ = false;
};

bool is_over(Wait& wait) {
  const nb::gil_scoped_release release;
  return wait.is_over_within(milliseconds(50));
}

/// The call that the main thread is in, for the signal handler and the thread that it wakes.
struct CallUnderWay {
  std::mutex mutex;
  Communicator* communicator = nullptr;
  std::uint64_t number = 0;
  sem_t interrupted{};
};
CallUnderWay& call_under_way() {
  static auto* const call = new CallUnderWay;  // kept for the detached thread
  return *call;
}
struct sigaction python_action {};

void on_interrupt(int signal) {
  const int error = errno;
  ::sem_post(&call_under_way().interrupted);
  errno = error;
  python_action.sa_handler(signal);
}

std::uint64_t number_of_call(CallUnderWay& call) {
  const std::lock_guard lock(call.mutex);
  return call.communicator == nullptr ? 0 : call.number;
}

void abort_call(CallUnderWay& call, std::uint64_t number) {
  const std::lock_guard lock(call.mutex);
  if (call.communicator != nullptr && call.number == number)
    call.communicator->abort("interrupted by Ctrl-C");
}

void watch_for_interrupts() {
  CallUnderWay& call = call_under_way();
  for (;;) {
    if (::sem_wait(&call.interrupted) != 0) continue;
    const std::uint64_t number = number_of_call(call);
    if (number == 0) continue;
    std::this_thread::sleep_for(milliseconds(100));
    abort_call(call, number);
  }
}

void start_watch_once() {
  static const bool started = [] {
    ::sem_init(&call_under_way().interrupted, 0, 0);
    std::thread(watch_for_interrupts).detach();
    return true;
  }();
  static_cast<void>(started);
}

/// Puts the handler before Python's, unless the program ignores the signal or has left it to the system.
void install_handler() {
  ::sigaction(SIGINT, nullptr, &python_action);
  const bool is_handled = (python_action.sa_flags & SA_SIGINFO) == 0 && python_action.sa_handler != SIG_IGN &&
                          python_action.sa_handler != SIG_DFL;
  if (!is_handled) return;
  struct sigaction action = python_action;
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
}

void remove_handler() {
  struct sigaction action {};
  ::sigaction(SIGINT, nullptr, &action);
  if (action.sa_handler == on_interrupt) ::sigaction(SIGINT, &python_action, nullptr);
}

}  // namespace

void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

void wait_interruptibly(std::function<void()> wait) {
  if (!is_main_thread()) {
    const nb::gil_scoped_release release;
    return wait();
  }
  const auto handed = std::make_shared<Wait>(std::move(wait));
  UsedWaiter waiter;
  waiter.start(handed);
  while (!is_over(*handed)) check_signals();
  waiter.set_over();
}

AbortOnInterrupt::AbortOnInterrupt(Communicator& communicator) {
  if (!is_main_thread()) return;
  start_watch_once();
  CallUnderWay& call = call_under_way();
  const std::lock_guard lock(call.mutex);
  if (call.communicator != nullptr) return;
  is_outermost_ = true;
  call.communicator = &communicator;
  ++call.number;
  install_handler();
}

AbortOnInterrupt::~AbortOnInterrupt() {
  if (!is_outermost_) return;
  remove_handler();
  const std::lock_guard lock(call_under_way().mutex);
  call_under_way().communicator = nullptr;
}

}  // namespace tutti::python
