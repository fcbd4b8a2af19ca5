// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/shared_flag.hpp"

#include <array>
#include <atomic>
#include <cstdint>

namespace tutti::backend {

/// A member's notes of the calls that it carries out, by which other ranks see who has not come to the same
/// one. The member does not know whether a graph will be replayed. All zero at first; one task at a time
/// writes.
struct TeamRecord {
  static constexpr std::uint32_t history = 16;

  /// Returns a call's number as records have it: combined with the mark that its rounds carry
  /// (`RoundNumber`), which is 0 for a call that is not captured.
  [[nodiscard]] static constexpr std::uint64_t number_of(std::uint64_t call, bool is_captured) noexcept {
    return is_captured ? RoundNumber::mark_of_replays(call) | call : call;
  }
  [[nodiscard]] static constexpr std::uint64_t mark_in(std::uint64_t number) noexcept {
    return number & ~call_bits;
  }
  [[nodiscard]] static constexpr std::uint64_t call_in(std::uint64_t number) noexcept {
    return number & call_bits;
  }

  /// A call whose first task has begun.
  struct alignas(16) Call {
    std::atomic<std::uint64_t> first_round{0};  ///< among all that the team has made, from 1; 0: no call
    std::atomic<std::uint64_t> number{0};       ///< see `number_of`
  };
  /// Each call is at the index of its first round. No member comes to an index again before all have left the
  /// call that was there: they are no more rounds apart than there are slots.
  std::array<Call, history> calls{};
  /// The latest round of a captured call that has begun, modulo 2^32: it changes as a replay goes on.
  alignas(8) std::atomic<std::uint32_t> latest_round{0};
  /// The number of threads of captured calls that have waited for other members for some milliseconds, and
  /// still do. 0 as long as nobody is late, so that it costs nothing.
  std::atomic<std::uint32_t> waits{0};

  [[nodiscard]] Call& of_round(std::uint64_t first_round) noexcept { return calls[first_round % history]; }

 private:
  static constexpr std::uint64_t call_bits = (std::uint64_t{1} << RoundNumber::count_bits) - 1;
};

}  // namespace tutti::backend
