// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

/// Flags in shared memory that order streams. Flags between processes lie in memory that all of them map and
/// have registered with their backend (`Backend::register_pinned`), or in device memory; flags within one
/// process lie in pinned memory.
namespace tutti::backend {

/// A counter that only grows. It has one writer at a time, and wraps around at 2^32.
struct alignas(64) SharedFlag {
  std::atomic<std::uint32_t> value{0};
  std::atomic<std::uint32_t> sleepers{0};  ///< host threads that sleep until it changes
  /// Number of the round that the flag reports (`RoundNumber`); flags that report no round leave it alone.
  std::atomic<std::uint64_t> round{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// A round's number as flags and lines carry it: the lower 48 bits count the rounds that the team has made,
/// the bits above hold the mark of the call that the round belongs to. The mark is 0 for calls that are
/// executed at once; a captured call has its own, which tells its replays from those of other calls. Two
/// captured calls share a mark only if their numbers differ by a multiple of `marks`. The highest bit is free
/// for other uses. Kernels use the same format.
struct RoundNumber {
  static constexpr std::uint32_t count_bits = 48;
  static constexpr std::uint64_t marks = (std::uint64_t{1} << 15U) - 1;

  /// Returns the mark, shifted into place, of replays of the captured call with this number.
  [[nodiscard]] static constexpr std::uint64_t mark_of_replays(std::uint64_t call) noexcept {
    return (1 + call % marks) << count_bits;
  }
  /// Returns whether the writer of `found` has reached or passed the round `wanted` of the same call.
  [[nodiscard]] static constexpr bool has_come(std::uint64_t found, std::uint64_t wanted) noexcept {
    // The difference of the counts, without the marks.
    const auto ahead = static_cast<std::int64_t>((found - wanted) << (64 - count_bits));
    return found == wanted || ahead > 0;
  }
};

/// Returns whether a flag that holds `value` has reached `target`. Both must be less than 2^31 apart.
[[nodiscard]] constexpr bool has_reached(std::uint32_t value, std::uint32_t target) noexcept {
  return static_cast<std::int32_t>(value - target) >= 0;
}

/// Says why a process has given up.
struct alignas(64) AbortReason {
  std::uint32_t code = 0;  ///< an ErrorCode
  std::uint32_t length = 0;
  std::array<char, 2040> bytes{};

  [[nodiscard]] std::string_view text() const noexcept { return {bytes.data(), length}; }
};

/// Records which process was the first to give up; everyone who waits for a flag checks it. The reasons of
/// all processes, one each, follow it in memory, so a process that is killed or stopped while it writes its
/// reason does not keep others from giving up.
struct alignas(64) AbortWord {
  static constexpr std::uint32_t running = 0;

  std::atomic<std::uint32_t> state{running};  ///< or the number, from 1, of the process that gave up

  [[nodiscard]] bool is_set() const noexcept { return state.load(std::memory_order_acquire) != running; }
  /// Returns the reason. Call it only once the word is set.
  [[nodiscard]] const AbortReason& reason() const noexcept;
  /// Sets the word unless it is set already; a long reason is cut. Returns whether this reason is the one
  /// that counts. Thread-safe.
  bool set(std::uint32_t process, std::uint32_t code, std::string_view text) noexcept;
};

/// Increments the flag and wakes those who sleep on it. Several threads may do so at once.
void ring(SharedFlag& bell) noexcept;
/// Sleeps until the bell is rung after it stood at `seen`, but for `milliseconds` at most.
void wait_for_ring(SharedFlag& bell, std::uint32_t seen, int milliseconds) noexcept;
/// Stores `value` and wakes host threads that sleep on the flag.
void set_flag(SharedFlag& flag, std::uint32_t value) noexcept;
/// Stores the number of a round (`RoundNumber`) and wakes host threads that sleep on the flag.
void set_round(SharedFlag& flag, std::uint64_t round) noexcept;
/// Blocks the calling thread until the flag reaches `value` or the word is set, but for `milliseconds` at
/// most. Returns whether the flag has reached it.
[[nodiscard]] bool wait_for_flag(SharedFlag& flag, std::uint32_t value, const AbortWord& abort,
                                 int milliseconds) noexcept;
/// Like `wait_for_flag`, for a round's number.
[[nodiscard]] bool wait_for_round(SharedFlag& flag, std::uint64_t round, const AbortWord& abort,
                                  int milliseconds) noexcept;

}  // namespace tutti::backend
