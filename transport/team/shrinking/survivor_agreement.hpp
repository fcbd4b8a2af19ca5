// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/thread.hpp"
#include "transport/team/lateness/suspension_detector.hpp"
#include "transport/team/shared/peer_process.hpp"
#include "transport/team/shared/survivor_board.hpp"
#include "transport/team/shrinking/entrance.hpp"
#include "transport/team/shrinking/survivor_messenger.hpp"
#include "tutti/error.hpp"
#include "tutti/exchange.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tutti::transport::team {

/// Says what a rank wants of the agreement; the same on all ranks, except for the time.
struct ShrinkWish {
  std::vector<std::size_t> leaving;     ///< ranks that do not go on, in ascending order
  bool leaves_out_late = false;         ///< goes on without ranks that are late, instead of failing
  std::chrono::milliseconds timeout{};  ///< longest wait for ranks that are alive, and for newcomers
  RankChange change = RankChange::shrink;
  std::size_t fewest_new = 0;  ///< newcomers that are enough when the time is over, if ranks grow
  std::size_t most_new = 0;    ///< newcomers that are not waited beyond, if ranks grow
  /// Longest wait for newcomers alone, if ranks grow and it is another than `timeout`.
  std::optional<std::chrono::milliseconds> newcomer_timeout{};
  std::uint64_t meeting_point = 0;  ///< digest of where newcomers come
  std::string place{};              ///< where that is, in words
};

/// Tells the agreement of the ranks' team, and acts on it.
struct ShrinkingTeam {
  /// Returns true if the rank's process has ended, or it has left, or, if `may_judge`, gives no sign of life.
  std::function<bool(std::size_t rank, bool may_judge)> is_lost;
  /// Ends the team for this reason, if it still runs.
  std::function<void(const std::string& reason)> end;
  /// Lets other work of this rank go on. Called again and again while it waits.
  std::function<void()> wait_elsewhere;
  std::chrono::milliseconds timeout{};  ///< for ranks that give no sign of life
  /// Carries the agreement between hosts, once it has begun the call; nullptr if there is one host.
  SurvivorMessenger* messenger = nullptr;
  /// Makes a network of these ranks, in order, if there are several hosts. The exchange is among them.
  std::function<std::unique_ptr<Network>(std::span<const int> ranks, Exchange& exchange)> network = {};
  /// Opens the entrance for newcomers. Throws while it cannot.
  std::function<std::unique_ptr<Entrance>()> open_entrance = {};
  bool holds_entrance = false;  ///< newcomers may be waiting at this process already
  /// Returns a newcomer's ticket, still without its number and without what the wish says.
  std::function<Ticket()> ticket = {};
};

/// Names the participants that go on by their place in the new communicator. Ranks keep their order;
/// newcomers take the numbers of those who do not go on, and then those behind all. `going_on` is in
/// ascending order.
[[nodiscard]] std::vector<std::size_t> in_new_order(const std::vector<std::size_t>& going_on,
                                                    std::size_t ranks);

class SurvivorAgreement;

/// Lets newcomers into an agreement, which it is a part of: opens an entrance and watches it, as long as this
/// rank is the one that does: of those that have arrived, the first where newcomers may be waiting already,
/// else the first.
class NewcomerAdmission {
 public:
  explicit NewcomerAdmission(SurvivorAgreement& agreement) : agreement_(agreement) {}

  /// Lets newcomers in, if this is the rank that does. Returns those that go on, once they are enough.
  [[nodiscard]] std::optional<std::vector<std::size_t>> admit(const ShrinkStage& open,
                                                              const std::vector<std::size_t>& arrived,
                                                              bool may_judge);
  /// Closes the entrance, if it is open.
  void close() noexcept { entrance_.reset(); }

 private:
  /// Returns which of those that have arrived lets newcomers in.
  [[nodiscard]] std::size_t keeper_among(const std::vector<std::size_t>& arrived) const;
  /// Lets them in. Returns those that go on once they are `most`, or at least `fewest` when the time is over;
  /// ends the attempt if they are fewer then.
  [[nodiscard]] std::optional<std::vector<std::size_t>> let_in(const ShrinkStage& open, std::size_t fewest,
                                                               std::size_t most, bool may_judge);
  /// Lets in who has come. Returns who has come besides, in words. Throws if it cannot open the entrance.
  [[nodiscard]] std::string watch_entrance();
  [[nodiscard]] std::vector<std::size_t> newcomers_in(const ShrinkStage& open);
  /// Returns true once those who grow need not wait for newcomers any longer, except for those that have a
  /// ticket and have not arrived.
  [[nodiscard]] bool has_waited_enough(const ShrinkStage& open);
  /// Returns a ticket for a free slot, if there is one.
  [[nodiscard]] std::optional<Ticket> ticket_for(const Applicant& applicant);

