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
};
static_assert(std::atomic<std::uint32_t>::is_always_lock_free);

/// Whether a flag that holds `value` has come to `target`. Right as long as they are less than 2^31 apart.
[[nodiscard]] constexpr bool has_reached(std::uint32_t value, std::uint32_t target) noexcept {
  return static_cast<std::int32_t>(value - target) >= 0;
}

/// Where the first process that gives up says so; everyone who waits for a flag looks at it.
struct alignas(64) AbortWord {
  static constexpr std::uint32_t running = 0;
  static constexpr std::uint32_t being_written = 1;
  static constexpr std::uint32_t aborted = 2;

  std::atomic<std::uint32_t> state{running};
  std::uint32_t code = 0;  ///< an ErrorCode
  std::uint32_t length = 0;
  std::array<char, 2036> text{};

  [[nodiscard]] bool is_set() const noexcept { return state.load(std::memory_order_acquire) == aborted; }
  /// Once set.
  [[nodiscard]] std::string_view reason() const noexcept { return {text.data(), length}; }
};

/// A flag as a bell: whoever rings it counts it up, many at once if they like.
void ring(SharedFlag& bell) noexcept;
/// Sleeps until the bell has been rung after it stood at `seen`, for `milliseconds` at most.
void wait_for_ring(SharedFlag& bell, std::uint32_t seen, int milliseconds) noexcept;
/// Stores `value` and wakes host threads that sleep on the flag.
void set_flag(SharedFlag& flag, std::uint32_t value) noexcept;
/// Blocks the calling thread until the flag has come to `value`, for `milliseconds` at most, or until the
/// word is set. True if the flag has come there.
[[nodiscard]] bool wait_for_flag(SharedFlag& flag, std::uint32_t value, const AbortWord& abort,
                                 int milliseconds) noexcept;

}  // namespace tutti::backend
