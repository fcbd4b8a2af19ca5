// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "transport/team/calls/call_log.hpp"
#include "transport/team/lateness/failure_detector.hpp"
#include "transport/team/lateness/flight_record.hpp"
#include "transport/team/lateness/waiting.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/progress/link_comparison.hpp"
#include "transport/team/progress/progress.hpp"
#include "transport/team/shared/link_log.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/shared_state.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

namespace tutti::transport::team {

/// A local member's side of a message.
struct LinkHalf {
  std::size_t member = 0;
  std::size_t peer = 0;  ///< a member of another rank
  bool is_sent = false;  ///< true: sent to the peer; false: received from it
  std::uint64_t elements = 0;
  DType dtype = DType::float32;
};

/// Numbers and compares the messages between members of different ranks, which each rank announces for its
/// own members, and watches over batches of them until they are complete. No host waits for another one: what
/// does not fit into the log is announced when the other side has caught up.
///
/// Thread-safe, except that `post` is called by one thread at a time.
class Links {
 public:
  Links(const Membership& membership, const SharedState& state, Progress& progress,
        const FailureDetector& failure_detector, const FlightRecord& record, Waiting& waiting, Abort& abort,
        CallLog& calls);
  Links(const Links&) = delete;
  Links& operator=(const Links&) = delete;
  ~Links() = default;

  /// Announces this rank's halves of a batch. Returns the number of the batch, which is waited for until
  /// `Progress::mark_batch` has it; 0 if it is captured. Throws the error that has ended the team:
  /// Error(invalid_argument) if the other side of a message differs.
  [[nodiscard]] std::uint64_t post(const std::vector<LinkHalf>& halves, bool is_captured);
  /// Returns true if a batch is under way that this rank has announced before call `sequence`.
  [[nodiscard]] bool is_waiting_before(std::uint64_t sequence);
  /// Announces messages that did not fit into the log before, as far as they fit now.
  void announce();
  /// Announces such messages, warns of ranks that are late with their halves, and ends the team if they are
  /// too late or have left. If `may_judge` is false, no rank is taken to be late.
  void look_around(bool may_judge);

 private:
  struct Message {
    LinkHalf half;
    std::uint64_t number = 0;  ///< number on its link
    bool is_captured = false;
  };
  struct Batch {
    std::uint64_t number = 0;
    std::uint64_t after_call = 0;  ///< the last numbered call of this rank before the batch
    std::int64_t posted_at = 0;
    std::chrono::milliseconds patience{};
    std::vector<Message> messages{};
  };
  /// This rank's side of a link that it has used.
  struct Side {
    std::uint64_t made = 0;           ///< number of messages, announced or not
    std::deque<Message> unannounced;  ///< the last of them
  };

  [[nodiscard]] std::size_t index(const LinkHalf& half) const noexcept;
  [[nodiscard]] LinkLog& own_log(const LinkHalf& half) const noexcept;
  [[nodiscard]] LinkLog& peer_log(const LinkHalf& half) const noexcept;
  [[nodiscard]] std::size_t peer_rank(const LinkHalf& half) const {
    return membership_.rank_of_member()[half.peer];
  }
  /// Publishes this rank's last message for the other ranks' messages.
  void note_last(const LinkHalf& half, std::uint64_t after_call) const noexcept;
  /// Posts unannounced messages as far as the log has room.
  void announce(Side& side);
  [[nodiscard]] static LinkPlace place_of(const Message& message) noexcept;
  [[nodiscard]] static std::string in_words(const Message& message) {
    return team::in_words(place_of(message));
  }
  [[nodiscard]] bool is_missing(const Message& message) const noexcept {
    return peer_log(message.half).made() < message.number;
  }
  /// Warns of the oldest batch, or ends the team for it, when it is time.
  void judge(const Batch& batch, std::chrono::nanoseconds lasted);
  /// Returns true if the rank has left or its process is gone; asks the system.
  [[nodiscard]] bool has_left(std::size_t rank) const noexcept;
  /// Returns, by rank, whether a partner in a new batch is known to have left without its half. The system is
  /// not asked about ranks from which the batch still receives something: the watchdog asks about them.
  [[nodiscard]] std::vector<bool> known_to_have_left(const Batch& batch) const;
  /// Returns, by rank, whether it has left.
  [[nodiscard]] std::vector<bool> ranks_that_left() const;
  /// Ends the team if a partner in any batch under way has left without its half.
  void look_for_ranks_that_left();
  /// Ends the team if a partner in this batch has left without its half; `left` says which ranks have left.
  void look_for_ranks_that_left(const Batch& batch, const std::vector<bool>& left);
  void warn(const Batch& batch, std::chrono::nanoseconds lasted, const std::string& late);
  /// Describes the late ranks: those that have not made their halves, or else all others. Stores their
  /// numbers in `ranks`.
  [[nodiscard]] std::string who_is_late(const Batch& batch, std::vector<std::size_t>& ranks) const;

  const Membership& membership_;
  const SharedState state_;
  Progress& progress_;
  const FailureDetector& failure_detector_;
  const FlightRecord& record_;
  Waiting& waiting_;
  Abort& abort_;
  CallLog& calls_;
  std::mutex mutex_;         ///< guards the members below
  std::vector<Side> sides_;  ///< by `index`
  std::deque<Batch> under_way_;
  std::uint64_t last_batch_ = 0;
  /// Time at which the last batch was seen to be complete, or a call that precedes the oldest batch under
  /// way.
  std::int64_t begins_at_ = 0;
  /// Warnings of the oldest batch: when the next is due, and whether there has been one.
  std::chrono::nanoseconds next_warning_{};
  bool has_warned_ = false;
};

}  // namespace tutti::transport::team
