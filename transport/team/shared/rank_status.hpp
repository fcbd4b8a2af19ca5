// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/team/shared/signature.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>

#include <sys/types.h>

/// What the ranks of a team leave for one another in the memory they share. Where they are on several hosts,
/// a `HostProxy` does the writing for those of other hosts.
namespace tutti::transport::team {

/// What the others of its host say of a rank of another host, for those who cannot hear the rank itself. The
/// numbers only grow, whoever says them.
struct Gossip {
  std::atomic<std::uint64_t> last_sequence{0};
  std::atomic<std::uint64_t> completed{0};
  std::atomic<std::int64_t> watched_at{0};
  std::atomic<std::int64_t> carried_at{0};
  std::atomic<std::int64_t> heard_at{0};  ///< when something was said of it

  template <class Number>
  static void raise(std::atomic<Number>& number, Number to) noexcept {
    for (Number seen = number.load(); seen < to && !number.compare_exchange_weak(seen, to);) continue;
  }
};

/// Which message a rank has made last, as a word: the newest of its link.
struct LastMessage {
  std::uint32_t after_call = 0;  ///< the rank's call before it, of whose number these are the lower bits
  std::uint16_t from = 0;        ///< member
  std::uint16_t to = 0;
  bool is_sent = false;  ///< by the rank, or else received

  static constexpr std::uint32_t call_mask = 0x3fffffff;
  [[nodiscard]] std::uint64_t word() const noexcept {
    return std::uint64_t{1} << 63U | std::uint64_t{is_sent} << 62U |
           std::uint64_t{after_call & call_mask} << 32U | std::uint64_t{from} << 16U | to;
  }
  /// Of a word that is not 0.
  [[nodiscard]] static LastMessage of(std::uint64_t word) noexcept {
    return {.after_call = static_cast<std::uint32_t>(word >> 32U) & call_mask,
            .from = static_cast<std::uint16_t>(word >> 16U),
            .to = static_cast<std::uint16_t>(word),
            .is_sent = (word >> 62U & 1U) != 0};
  }
};

/// How far one rank is, and its last calls, in shared memory: that rank writes it, and all read it.
struct alignas(64) RankStatus {
  static constexpr std::uint32_t joining = 0;
  static constexpr std::uint32_t active = 1;
  static constexpr std::uint32_t leaving = 2;  ///< its own work is over
  static constexpr std::uint32_t left = 3;     ///< other members' windows are closed
  static constexpr std::size_t history = 64;
  /// How many calls a rank may be ahead of another: what the statuses remember, less some for those who read
  /// them.
  static constexpr std::uint64_t furthest_ahead = history / 2;
  /// Nanoseconds of the host's monotonic clock.
  [[nodiscard]] static std::int64_t now() noexcept;

  /// A call. It is kept in words, because others may read an old entry while its rank writes a new one in its
  /// place; they tell by `sequence`. All that every call looks at shares a cache line, which comes from
  /// another processor's cache.
  class alignas(64) Entry {
   public:
    /// One writer at a time.
    void write(std::uint64_t sequence, const Signature& signature, bool is_captured,
               std::int64_t now) noexcept;
    [[nodiscard]] bool is(std::uint64_t sequence) const noexcept {
      return sequence_.load(std::memory_order_acquire) == sequence;
    }
    /// What is compared of the signature.
    [[nodiscard]] Signature common() const noexcept { return words(common_words); }
    /// The whole signature; what is behind that is another call's if it has no more than that.
    [[nodiscard]] Signature signature() const noexcept { return words(word_count); }
    [[nodiscard]] std::int64_t posted_at() const noexcept {
      return posted_at_.load(std::memory_order_relaxed);
    }
    /// Whether the call runs only when its graph is launched.
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
  std::atomic<std::int64_t> carried_at{0};  ///< when its host proxy, if there is one, was last seen to work
  /// When its watch last looked around; on other hosts, when they heard that.
  std::atomic<std::int64_t> watched_at{0};
  Gossip gossip;                               ///< on other hosts alone
  std::atomic<std::uint64_t> last_message{0};  ///< a `LastMessage`, or 0
  Entry entries[history];

  /// The call in words, as far as it is remembered; "nothing yet" for number 0.
  [[nodiscard]] std::string call_in_words(std::uint64_t sequence) const;
};

/// What the ranks that came first have made of the last calls, a word for each call; all others compare with
/// it. So two ranks that differ never both go on, whoever else is still to come.
class alignas(64) FirstCalls {
 public:
  /// Whether the call is like the one that came first; the first one is. Whoever finds that its own differs
  /// sees what the first rank has written before. Each rank of this host, and whoever hands on a call of
  /// another host, asks once per call, before this host's ranks may go further ahead of it.
  [[nodiscard]] bool agree(std::uint64_t sequence, const Signature& signature, bool is_captured) noexcept;

 private:
  // Nobody comes to a word again before all have been there: whoever makes the call of the next lap has heard
  // that all others have made one `furthest_ahead` before it, who had heard the same of one as far before
  // that.
  static_assert(RankStatus::history >= 2 * RankStatus::furthest_ahead);

  /// A digest of the call above the number of the lap around the array, which tells old words from new ones.
  std::array<std::atomic<std::uint64_t>, RankStatus::history> words_{};
};

/// Where a rank leaves bytes for others; see `TeamExchange`.
struct alignas(64) Mailbox {
  enum Kind : std::uint8_t { all, part };  ///< who exchanges: all ranks, or some of them
  static constexpr std::size_t capacity = 4096;

  std::atomic<std::uint64_t> written{0};
  std::atomic<std::uint64_t> read{0};  ///< of everybody's, by the rank that has the box
  std::array<std::byte, capacity> bytes{};
};

}  // namespace tutti::transport::team
