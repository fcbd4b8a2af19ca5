// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

/// Words by which streams are ordered. Those between processes lie in memory that all of them map, and that
/// each has registered with its backend (`Backend::register_pinned`), or in that of a device; those of one
/// process in pinned memory.
namespace tutti::backend {

/// A number that only grows, in steps of its one writer at a time; it may pass 2^32 and begin anew.
struct alignas(64) SharedFlag {
  std::atomic<std::uint32_t> value{0};
  std::atomic<std::uint32_t> sleepers{0};  ///< host threads that sleep until it changes
  /// A flag that tells of a round says here which one it is (`RoundNumber`); others leave it alone.
  std::atomic<std::uint64_t> round{0};
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);
static_assert(std::atomic<std::uint64_t>::is_always_lock_free);

/// The number of a round as flags and lines carry it: how many rounds the team has made with it, in 48 bits,
/// and above them the mark of the call that it belongs to. The mark is 0 for calls that are made at once. A
/// captured call has one of its own, so that its replays are told from those of others; the numbers of two
/// captured calls give the same mark if they are a multiple of `marks` apart. The highest bit is free for
/// other uses. On GPUs, too.
struct RoundNumber {
  static constexpr std::uint32_t count_bits = 48;
  static constexpr std::uint64_t marks = (std::uint64_t{1} << 15U) - 1;

  /// What is added to the count in replays of a captured call, which has this number among all calls.
  [[nodiscard]] static constexpr std::uint64_t mark_of_replays(std::uint64_t call) noexcept {
    return (1 + call % marks) << count_bits;
  }
  /// True if whoever has written `found` has come to the round `wanted` in the same call, or past it.
  [[nodiscard]] static constexpr bool has_come(std::uint64_t found, std::uint64_t wanted) noexcept {
    // The difference of the counts, without the marks.
    const auto ahead = static_cast<std::int64_t>((found - wanted) << (64 - count_bits));
    return found == wanted || ahead > 0;
  }
};

/// Whether a flag that holds `value` has come to `target`. Right as long as they are less than 2^31 apart.
[[nodiscard]] constexpr bool has_reached(std::uint32_t value, std::uint32_t target) noexcept {
  return static_cast<std::int32_t>(value - target) >= 0;
}

/// Why a process gives up.
struct alignas(64) AbortReason {
  std::uint32_t code = 0;  ///< an ErrorCode
  std::uint32_t length = 0;
  std::array<char, 2040> bytes{};

  [[nodiscard]] std::string_view text() const noexcept { return {bytes.data(), length}; }
};

/// Where the first process that gives up says so; everyone who waits for a flag looks at it. The reasons of
/// all processes, one each, lie behind it: a process that is killed or stopped before it has written its own
/// has not given up yet, and keeps no other from doing so.
struct alignas(64) AbortWord {
  static constexpr std::uint32_t running = 0;

  std::atomic<std::uint32_t> state{running};  ///< or the number of the process that gave up, from 1

  [[nodiscard]] bool is_set() const noexcept { return state.load(std::memory_order_acquire) != running; }
  /// The reason, once the word is set.
  [[nodiscard]] const AbortReason& reason() const noexcept;
  /// Sets the word if it is not set yet; a long reason is cut. True if this reason is the one. Thread-safe.
  bool set(std::uint32_t process, std::uint32_t code, std::string_view text) noexcept;
};

/// Counts the flag up, as a bell that many may ring at once.
void ring(SharedFlag& bell) noexcept;
/// Sleeps until the bell has been rung after it stood at `seen`, for `milliseconds` at most.
void wait_for_ring(SharedFlag& bell, std::uint32_t seen, int milliseconds) noexcept;
/// Stores `value` and wakes host threads that sleep on the flag.
void set_flag(SharedFlag& flag, std::uint32_t value) noexcept;
/// Stores the number of a round (`RoundNumber`) and wakes host threads that sleep on the flag.
void set_round(SharedFlag& flag, std::uint64_t round) noexcept;
/// Blocks the calling thread until the flag has come to `value`, for `milliseconds` at most, or until the
/// word is set. True if the flag has come there.
[[nodiscard]] bool wait_for_flag(SharedFlag& flag, std::uint32_t value, const AbortWord& abort,
                                 int milliseconds) noexcept;
/// Does the same with the number of a round.
[[nodiscard]] bool wait_for_round(SharedFlag& flag, std::uint64_t round, const AbortWord& abort,
                                  int milliseconds) noexcept;

}  // namespace tutti::backend