  SurvivorAgreement& agreement_;
  std::unique_ptr<Entrance> entrance_;
  std::chrono::steady_clock::time_point opened_;  ///< when the entrance was
};

/// Lets the ranks of a team agree on who goes on, through the memory that they share, and form a team of
/// these. Neither a rank that is lost nor an exchange is needed. If there are several hosts, the ranks of one
/// decide (`SurvivorMessenger`).
///
/// It is a non-blocking atomic commitment (Skeen 1981) in shared memory, where compare-and-swap decides: no
/// rank coordinates, so no loss blocks the others. In a round, ranks arrive; when nobody is missing any more,
/// any of them proposes those who have arrived and seals the proposal. These make their communicator, and
/// when all have it, any of them commits the round. If one is lost before that, any of them opens the next
/// round instead. Of these two steps one succeeds, so either all survivors have the communicator or none has.
///
/// If newcomers are wanted, the first of the ranks that have arrived opens an entrance, and seals once enough
/// of them have arrived, too. From then on they take part like ranks: they map the same memory.
class SurvivorAgreement {
 public:
  /// Takes part as this rank, `self`. The wish must outlive it.
  SurvivorAgreement(const SurvivorBoard& board, std::size_t self, ShrinkingTeam team, const ShrinkWish& wish);
  /// Takes part as a newcomer, in one attempt.
  SurvivorAgreement(const SurvivorBoard& board, std::size_t self, ShrinkingTeam team, const ShrinkWish& wish,
                    std::uint32_t attempt);
  SurvivorAgreement(const SurvivorAgreement&) = delete;
  SurvivorAgreement& operator=(const SurvivorAgreement&) = delete;
  ~SurvivorAgreement() = default;

  /// Agrees, and calls `make` with an exchange among the survivors, in their old order, to make their
  /// communicator; what it throws counts. Once it has returned, and if a survivor is lost before all have
  /// made theirs, calls `discard`, and then `make` again. Returns when all have it. Throws the same error on
  /// all ranks that take part if no communicator can be made; and Error(timeout) on a rank that the others
  /// have gone on without.
  void run(const std::function<void(Exchange&)>& make, const std::function<void()>& discard);

  /// Thrown by `run` on a newcomer that the others have gone on without, as enough had come.
  struct NotNeeded {};

 private:
  friend class NewcomerAdmission;
  friend class SurvivorExchange;
  using Clock = std::chrono::steady_clock;

  /// Arrives, and waits until survivors, this rank among them, are sealed. Returns the stage.
  [[nodiscard]] ShrinkStage seal();
  void arrive(const ShrinkStage& open);
  /// Proposes those who have arrived, if nobody is missing or the time is over.
  void propose(const ShrinkStage& open, bool may_judge);
  /// Returns false, and ends the attempt, if a rank that has arrived wants something else.
  [[nodiscard]] bool are_alike(const ShrinkStage& open, const std::vector<std::size_t>& arrived);
  /// Says how the wish of a rank differs from this rank's; empty if it does not.
  [[nodiscard]] std::string difference_from(std::size_t rank) const;
  /// Ends the attempt if a rank of another host has, as these cannot.
  void end_for_others();
  /// Throws if ranks of another host should decide and are lost, or do not decide in time.
  void require_decision();
  /// Takes back that this rank has come, as it gives up, perhaps alone.
  void withdraw() const noexcept;
  /// Has the ranks of other hosts hear of the outcome, also if this process ends next.
  void tell_outcome() noexcept;
  /// Waits, as a newcomer, for enough others. Throws if there is no rank left that could seal.
  void wait_to_be_let_in(bool may_judge);
  /// Waits for the outcome of a round without this rank.
  void wait_without(const ShrinkStage& sealed, bool may_judge);
  /// Makes the communicator of the sealed survivors. Returns false if there must be another round.
  [[nodiscard]] bool make_together(const ShrinkStage& sealed, const std::function<void(Exchange&)>& make);
  [[nodiscard]] bool commit(const ShrinkStage& sealed, const std::vector<std::size_t>& survivors);
  /// Handles an exception in the making: opens another round if a survivor is lost, or else ends the attempt.
  void give_up_making(const ShrinkStage& sealed, const std::vector<std::size_t>& survivors,
                      const backend::Escaped& escaped);
  /// Waits until `missing` returns no rank, in a sealed round. Returns false if the round is over; it is when
  /// one of the missing is lost. Throws Error(timeout) if one is late, or opens a round without it.
  [[nodiscard]] bool wait_in(const ShrinkStage& sealed,
                             const std::function<std::vector<std::size_t>()>& missing);

