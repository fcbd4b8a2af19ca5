// SPDX-License-Identifier: Apache-2.0
#include "perf/processes/interrupt.hpp"

#include <atomic>
#include <csignal>
#include <cstdint>
#include <ctime>

namespace tutti::perf {
namespace {

constexpr std::int64_t nanoseconds_of_one_wish = 1'000'000'000;

/// When the first signal came; 0: none has.
std::atomic<std::int64_t> interrupted_at = 0;
static_assert(std::atomic<std::int64_t>::is_always_lock_free);  // as signal handlers need it

/// Likewise of overtime, and why: written before.
std::atomic<std::int64_t> overtime_since = 0;
std::string overtime_message;

std::int64_t now() noexcept {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return std::int64_t{time.tv_sec} * 1'000'000'000 + time.tv_nsec;
}

extern "C" void note_interrupt(int signal) {
  std::int64_t first = 0;
  const std::int64_t time = now();
  if (interrupted_at.compare_exchange_strong(first, time) || time - first < nanoseconds_of_one_wish) return;
  std::signal(signal, SIG_DFL);
  std::raise(signal);
}

}  // namespace

void watch_interrupts() {
  struct sigaction noting {};
  noting.sa_handler = note_interrupt;
  noting.sa_flags = SA_RESTART;  // libraries need not expect that their waits end early
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGPIPE}) {
    struct sigaction before {};
    sigaction(signal, nullptr, &before);
    // Under nohup the terminal may go.
    if (signal != SIGHUP || before.sa_handler != SIG_IGN) sigaction(signal, &noting, nullptr);
  }
  std::signal(SIGXFSZ, SIG_IGN);  // a file that becomes too long fails, like one on a full disk
}

void check_interrupt() {
  if (interrupted_at.load(std::memory_order_relaxed) != 0) throw Interrupted();
  if (overtime_since.load(std::memory_order_acquire) != 0) throw TimedOut(overtime_message);
}

void note_overtime(const std::string& message) {
  overtime_message = message;
  overtime_since.store(now(), std::memory_order_release);
}

void forget_overtime() {
  overtime_since = 0;
}

std::optional<Overtime> overtime() {
  const std::int64_t since = overtime_since.load(std::memory_order_acquire);
  if (since == 0) return std::nullopt;
  return Overtime{overtime_message, std::chrono::nanoseconds(now() - since)};
}

std::optional<std::chrono::nanoseconds> time_since_interrupt() {
  const std::int64_t first = interrupted_at;
  if (first == 0) return std::nullopt;
  return std::chrono::nanoseconds(now() - first);
}

}  // namespace tutti::perf
