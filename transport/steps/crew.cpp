// SPDX-License-Identifier: Apache-2.0
#include "transport/steps/crew.hpp"

#include "settings/environment.hpp"
#include "settings/log.hpp"

#include <algorithm>
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

std::optional<std::size_t> size_asked_for() {
  const auto& size = Environment::get().launch_threads;
  return size ? std::optional(static_cast<std::size_t>(*size)) : std::nullopt;
}

void log_start_failure(std::size_t started, std::size_t wanted, const std::exception& error) noexcept {
  try {
    log_warning(fmt::format("{} of {} threads help with launches: {}", started, wanted, error.what()));
  } catch (const std::exception&) {
    // Too little memory to say so.
  }
}

}  // namespace

Crew::Crew(Runtime& /*runtime*/) : size_(size_asked_for()) {}

Crew::~Crew() {
  is_dismissed_.store(true);
  ++bell_;
  bell_.notify_all();
  for (backend::Thread& thread : threads_) thread.join();
}

void Crew::start() noexcept {
  is_started_ = true;
  const std::size_t size = size_ ? *size_ : suitable_size();
  try {
    threads_.reserve(size);
    while (threads_.size() < size) {
      threads_.emplace_back(
          backend::Thread::Role{.name = "tutti-crew", .purpose = "that helps with launches"},
          [this] { run(); },
          [](const backend::Escaped& escaped) { log_warning(escaped.what); });  // the others do without it
    }
  } catch (const std::exception& error) {
    log_start_failure(threads_.size(), size, error);
  }
}

Crew::Shift::Shift(Crew& crew, std::size_t calls) : crew_(crew), lock_(crew.mutex_, std::defer_lock) {
  if (calls < 2 || !lock_.try_lock()) return;
  const Clock::time_point now = Clock::now();
  const bool is_burst = now - std::exchange(crew.last_shift_, now) < patience;
  if (!is_burst) return;
  if (!crew.is_started_) crew.start();
  if (crew.sleepers_.load() == 0) return;
  ++crew.bell_;
  crew.bell_.notify_all();
}

void Crew::for_each(bool has_crew, std::uint32_t count, Work work) {
  if (!has_crew || threads_.empty() || count < 2) {
    for (std::size_t i = 0; i < count; ++i) work.call(work.context, i);
    return;
  }
  work_ = work;
  done_.store(0, std::memory_order_relaxed);
  agenda_.store({.count = count, .next = 0}, std::memory_order_release);
  take_part();
  for (std::uint32_t look = 1; done_.load(std::memory_order_acquire) != count; ++look) {
    constexpr std::uint32_t patient_looks = 1024;  // whoever has the last part may have lost the processor
    if (look % patient_looks == 0) std::this_thread::yield();
    relax();
  }
  if (!has_failed_.load(std::memory_order_relaxed)) return;
  has_failed_.store(false, std::memory_order_relaxed);
  std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Crew::take_part() noexcept {
  Agenda agenda = agenda_.load(std::memory_order_acquire);
  while (agenda.is_open()) {
    Agenda left = agenda;
    ++left.next;
    if (!agenda_.compare_exchange_weak(agenda, left, std::memory_order_acq_rel, std::memory_order_acquire))
      continue;
    try {
      work_.call(work_.context, agenda.next);
    } catch (...) {
      if (!has_failed_.exchange(true)) failure_ = std::current_exception();
    }
    done_.fetch_add(1, std::memory_order_release);
    agenda = agenda_.load(std::memory_order_acquire);
  }
}

void Crew::run() {
  while (!is_dismissed_.load(std::memory_order_relaxed)) {
    take_part();
    rest();
  }
}

void Crew::rest() {
  const Clock::time_point end = Clock::now() + patience;
  constexpr int looks = 64;  // between two looks at the clock
  do {
    for (int look = 0; look < looks; ++look) {
      if (agenda_.load(std::memory_order_relaxed).is_open()) return;
      relax();
    }
    if (is_dismissed_.load(std::memory_order_relaxed)) return;
  } while (Clock::now() < end);

  const std::uint32_t seen = bell_.load();
  ++sleepers_;
  if (!is_dismissed_.load()) bell_.wait(seen);
  --sleepers_;
}

}  // namespace tutti::transport