  /// Returns the stage. Throws the reason if the attempt has failed.
  [[nodiscard]] ShrinkStage current();
  [[nodiscard]] bool is_current(const ShrinkStage& stage) const noexcept { return board_.current() == stage; }
  /// Begins to count the time of a phase: ranks arrive, or make their communicator.
  void begin_to_wait() { began_ = Clock::now(); }
  void pause();
  [[nodiscard]] bool is_time_over(int times = 1) const {
    return Clock::now() - began_ > times * wish_.timeout;
  }
  /// Changes the stage, if this rank is one of those that decide.
  void advance(const ShrinkStage& from, const ShrinkStage& to) const;
  void open_another_round(const ShrinkStage& from) const;
  /// Ends the attempt on all ranks.
  void fail(const ShrinkStage& stage, ErrorCode code, std::string_view reason);
  [[nodiscard]] Error failure() const;
  [[noreturn]] void leave(const ShrinkStage& stage) const;

  [[nodiscard]] std::vector<std::size_t> survivors_of(const ShrinkStage& stage) const {
    return in_new_order(board_.read(stage.proposer, SurvivorBoard::Set::proposed), board_.ranks());
  }
  [[nodiscard]] bool is_newcomer(std::size_t participant) const noexcept {
    return participant >= board_.ranks();
  }
  [[nodiscard]] bool is_among(const std::vector<std::size_t>& ranks) const;
  [[nodiscard]] bool decides() const noexcept {
    return team_.messenger == nullptr || team_.messenger->decides();
  }
  [[nodiscard]] const SurvivorBoard& board_of(std::size_t participant) const noexcept {
    return team_.messenger == nullptr ? board_ : team_.messenger->board_of(participant);
  }
  [[nodiscard]] ShrinkSlot& slot_of(std::size_t participant) const noexcept {
    return board_of(participant).slots[participant];
  }
  [[nodiscard]] bool has_arrived(std::size_t participant, const ShrinkStage& stage) const noexcept {
    return slot_of(participant).arrived.load() == stage.round + 1;
  }
  [[nodiscard]] bool is_lost(std::size_t participant, bool may_judge);
  /// Returns true if the process that its slot names has ended, or there is none.
  [[nodiscard]] bool is_process_gone(std::size_t participant);
  /// Returns true if the participant of a sealed round has given up, as far as a rank that decides knows.
  [[nodiscard]] bool has_withdrawn(std::size_t participant) const noexcept {
    return team_.messenger != nullptr && decides() && slot_of(participant).arrived.load() == 0;
  }
  /// Returns true if any participant of a sealed round is lost, or has given up.
  [[nodiscard]] bool is_any_lost(const std::vector<std::size_t>& participants, bool may_judge);
  /// Lists ranks by number, and newcomers by process.
  [[nodiscard]] std::string in_words(const std::vector<std::size_t>& participants) const;
  [[nodiscard]] std::string late_in_words(const std::vector<std::size_t>& missing) const;
  [[nodiscard]] const char* function() const noexcept;

  const SurvivorBoard board_;
  const std::size_t self_;
  const ShrinkingTeam team_;
  const ShrinkWish& wish_;
  /// Goes on as attempts fail in which nobody who decides has seen this rank.
  std::uint32_t attempt_;
  std::optional<std::uint32_t> first_round_;  ///< of the attempt, from 1, once this rank has come
  std::vector<bool> is_given_up_;  ///< by participant: it was late in an earlier round of the attempt
  /// The process of a newcomer or, on a newcomer, of a rank.
  struct Watched {
    pid_t number = 0;
    PeerProcess process;
  };
  std::vector<Watched> watched_;  ///< by participant
  NewcomerAdmission admission_{*this};
  Clock::time_point began_;
  SuspensionDetector pauses_;
};

/// The exchange among the survivors of a sealed round. It fails when the round is over.
class SurvivorExchange final : public Exchange {
 public:
  SurvivorExchange(SurvivorAgreement& agreement, const ShrinkStage& sealed,
                   const std::vector<std::size_t>& survivors);

  [[nodiscard]] int rank() const override { return position_; }
  [[nodiscard]] int size() const override { return static_cast<int>(survivors_.size()); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override;
  [[nodiscard]] std::unique_ptr<Network> network() override;

 private:
  /// Exchanges a chunk among survivors on several hosts.
  void mail_chunk(std::span<const std::byte> mine, std::span<std::byte> all, std::size_t offset,
                  std::size_t stride);
  /// Waits until all survivors' boxes have been written, or read, `chunks` times in this round.
  void wait_for_all(std::atomic<std::uint64_t> Mailbox::*count, std::uint64_t chunks);
  void exchange_chunk(std::span<const std::byte> mine, std::span<std::byte> all, std::size_t offset,
                      std::size_t stride);
  /// Returns how a box counts so many chunks in this round.
  [[nodiscard]] std::uint64_t counted(std::uint64_t chunks) const noexcept {
    return std::uint64_t{sealed_.round} << 32U | chunks;
  }

  SurvivorAgreement& agreement_;
  const ShrinkStage sealed_;
  const std::vector<std::size_t>& survivors_;
  const int position_;
  std::uint64_t chunks_ = 0;
};

}  // namespace tutti::transport::team
