// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/shared_flag.hpp"
#include "transport/team/shared/rank_status.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// Structures by which the ranks of one host agree on who survives a team. Their memory outlives every rank.
namespace tutti::transport::team {

/// The stage of an agreement, packed into a word that only changes by compare-and-swap. So all ranks see the
/// same stages in the same order, whoever is killed or stopped meanwhile.
struct ShrinkStage {
  enum class Phase : std::uint8_t {
    open,    ///< ranks arrive
    sealed,  ///< the survivors are those that the proposer has noted; they make their communicator
    made,    ///< all of them have made it: nothing changes any more
  };

  std::uint32_t attempt = 0;  ///< counts calls of all ranks together; one that fails, fails on all ranks
  std::uint32_t round = 0;    ///< counts through all attempts; another round begins when a survivor is lost
  Phase phase = Phase::open;
  std::uint32_t proposer = 0;  ///< rank

  [[nodiscard]] constexpr std::uint64_t word() const noexcept {
    return std::uint64_t{attempt & number_mask} << 44U | std::uint64_t{round & number_mask} << 24U |
           static_cast<std::uint64_t>(phase) << 22U | proposer;
  }
  [[nodiscard]] static constexpr ShrinkStage of(std::uint64_t word) noexcept {
    return {.attempt = static_cast<std::uint32_t>(word >> 44U) & number_mask,
            .round = static_cast<std::uint32_t>(word >> 24U) & number_mask,
            .phase = static_cast<Phase>(word >> 22U & 3U),
            .proposer = static_cast<std::uint32_t>(word) & proposer_mask};
  }
  friend bool operator==(const ShrinkStage&, const ShrinkStage&) = default;

  static constexpr std::uint32_t number_mask = (1U << 20U) - 1;
  static constexpr std::uint32_t proposer_mask = (1U << 22U) - 1;
};

/// One rank's part in the agreement: that rank writes it, and all read it. Rounds and attempts are noted from
/// 1; 0 is none.
struct alignas(64) ShrinkSlot {
  std::atomic<std::uint32_t> arrived{0};          ///< the round in which it takes part
  std::atomic<std::uint32_t> made{0};             ///< the round whose communicator it has made
  std::atomic<std::uint32_t> failed{0};           ///< the attempt that it has ended, for the reason below
  std::atomic<std::uint32_t> leaves_out_late{0};  ///< as `ShrinkOptions::late` says
  backend::AbortReason failure;
};

/// Locates these structures; a view, copied freely. The memory is zero-filled at first.
struct SurvivorBoard {
  enum class Set : std::uint8_t { leaving, proposed };
  static constexpr std::size_t set_count = 2;

  [[nodiscard]] static constexpr std::size_t words_of_set(std::size_t ranks) noexcept {
    return (ranks + word_bits - 1) / word_bits;
  }
  [[nodiscard]] ShrinkStage current() const noexcept { return ShrinkStage::of(word->load()); }
  /// Changes the stage, unless it has changed already. Returns true if this rank has changed it.
  bool advance(const ShrinkStage& from, const ShrinkStage& to) const noexcept {
    std::uint64_t expected = from.word();
    return word->compare_exchange_strong(expected, to.word());
  }
  void write(std::size_t rank, Set set, const std::vector<std::size_t>& ranks) const;
  [[nodiscard]] std::vector<std::size_t> read(std::size_t rank, Set set) const;

  std::atomic<std::uint64_t>* word = nullptr;
  std::span<ShrinkSlot> slots;                 ///< by rank
  std::span<Mailbox> mailboxes;                ///< by rank; counts begin anew in each round
  std::span<std::atomic<std::uint64_t>> sets;  ///< by rank, then `Set`: a bit for each rank

 private:
  static constexpr std::size_t word_bits = 64;
  [[nodiscard]] std::span<std::atomic<std::uint64_t>> words(std::size_t rank, Set set) const noexcept;
};

}  // namespace tutti::transport::team
