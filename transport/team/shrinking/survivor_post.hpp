// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/team/hosts/host_proxy_messages.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/survivor_board.hpp"
#include "transport/team/shrinking/survivor_network.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace tutti::transport::team {

/// Carries the agreement of ranks on several hosts (`SurvivorAgreement`).
///
/// The ranks of one host decide, that of rank 0: they change the stage in the memory that they share, as they
/// do where there is no other host. Every other rank tells each of them what it writes into its slot, and
/// each of them tells every other rank the stage. So no single rank is needed, and there is one stage.
///
/// It lasts as long as the team, because messages may belong to a later call. Calls of one thread at a time.
class SurvivorPost {
 public:
  using Clock = std::chrono::steady_clock;

  /// `shared` is the board in the memory of this rank's host. `timeout` is for ranks that give no sign of
  /// life. The arguments must outlive it.
  SurvivorPost(const Membership& membership, const SurvivorBoard& shared, SurvivorNetwork& network,
               std::chrono::milliseconds timeout);
  SurvivorPost(const SurvivorPost&) = delete;
  SurvivorPost& operator=(const SurvivorPost&) = delete;
  ~SurvivorPost() = default;

  /// Returns true if this rank is one of those that decide.
  [[nodiscard]] bool decides() const noexcept { return membership_.this_host() == deciding_host; }
  /// Returns the board on which this rank sees the stage, and what a participant has written.
  [[nodiscard]] const SurvivorBoard& board() const noexcept { return decides() ? shared_ : own_; }
  [[nodiscard]] const SurvivorBoard& board_of(std::size_t participant) const noexcept {
    return decides() && !is_elsewhere(participant) ? shared_ : own_;
  }
  /// Returns true if the participant is a rank of another host.
  [[nodiscard]] bool is_elsewhere(std::size_t participant) const noexcept {
    return participant < membership_.rank_count() && !membership_.is_on_this_host(participant);
  }
  /// Lists the ranks that decide, in ascending order.
  [[nodiscard]] static const std::vector<std::size_t>& deciding(const Membership& membership) noexcept {
    return membership.hosts()[deciding_host].ranks;
  }

  /// Begins a call: takes in what has arrived since the last one, and tells the others that this rank is
  /// here.
  void begin();
  /// Takes in what has arrived, and tells the others what is new, or that this rank is alive.
  void carry();
  /// Tells the others what is new, and waits until it has been sent, for `longest` at most.
  void finish_sending(std::chrono::milliseconds longest);

  /// Returns true if the rank, of another host, cannot be reached any more; if `may_judge`, also if it has
  /// said nothing for the timeout since it came to this round.
  [[nodiscard]] bool is_lost(std::size_t rank, bool may_judge) const;
  /// Returns true if this rank does not decide, and those that do are all lost; if `may_judge`, also if those
  /// that were heard in this call have said nothing for the timeout.
  [[nodiscard]] bool is_undecidable(bool may_judge) const;

  /// Bytes that a survivor sends to all others, numbered through a round.
  struct MailNumber {
    std::uint32_t round = 0;
    std::uint64_t chunk = 0;
    friend auto operator<=>(const MailNumber&, const MailNumber&) = default;
  };
  void send_mail(std::size_t rank, MailNumber number, std::span<const std::byte> bytes);
  [[nodiscard]] bool has_mail(std::size_t rank, MailNumber number);
  /// Returns the mail, which must be there.
  [[nodiscard]] std::vector<std::byte> take_mail(std::size_t rank);

 private:
  static constexpr std::size_t deciding_host = 0;
  enum class Kind : std::uint32_t { slot, stage, mail, last };
  struct Mail {
    MailNumber number;
    std::vector<std::byte> bytes;
  };
  /// What this rank tells of itself, if it does not decide.
  struct SlotNews {
    std::uint32_t arrived = 0;
    std::uint32_t made = 0;
    std::uint32_t failed = 0;
    std::uint32_t leaves_out_late = 0;
    friend bool operator==(const SlotNews&, const SlotNews&) = default;
  };

  void take(const Network::Message& message);
  void take_slot(std::size_t source, MessageReader& reader);
  void take_stage(std::size_t source, MessageReader& reader);
  void take_mail(std::size_t source, MessageReader& reader);
  void tell_slot();
  void tell_stage();
  /// Returns the slot whose participant has ended the attempt before this one; nullptr if there is none.
  [[nodiscard]] const ShrinkSlot* failed_before(std::uint32_t attempt) const;
  [[nodiscard]] bool is_reachable(std::size_t rank) const {
    return network_.loss_of(static_cast<int>(rank)).empty();
  }
  [[nodiscard]] bool is_heard(std::size_t rank) const noexcept { return heard_at_[rank] > began_; }
  /// Returns true if the rank has been heard in this call, but not for the timeout.
  [[nodiscard]] bool is_silent(std::size_t rank) const {
    return is_heard(rank) && Clock::now() - heard_at_[rank] >= timeout_;
  }
  /// Returns true if it is time to say again that this rank is alive.
  [[nodiscard]] bool is_due() const { return Clock::now() - told_at_ >= timeout_ / 8; }
  void send(std::size_t rank, const MessageWriter& message);

  const Membership& membership_;
  const SurvivorBoard& shared_;
  SurvivorNetwork& network_;
  const std::chrono::milliseconds timeout_;

  // Memory of `own_`, of this rank alone.
  std::atomic<std::uint64_t> word_{0};
  std::vector<ShrinkSlot> slots_;
  std::vector<std::atomic<std::uint64_t>> sets_;
  const SurvivorBoard own_;

  std::vector<std::deque<Mail>> mail_;       ///< by rank
  Clock::time_point began_;                  ///< when the call did
  std::vector<Clock::time_point> heard_at_;  ///< by rank
  Clock::time_point told_at_;
  SlotNews told_slot_;
  std::uint64_t told_word_ = 0;
};

}  // namespace tutti::transport::team
