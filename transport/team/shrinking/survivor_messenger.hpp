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
#include <span>
#include <vector>

namespace tutti::transport::team {

/// Carries the agreement of ranks on several hosts (`SurvivorAgreement`).
///
/// The ranks of one host decide, that of rank 0: they change the stage in the memory that they share, as they
/// do where there is no other host. Every other rank tells each of them what it writes into its slot, and
/// each of them tells every other rank the stage. So no single rank is needed, and there is one stage.
///
/// It lasts as long as the team, because messages may belong to a later call. Calls of one thread at a time.
class SurvivorMessenger {
 public:
  /// `shared` is the board in the memory of this rank's host. The arguments must outlive it.
  SurvivorMessenger(const Membership& membership, const SurvivorBoard& shared, SurvivorNetwork& network);
  SurvivorMessenger(const SurvivorMessenger&) = delete;
  SurvivorMessenger& operator=(const SurvivorMessenger&) = delete;
  ~SurvivorMessenger() = default;

  /// Returns true if this rank is one of those that decide.
  [[nodiscard]] bool decides() const noexcept { return membership_.this_host() == deciding_host; }
  /// Lists the ranks that decide, in ascending order.
  [[nodiscard]] static const std::vector<std::size_t>& deciding(const Membership& membership) noexcept {
    return membership.hosts()[deciding_host].ranks;
  }
  [[nodiscard]] bool is_deciding(std::size_t participant) const noexcept {
    return participant < membership_.rank_count() && membership_.host_of(participant) == deciding_host;
  }
  /// Returns the board on which this rank sees the stage.
  [[nodiscard]] const SurvivorBoard& board() const noexcept { return decides() ? shared_ : own_; }
  /// Returns the board on which this rank sees what a participant has written.
  [[nodiscard]] const SurvivorBoard& board_of(std::size_t participant) const noexcept {
    return decides() && !is_elsewhere(participant) ? shared_ : own_;
  }
  /// Returns true if the participant is a rank of another host.
  [[nodiscard]] bool is_elsewhere(std::size_t participant) const noexcept {
    return participant < membership_.rank_count() && !membership_.is_on_this_host(participant);
  }

  /// Begins a call: takes in what has arrived since the last one.
  void begin();
  /// Takes in what has arrived, and tells the others what is new.
  void carry();
  /// Carries, and waits until what was told has been sent, for `longest` at most.
  void finish_sending(std::chrono::milliseconds longest);

  /// Returns true if nothing more can come from the rank.
  [[nodiscard]] bool is_lost(std::size_t rank) const {
    return !network_.loss_of(static_cast<int>(rank)).empty();
  }
  /// Returns true if this rank does not decide, and of those that do, all that do not leave are lost.
  [[nodiscard]] bool is_undecidable(const std::vector<std::size_t>& leaving) const;
  /// Returns the last round, from 1, to which a rank that decides has seen this one come, as it does not.
  [[nodiscard]] std::uint32_t seen_round() const noexcept { return seen_round_; }

  /// Numbers the bytes that a survivor sends to all others.
  struct MailNumber {
    std::uint32_t round = 0;
    std::uint64_t chunk = 0;
    friend auto operator<=>(const MailNumber&, const MailNumber&) = default;
  };
  void send_mail(std::size_t rank, MailNumber number, std::span<const std::byte> bytes);
  /// Returns true if the mail is there. Drops the rank's earlier mail.
  [[nodiscard]] bool has_mail(std::size_t rank, MailNumber number);
  /// Returns the rank's first mail, which must be there.
  [[nodiscard]] std::vector<std::byte> take_mail(std::size_t rank);

 private:
  static constexpr std::size_t deciding_host = 0;
  enum class Kind : std::uint32_t { slot, stage, mail, last };
  struct Mail {
    MailNumber number;
    std::vector<std::byte> bytes;
  };

  void take(const Network::Message& message);
  void take_slot(std::size_t source, MessageReader& reader);
  void take_stage(std::size_t source, MessageReader& reader);
  void take_mail(std::size_t source, MessageReader& reader);
  /// Tells the ranks that decide what this one has written, if that is new.
  void tell_slot();
  /// Tells the ranks of other hosts the stage, and to which round each has been seen to come, if that is new.
  void tell_stage();
  /// Returns why the attempt before this one was ended; empty if that is not known here.
  [[nodiscard]] backend::AbortReason failure_before(std::uint32_t attempt) const;
  void send(std::size_t rank, const std::vector<std::byte>& message);

  const Membership& membership_;
  const SurvivorBoard& shared_;
  SurvivorNetwork& network_;

  // Memory of `own_`, of this rank alone.
  std::atomic<std::uint64_t> word_{0};
  std::vector<ShrinkSlot> slots_;
  std::vector<std::atomic<std::uint64_t>> sets_;
  const SurvivorBoard own_;

  std::vector<std::deque<Mail>> mail_;  ///< by rank
  std::vector<std::byte> told_;         ///< what this rank has told last
  std::uint32_t seen_round_ = 0;
};

}  // namespace tutti::transport::team
