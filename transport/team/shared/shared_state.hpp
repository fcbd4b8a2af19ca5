// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/team_round.hpp"
#include "os/shared_flag.hpp"
#include "transport/team/shared/link_log.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/rank_status.hpp"
#include "transport/team/shared/registration_tables.hpp"
#include "transport/team/shared/survivor_board.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::transport::team {

/// Locates the structures that the ranks of a team share, in memory that all ranks of a host map: an abort
/// word; for each rank a reason, a status and two mailboxes; for each call the signature of the first rank
/// to make it; for each member two flags and a record; the board on which survivors agree; with links, the
/// logs of both ends of each; and registration tables, if members may read one another's memory. Every host
/// has such memory with the same layout; the parts of ranks on other hosts are mirrors.
///
/// A view: it owns nothing, and is copied freely. A team starts with zero-filled memory.
class SharedState {
 public:
  struct Shape {
    std::size_t ranks = 0;
    std::size_t members = 0;
    bool has_registrations = false;
    bool has_links = false;  ///< from every member to every other
  };

  /// Returns the size of the memory.
  [[nodiscard]] static std::size_t bytes(const Shape& shape) { return SharedState(nullptr, shape).bytes_; }
  /// `memory` has `bytes(shape)` bytes and is aligned like `backend::AbortWord`.
  SharedState(std::byte* memory, const Shape& shape);

  [[nodiscard]] const Shape& shape() const noexcept { return shape_; }
  [[nodiscard]] backend::AbortWord& abort_word() const noexcept { return *abort_word_; }
  [[nodiscard]] RankStatus& status(std::size_t rank) const noexcept { return statuses_[rank]; }
  [[nodiscard]] std::span<RankStatus> statuses() const noexcept { return statuses_; }
  [[nodiscard]] FirstCalls& first_calls() const noexcept { return *first_calls_; }
  /// Returns the sequence number of the last call by rounds that the member has completed, as far as this
  /// host knows. A device writes it. (It is separate from `passed_flag` because the host writes that.)
  [[nodiscard]] backend::SharedFlag& done_flag(std::size_t member) const noexcept { return done_[member]; }
  /// Returns the sequence number of the last call without rounds that the member has completed.
  [[nodiscard]] backend::SharedFlag& passed_flag(std::size_t member) const noexcept {
    return passed_[member];
  }
  [[nodiscard]] Mailbox& mailbox(std::size_t rank, Mailbox::Kind kind) const noexcept {
    return mailboxes_[2 * rank + kind];
  }
  /// Returns the member's notes on the calls that it carries out, as far as this host knows.
  [[nodiscard]] backend::TeamRecord& record(std::size_t member) const noexcept { return records_[member]; }
  enum class LinkEnd : std::uint8_t { sender, receiver };
  /// Returns one end's log of messages from member `from` to member `to`, if the shape has links.
  [[nodiscard]] LinkLog& link_log(std::size_t from, std::size_t to, LinkEnd end) const noexcept {
    const std::size_t side = end == LinkEnd::sender ? 0 : 1;
    return link_logs_[2 * (from * done_.size() + to) + side];
  }
  /// Returns the tables as the local rank uses them, if the shape has registrations.
  [[nodiscard]] RegistrationTables registration_tables(const Membership& membership) const;

  /// Returns the structures by which the ranks of this host agree on who goes on.
  [[nodiscard]] const SurvivorBoard& survivors() const noexcept { return survivors_; }

  /// Describes what the rank has made last: its call `last_call`, or a message after it.
  [[nodiscard]] std::string last_in_words(std::size_t rank, std::uint64_t last_call) const;
  [[nodiscard]] std::string last_in_words(std::size_t rank) const {
    return last_in_words(rank, status(rank).last_sequence.load());
  }
  /// Returns the ranks that have not made call `sequence`.
  [[nodiscard]] std::vector<std::size_t> ranks_behind(std::uint64_t sequence) const;

 private:
  template <class T>
  [[nodiscard]] std::span<T> place(std::byte* memory, std::size_t count);

  Shape shape_;
  std::size_t bytes_ = 0;
  backend::AbortWord* abort_word_ = nullptr;
  std::span<RankStatus> statuses_;
  FirstCalls* first_calls_ = nullptr;
  std::span<backend::SharedFlag> done_;
  std::span<backend::SharedFlag> passed_;
  std::span<backend::TeamRecord> records_;
  std::span<Mailbox> mailboxes_;
  SurvivorBoard survivors_;
  std::span<LinkLog> link_logs_;
  std::span<RegistrationTable> registrations_;
  std::span<RegistrationView> views_;
};

}  // namespace tutti::transport::team
