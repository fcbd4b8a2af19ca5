// SPDX-License-Identifier: Apache-2.0
#include "interrupts.hpp"

#include "shared_object.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <ctime>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <optional>
#include <thread>
#include <type_traits>
#include <utility>

#include <nanobind/nanobind.h>
#include <semaphore.h>
#include <unistd.h>

namespace tutti::python {
namespace {

namespace nb = nanobind;
using std::chrono::milliseconds;

thread_local bool is_first_thread = ::gettid() == ::getpid();

void begin_anew_in_child();

/// Python's main thread is the one that a process starts with, or the one that has forked it.
bool is_main_thread() {
  static const int registered = ::pthread_atfork(nullptr, nullptr, begin_anew_in_child);
  static_cast<void>(registered);
  return is_first_thread;
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

/// The main thread's waiter while that does not wait.
std::shared_ptr<Waiter>& idle_waiter() {
  static auto* const waiter = new std::shared_ptr<Waiter>;  // kept: its thread may outlive static objects
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

using Clock = std::chrono::steady_clock;
using SignalHandler = void (*)(int);

/// The call that the main thread is in, for the signal handler and the thread that it wakes.
struct CallUnderWay {
  std::mutex mutex;
  Communicator* communicator = nullptr;
  std::uint64_t last_number = 0;
  // For the handler, which cannot lock: numbers of calls, 0 for none.
  std::atomic<std::uint64_t> under_way = 0;
  std::atomic<std::uint64_t> interrupted = 0;
  sem_t wake{};
  bool is_watched = false;        ///< whether there is a thread that `wake` wakes
  Clock::time_point next_look{};  ///< earliest time to see to the handler again
};
static_assert(std::is_trivially_destructible_v<CallUnderWay>, "the detached thread outlives static objects");
constinit CallUnderWay call_under_way;

/// Forgets the parent's threads and its calls, of which a forked child has none. Objects are made anew, not
/// destroyed: a lock that another thread held stays locked.
void begin_anew_in_child() {
  is_first_thread = true;
  new (&idle_waiter()) std::shared_ptr<Waiter>;
  new (&call_under_way) CallUnderWay;
}

/// Handlers whose place this library's has taken, the earliest first. One that another library has set may
/// call the handler before it, which is this one: that call goes to the handler before that one.
class DisplacedHandlers {
 public:
  /// Adds the latest. Returns false if there is no room. Not at the same time as itself.
  bool add(SignalHandler handler) {
    const std::size_t known = index_of(handler);
    if (known == handlers_.size()) return false;
    handlers_[known] = handler;
    count_ = known + 1;
    return true;
  }

  /// Calls the latest; within such a call, the one before. Async-signal-safe.
  void call(int signal) const {
    const std::size_t count = count_;
    if (calls >= count) return;
    const SignalHandler handler = handlers_[count - ++calls];
    handler(signal);
    --calls;
  }

 private:
  /// Returns its index; the number of handlers if it is new. Those behind it are no longer in place.
  [[nodiscard]] std::size_t index_of(SignalHandler handler) const {
    const std::size_t count = count_;
    for (std::size_t i = 0; i < count; ++i) {
      if (handlers_[i] == handler) return i;
    }
    return count;
  }

  /// Calls of this thread that are under way. Allocated when the thread begins, as signal handlers need it.
  [[gnu::tls_model("initial-exec")]] static thread_local std::size_t calls;

  std::array<std::atomic<SignalHandler>, 8> handlers_{};
  std::atomic<std::size_t> count_ = 0;
};
thread_local std::size_t DisplacedHandlers::calls = 0;
constinit DisplacedHandlers displaced_handlers;

void on_interrupt(int signal) {
  const int error = errno;
  if (const std::uint64_t number = call_under_way.under_way; number != 0) {
    call_under_way.interrupted = number;
    ::sem_post(&call_under_way.wake);
  }
  errno = error;
  displaced_handlers.call(signal);
}

/// Puts the handler before the one that is there, unless the program ignores the signal or has left it to the
/// system. Needs the mutex of the call under way, so that the main thread sets no handler meanwhile.
void install_handler() {
  struct sigaction action {};
  ::sigaction(SIGINT, nullptr, &action);
  const bool is_handled = (action.sa_flags & SA_SIGINFO) == 0 && action.sa_handler != SIG_IGN &&
                          action.sa_handler != SIG_DFL && action.sa_handler != on_interrupt;
  if (!is_handled || !displaced_handlers.add(action.sa_handler)) return;
  action.sa_handler = on_interrupt;
  ::sigaction(SIGINT, &action, nullptr);
}

void abort_call(std::uint64_t number) {
  const std::lock_guard lock(call_under_way.mutex);
  if (call_under_way.communicator != nullptr && call_under_way.under_way == number)
    call_under_way.communicator->abort("interrupted by Ctrl-C");
}

void see_to_handler() {
  const std::lock_guard lock(call_under_way.mutex);
  if (call_under_way.under_way != 0) install_handler();
}

bool is_woken_within(milliseconds time) {
  timespec end{};
  ::clock_gettime(CLOCK_MONOTONIC, &end);
  const auto nanoseconds = end.tv_nsec + std::chrono::nanoseconds(time).count();
  end.tv_sec += nanoseconds / 1'000'000'000;
  end.tv_nsec = nanoseconds % 1'000'000'000;
  return ::sem_clockwait(&call_under_way.wake, CLOCK_MONOTONIC, &end) == 0;
}

/// Ends calls that are interrupted. While calls are made, and a little longer, looks whether the program has
/// set a handler of its own in place of this one.
void watch_calls() {
  CallUnderWay& call = call_under_way;
  constexpr int looks_after_calls = 4;
  for (int looks = 0;;) {
    const bool is_woken = looks == 0 ? ::sem_wait(&call.wake) == 0 : is_woken_within(milliseconds(50));
    if (!is_woken) see_to_handler();
    looks = is_woken || call.under_way != 0 ? looks_after_calls : std::max(0, looks - 1);
    const std::uint64_t number = call.interrupted.exchange(0);
    if (number == 0) continue;
    std::this_thread::sleep_for(milliseconds(100));
    abort_call(number);
  }
}

void start_watch_once() {
  if (std::exchange(call_under_way.is_watched, true)) return;
  ::sem_init(&call_under_way.wake, 0, 0);
  std::thread(watch_calls).detach();
}

/// Sees to the handler and the watch, not more often than every 10 ms: the system calls for that take longer
/// than a small call. Needs the mutex of the call under way.
void watch_now_and_then() {
  const Clock::time_point now = Clock::now();
  if (now < call_under_way.next_look) return;
  call_under_way.next_look = now + milliseconds(10);
  start_watch_once();
  install_handler();
  ::sem_post(&call_under_way.wake);
}

}  // namespace

void check_signals() {
  if (PyErr_CheckSignals() != 0) throw nb::python_error();
}

void wait_interruptibly(std::function<void()> wait) {
  if (!is_main_thread()) {
    {
      const nb::gil_scoped_release release;
      wait();
    }
    return bury();
  }
  const auto handed = std::make_shared<Wait>(std::move(wait));
  UsedWaiter waiter;
  waiter.start(handed);
  while (!is_over(*handed)) check_signals();
  waiter.set_over();
  bury();
}

AbortOnInterrupt::AbortOnInterrupt(Communicator& communicator) {
  if (!is_main_thread()) return;
  CallUnderWay& call = call_under_way;
  const std::lock_guard lock(call.mutex);
  if (call.communicator != nullptr) return;
  is_outermost_ = true;
  call.communicator = &communicator;
  call.under_way = ++call.last_number;
  watch_now_and_then();
}

AbortOnInterrupt::~AbortOnInterrupt() {
  if (!is_outermost_) return;
  CallUnderWay& call = call_under_way;
  const std::lock_guard lock(call.mutex);
  call.communicator = nullptr;
  call.under_way = 0;
}

}  // namespace tutti::python
