// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/shared_flag.hpp"
#include "transport/team/shared/rank_status.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <sys/types.h>

/// Structures by which the ranks of one host, and processes that are to become ranks, agree on who goes on.
/// Their memory outlives every rank.
namespace tutti::transport::team {

/// The stage of an agreement, packed into a word that only changes by compare-and-swap. So all ranks see the
/// same stages in the same order, whoever is killed or stopped meanwhile.
struct ShrinkStage {
  enum class Phase : std::uint8_t {
    open,    ///< ranks arrive, and newcomers
    sealed,  ///< those go on whom the proposer has noted; they make their communicator
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

/// Tells how the ranks that go on differ from those of before.
enum class RankChange : std::uint8_t {
  shrink,   ///< those that are left
  grow,     ///< all, and newcomers behind them
  replace,  ///< those that are left, and newcomers in the places of the others
};

/// One participant's part in the agreement: it writes this, and all read it. Rounds and attempts are noted
/// from 1; 0 is none.
struct alignas(64) ShrinkSlot {
  std::atomic<std::uint32_t> arrived{0};          ///< the round in which it takes part
  std::atomic<std::uint32_t> made{0};             ///< the round whose communicator it has made
  std::atomic<std::uint32_t> failed{0};           ///< the attempt that it has ended, for the reason below
  std::atomic<std::uint32_t> leaves_out_late{0};  ///< as `ShrinkOptions::late` says
  std::atomic<RankChange> change{RankChange::shrink};
  std::atomic<std::uint32_t> fewest_new{0};  ///< as `GrowOptions` say
  std::atomic<std::uint32_t> most_new{0};
  std::atomic<std::uint64_t> meeting_point{0};   ///< a digest of it
  std::atomic<std::uint32_t> holds_entrance{0};  ///< newcomers may be waiting at its process already
  /// The participant's process. For a newcomer, the rank that lets it in writes it, and it is 0 while nobody
  /// has the slot.
  std::atomic<pid_t> process{0};
  std::atomic<std::uint64_t> process_space{0};  ///< in which `process` is a number
  backend::AbortReason failure;
};

/// Locates these structures; a view, copied freely. The memory is zero-filled at first. Participants are the
/// ranks, and behind them as many newcomers as may come at a time.
struct SurvivorBoard {
  static constexpr std::size_t most_newcomers = 16;
  enum class Set : std::uint8_t { leaving, proposed };
  static constexpr std::size_t set_count = 2;

  [[nodiscard]] static constexpr std::size_t words_of_set(std::size_t participants) noexcept {
    return (participants + word_bits - 1) / word_bits;
  }
  [[nodiscard]] ShrinkStage current() const noexcept { return ShrinkStage::of(word->load()); }
  /// Changes the stage, unless it has changed already. Returns true if this rank has changed it.
  bool advance(const ShrinkStage& from, const ShrinkStage& to) const noexcept {
    std::uint64_t expected = from.word();
    return word->compare_exchange_strong(expected, to.word());
  }
  void write(std::size_t participant, Set set, const std::vector<std::size_t>& participants) const;
  [[nodiscard]] std::vector<std::size_t> read(std::size_t participant, Set set) const;
  [[nodiscard]] std::size_t ranks() const noexcept { return slots.size() - newcomers; }

  std::atomic<std::uint64_t>* word = nullptr;
  std::span<ShrinkSlot> slots;                 ///< by participant
  std::span<Mailbox> mailboxes;                ///< by participant; counts begin anew in each round
  std::span<std::atomic<std::uint64_t>> sets;  ///< by participant, then `Set`: a bit for each participant
  std::size_t newcomers = 0;                   ///< of the participants

 private:
  static constexpr std::size_t word_bits = 64;
  [[nodiscard]] std::span<std::atomic<std::uint64_t>> words(std::size_t participant, Set set) const noexcept;
};

}  // namespace tutti::transport::team
