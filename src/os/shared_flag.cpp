// SPDX-License-Identifier: Apache-2.0
#include "os/shared_flag.hpp"

#include "os/yielding.hpp"

#include <chrono>
#include <ctime>
#include <mutex>
#include <new>

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace tutti::backend {
namespace {

using Clock = std::chrono::steady_clock;

/// Time for which a thread polls, yielding the processor, before it sleeps (a wake-up may take longer than
/// copying a megabyte), and the time for which it sleeps before it polls again (writers other than host
/// threads wake nobody).
constexpr std::chrono::microseconds patience{200};
constexpr timespec nap{.tv_sec = 0, .tv_nsec = 2'000'000};

long futex(const std::atomic<std::uint32_t>& word, int operation, std::uint32_t value,
           const timespec* timeout) {
  return syscall(SYS_futex, &word, operation, value, timeout, nullptr, 0);
}

/// Waits until `has_come` is true of the flag, or gives up; it is asked again whenever the flag's value has
/// changed.
template <class HasCome>
bool wait_until(SharedFlag& flag, const AbortWord& abort, int milliseconds,
                const HasCome& has_come) noexcept {
  const auto start = Clock::now();
  const auto deadline = start + std::chrono::milliseconds(milliseconds);
  for (;;) {
    // A process that gives up goes on setting flags, although the rounds have not happened.
    if (abort.is_set()) return false;
    const std::uint32_t seen = flag.value.load(std::memory_order_acquire);
    if (has_come(seen)) return true;
    const auto now = Clock::now();
    if (now >= deadline) return false;
    if (now - start < patience && yield_unless_crowded()) continue;
    ++flag.sleepers;
    futex(flag.value, FUTEX_WAIT, seen, &nap);
    --flag.sleepers;
  }
}

AbortReason* reasons_behind(const AbortWord& abort) {
  return std::launder(reinterpret_cast<AbortReason*>(const_cast<AbortWord*>(&abort) + 1));
}

}  // namespace

const AbortReason& AbortWord::reason() const noexcept {
  return reasons_behind(*this)[state.load(std::memory_order_acquire) - 1];
}

bool AbortWord::set(std::uint32_t process, std::uint32_t code, std::string_view text) noexcept {
  static std::mutex mutex;  // the process has a single place for its reason
  const std::lock_guard lock(mutex);
  if (is_set()) return false;  // others may be reading it
  AbortReason& own = reasons_behind(*this)[process];
  own.code = code;
  own.length = static_cast<std::uint32_t>(text.copy(own.bytes.data(), own.bytes.size()));
  std::uint32_t expected = running;
  return state.compare_exchange_strong(expected, process + 1);
}

void ring(SharedFlag& bell) noexcept {
  ++bell.value;
  if (bell.sleepers.load() != 0) futex(bell.value, FUTEX_WAKE, INT32_MAX, nullptr);
}

void wait_for_ring(SharedFlag& bell, std::uint32_t seen, int milliseconds) noexcept {
  const timespec timeout{.tv_sec = milliseconds / 1000, .tv_nsec = milliseconds % 1000 * 1'000'000L};
  ++bell.sleepers;
  futex(bell.value, FUTEX_WAIT, seen, &timeout);
  --bell.sleepers;
}

void set_flag(SharedFlag& flag, std::uint32_t value) noexcept {
  flag.value.store(value);
  if (flag.sleepers.load() != 0) futex(flag.value, FUTEX_WAKE, INT32_MAX, nullptr);
}

void set_round(SharedFlag& flag, std::uint64_t round) noexcept {
  flag.round.store(round, std::memory_order_release);
  set_flag(flag, static_cast<std::uint32_t>(round));
}

bool wait_for_flag(SharedFlag& flag, std::uint32_t value, const AbortWord& abort, int milliseconds) noexcept {
  return wait_until(flag, abort, milliseconds,
                    [value](std::uint32_t seen) { return has_reached(seen, value); });
}

bool wait_for_round(SharedFlag& flag, std::uint64_t round, const AbortWord& abort,
                    int milliseconds) noexcept {
  return wait_until(flag, abort, milliseconds, [&](std::uint32_t /*seen*/) {
    return RoundNumber::has_come(flag.round.load(std::memory_order_acquire), round);
  });
}

}  // namespace tutti::backend
