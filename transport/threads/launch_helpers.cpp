// SPDX-License-Identifier: Apache-2.0
#include "transport/threads/launch_helpers.hpp"

#include "settings/environment.hpp"
#include "settings/log.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <exception>
#include <optional>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport {
namespace {

#if defined(__x86_64__)
/// Tells the processor that this thread waits for another one.
void relax() noexcept {
  __builtin_ia32_pause();
}
#elif defined(__aarch64__)
void relax() noexcept {
  asm volatile("yield");
}
#else
void relax() noexcept {}
#endif

/// Five halve the time of the calls for eight contexts of two GPUs; more stand in each other's way in the
/// driver. They spin between the launches of a burst, and so need processors that others do not miss.
std::size_t suitable_size() noexcept {
  constexpr std::size_t most = 5;
  constexpr std::size_t processors_each = 4;
  return std::min(most, backend::Thread::processors() / processors_each);
}

std::size_t size_for(backend::Backend& backend) {
  if (const auto& asked_for = Environment::get().launch_threads) return static_cast<std::size_t>(*asked_for);
  return backend.kind() == BackendKind::host ? 0 : suitable_size();
}

void log_start_failure(std::size_t started, std::size_t wanted, const std::exception& error) noexcept {
  try {
    log_warning(fmt::format("{} of {} threads help with launches: {}", started, wanted, error.what()));
  } catch (const std::exception&) {
    // Memory is too short for a message.
  }
}

}  // namespace

LaunchHelpers::LaunchHelpers(Runtime& runtime) : runtime_(&runtime), most_(size_for(runtime.backend())) {}

LaunchHelpers::~LaunchHelpers() {
  is_stopping_.store(true);
  ++wake_count_;
  wake_count_.notify_all();
  for (backend::Thread& thread : threads_) thread.join();
}

void LaunchHelpers::start(std::size_t wanted) noexcept {
  wanted = std::min(wanted, most_);
  try {
    while (threads_.size() < wanted) {
      threads_.emplace_back(
          backend::Thread::Role{.name = "tutti-helper", .purpose = "that helps with launches"},
          [this] { run(); },
          [](const backend::Escaped& escaped) { log_warning(escaped.what); });  // the others do without it
    }
  } catch (const std::exception& error) {
    log_start_failure(threads_.size(), wanted, error);
    most_ = threads_.size();
  }
}

LaunchHelpers::Lease::Lease(LaunchHelpers& helpers, std::size_t calls)
    : helpers_(helpers), lock_(helpers.mutex_, std::defer_lock) {
  if (calls < 2 || !lock_.try_lock()) return;
  const Clock::time_point now = Clock::now();
  const bool is_burst = now - std::exchange(helpers.last_lease_, now) < patience;
  if (!is_burst) return;
  helpers.start(calls - 1);
  helpers.wake(calls - 1);
}

void LaunchHelpers::wake(std::size_t wanted) noexcept {
  const std::size_t asleep = sleepers_.load();
  const std::size_t awake = threads_.size() - std::min(asleep, threads_.size());
  if (asleep == 0 || awake >= wanted) return;
  ++wake_count_;
  for (std::size_t more = wanted - awake; more > 0; --more) wake_count_.notify_one();
}

void LaunchHelpers::for_each(bool has_helpers, std::uint32_t count, Work work) {
  if (!has_helpers || threads_.empty() || count < 2) {
    for (std::size_t i = 0; i < count; ++i) work.call(work.context, i);
    return;
  }
  work_ = work;
  done_.store(0, std::memory_order_relaxed);
  job_.store({.count = count, .next = 0}, std::memory_order_release);
  run_tasks();
  for (std::uint32_t look = 1; done_.load(std::memory_order_acquire) != count; ++look) {
    constexpr std::uint32_t patient_looks = 1024;  // whoever has the last part may have lost the processor
    if (look % patient_looks == 0) std::this_thread::yield();
    relax();
  }
  if (!has_failed_.load(std::memory_order_relaxed)) return;
  has_failed_.store(false, std::memory_order_relaxed);
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

void LaunchHelpers::run_tasks() noexcept {
  Job job = job_.load(std::memory_order_acquire);
  while (job.is_open()) {
    Job left = job;
    ++left.next;
    if (!job_.compare_exchange_weak(job, left, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    try {
      work_.call(work_.context, job.next);
    } catch (...) {
      if (!has_failed_.exchange(true)) failure_ = std::current_exception();
    }
    done_.fetch_add(1, std::memory_order_release);
    job = job_.load(std::memory_order_acquire);
  }
}

void LaunchHelpers::run() {
  // The device of one call stays current for the next. It is not set back before a sleep: the process may be
  // ending by then.
  std::optional<backend::DeviceScope> scope;
  try {
    if (runtime_ != nullptr) scope.emplace(runtime_->backend());
  } catch (const Error&) {
    // The calls will find that, too.
  }
  while (!is_stopping_.load(std::memory_order_relaxed)) {
    do run_tasks();
    while (wait_for_job());
    sleep();
  }
}

bool LaunchHelpers::wait_for_job() const noexcept {
  const Clock::time_point end = Clock::now() + patience;
  constexpr int looks = 64;  // between two looks at the clock
  do {
    for (int look = 0; look < looks; ++look) {
      if (job_.load(std::memory_order_relaxed).is_open()) return true;
      relax();
    }
    if (is_stopping_.load(std::memory_order_relaxed)) return false;
  } while (Clock::now() < end);
  return false;
}

void LaunchHelpers::sleep() noexcept {
  const std::uint32_t seen = wake_count_.load();
  ++sleepers_;
  if (!is_stopping_.load()) wake_count_.wait(seen);
  --sleepers_;
}

}  // namespace tutti::transport
