// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/team/shared/signature.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include <sys/types.h>

/// Structures that the ranks of a team write for one another in shared memory. For ranks of other hosts, a
/// `HostProxy` does the writing.
namespace tutti::transport::team {

/// Reports about a rank of another host by other ranks on that host, for those who cannot hear the rank
/// itself. The numbers only grow, whoever reports them.
struct Gossip {
  std::atomic<std::uint64_t> last_sequence{0};
  std::atomic<std::uint64_t> completed{0};
  std::atomic<std::int64_t> watched_at{0};
  std::atomic<std::int64_t> carried_at{0};
  std::atomic<std::int64_t> heard_at{0};  ///< time of the last report

  template <class Number>
  static void raise(std::atomic<Number>& number, Number to) noexcept {
    for (Number seen = number.load(); seen < to && !number.compare_exchange_weak(seen, to);) continue;
  }
};

/// Identifies the last message that a rank has made, packed into a word: the newest of its link.
struct LastMessage {
  std::uint32_t after_call = 0;  ///< the lower bits of the number of the rank's last call before the message
  std::uint16_t from = 0;        ///< member
  std::uint16_t to = 0;
  bool is_sent = false;  ///< true: sent by the rank; false: received

  static constexpr std::uint32_t call_mask = 0x3fffffff;
  [[nodiscard]] std::uint64_t word() const noexcept {
    return std::uint64_t{1} << 63U | std::uint64_t{is_sent} << 62U |
           std::uint64_t{after_call & call_mask} << 32U | std::uint64_t{from} << 16U | to;
  }
  /// Unpacks a word that is not 0.
  [[nodiscard]] static LastMessage of(std::uint64_t word) noexcept {
    return {.after_call = static_cast<std::uint32_t>(word >> 32U) & call_mask,
            .from = static_cast<std::uint16_t>(word >> 16U),
            .to = static_cast<std::uint16_t>(word),
            .is_sent = (word >> 62U & 1U) != 0};
  }
};

/// One rank's progress and its last calls, in shared memory: that rank writes it, and all read it.
struct alignas(64) RankStatus {
  static constexpr std::uint32_t joining = 0;
  static constexpr std::uint32_t active = 1;
  static constexpr std::uint32_t leaving = 2;  ///< its own work is over
  static constexpr std::uint32_t left = 3;     ///< other members' windows are closed
  static constexpr std::size_t history = 64;
  /// The most calls that a rank may be ahead of another: fewer than the statuses remember, so that readers
  /// find the entries that they need.
  static constexpr std::uint64_t furthest_ahead = history / 2;
  /// Returns the time in nanoseconds of the host's monotonic clock.
  [[nodiscard]] static std::int64_t now() noexcept;

  /// A call. It consists of atomic words because others may read an old entry while its rank overwrites it;
  /// `sequence` tells them. All that every call reads shares one cache line, which comes from another
  /// processor's cache.
  class alignas(64) Entry {
   public:
    /// Writes the entry; one writer at a time.
    void write(std::uint64_t sequence, const Signature& signature, bool is_captured,
               std::int64_t now) noexcept;
    [[nodiscard]] bool is(std::uint64_t sequence) const noexcept {
      return sequence_.load(std::memory_order_acquire) == sequence;
    }
    /// Returns the compared part of the signature.
    [[nodiscard]] Signature common() const noexcept { return words(common_words); }
    /// Returns the whole signature; the part after the compared one is another call's if this call has none.
    [[nodiscard]] Signature signature() const noexcept { return words(word_count); }
    [[nodiscard]] std::int64_t posted_at() const noexcept {
      return posted_at_.load(std::memory_order_relaxed);
    }
    /// Returns true if the call runs only when its graph is launched.
    [[nodiscard]] bool is_captured() const noexcept { return is_captured_.load(std::memory_order_relaxed); }

   private:
    static constexpr std::size_t word_count = sizeof(Signature) / sizeof(std::uint64_t);
    static constexpr std::size_t common_words = offsetof(Signature, lengths) / sizeof(std::uint64_t);
    static_assert((3 + common_words) * sizeof(std::uint64_t) <= 64);

    [[nodiscard]] Signature words(std::size_t count) const noexcept;

    std::atomic<std::uint64_t> sequence_{0};
    std::atomic<std::int64_t> posted_at_{0};  ///< by `now`
    std::atomic<bool> is_captured_{false};
    std::array<std::atomic<std::uint64_t>, word_count> words_{};
  };

  std::atomic<std::uint32_t> state{joining};
  pid_t process = 0;
  std::atomic<std::uint64_t> last_sequence{0};
  std::atomic<std::int64_t> carried_at{0};  ///< when its host proxy, if any, was last seen to work
  /// The time at which its watchdog last ran; for ranks of other hosts, when this host heard of it.
  std::atomic<std::int64_t> watched_at{0};
  Gossip gossip;                               ///< only about ranks of other hosts
  std::atomic<std::uint64_t> last_message{0};  ///< a `LastMessage`, or 0
  Entry entries[history];

  /// Describes the call, as far as it is remembered; "nothing yet" for number 0.
  [[nodiscard]] std::string call_in_words(std::uint64_t sequence) const;
};

/// Holds a digest of each of the last calls, as the first rank to come has made it; all others compare with
/// it. So two ranks that differ never both go on, whoever is still to come.
class alignas(64) FirstCalls {
 public:
  /// Returns true if the call is like the one that came first; the first one is. A rank whose call differs
  /// can read what the first rank has written. Each rank of this host, and each host proxy that passes on a
  /// call of another host, asks once per call, before this host's ranks may go further ahead of it.
  [[nodiscard]] bool agree(std::uint64_t sequence, const Signature& signature, bool is_captured) noexcept;

 private:
  // No rank reaches a word again before all have been there: a rank that makes the call of the next lap knows
  // that all others have made one `furthest_ahead` before it, and those knew the same of one as far before
  // that.
  static_assert(RankStatus::history >= 2 * RankStatus::furthest_ahead);

  /// A digest of the call in the upper bits, and below it the number of the lap around the array, which tells
  /// old words from new ones.
  std::array<std::atomic<std::uint64_t>, RankStatus::history> words_{};
};

/// Buffer in which a rank leaves bytes for others; see `TeamExchange`.
struct alignas(64) Mailbox {
  enum Kind : std::uint8_t { all, part };  ///< exchanges among all ranks, or among some
  static constexpr std::size_t capacity = 4096;

  std::atomic<std::uint64_t> written{0};
  std::atomic<std::uint64_t> read{0};  ///< how many of the others' this box's rank has read
  std::array<std::byte, capacity> bytes{};
};

}  // namespace tutti::transport::team
