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
  std::size_t peer = 0;  ///< of another rank
  bool is_sent = false;  ///< to the peer, or else received from it
  std::uint64_t elements = 0;
  DType dtype = DType::float32;
};

/// The messages between members of different ranks, as each rank announces its own: those from one member to
/// another are numbered, compared between the two, and, in batches, watched over until they are complete. No
/// host waits for another one: what the log has no room for is announced when the other side has come closer.
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

  /// Announces the halves of a batch that this rank makes. Returns the number of the batch, which is waited
  /// for until `Progress::mark_batch` has it; of one that is captured, 0. Throws what has ended the team:
  /// Error(invalid_argument) if the other side of a message makes another one.
  [[nodiscard]] std::uint64_t post(const std::vector<LinkHalf>& halves, bool is_captured);
  /// Whether a batch is under way that this rank has announced before call `sequence`.
  [[nodiscard]] bool is_waiting_before(std::uint64_t sequence);
  /// Announces what there has been no room for, as far as there is by now.
  void announce();
  /// Likewise, warns of ranks that are late with their halves, and ends the
  /// team if they are too late, or have left. `may_judge`: others may be late.
  void look_around(bool may_judge);

 private:
  struct Message {
    LinkHalf half;
    std::uint64_t number = 0;  ///< on its link
    bool is_captured = false;
  };
  struct Batch {
    std::uint64_t number = 0;
    std::uint64_t after_call = 0;  ///< of this rank's numbered calls, the last before it
    std::int64_t posted_at = 0;
    std::chrono::milliseconds patience{};
    std::vector<Message> messages{};
  };
  /// This rank's side of a link that it has used.
  struct Side {
    std::uint64_t made = 0;           ///< messages, announced or not
    std::deque<Message> unannounced;  ///< the last of them
  };

  [[nodiscard]] std::size_t index(const LinkHalf& half) const noexcept;
  [[nodiscard]] LinkLog& own_log(const LinkHalf& half) const noexcept;
  [[nodiscard]] LinkLog& peer_log(const LinkHalf& half) const noexcept;
  [[nodiscard]] std::size_t peer_rank(const LinkHalf& half) const {
    return membership_.rank_of_member()[half.peer];
  }
  /// Has the other ranks know what this one has made last.
  void note_last(const LinkHalf& half, std::uint64_t after_call) const noexcept;
  /// Posts what is unannounced, as far as there is room.
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
  /// Whether the rank has left, or its process is gone, for which this asks the system.
  [[nodiscard]] bool has_left(std::size_t rank) const noexcept;
  /// Whether each rank has left, by rank.
  [[nodiscard]] std::vector<bool> ranks_that_left() const;
  /// Looks for partners of any batch under way that have left without their halves.
  void look_for_ranks_that_left();
  /// Likewise, of one batch. `known`: who has left, by rank, if it is known already.
  void look_for_ranks_that_left(const Batch& batch, const std::vector<bool>* known);
  void warn(const Batch& batch, std::chrono::nanoseconds lasted, const std::string& late);
  /// Who is late with it, in words, of which `ranks` says the numbers: those who have not made their halves,
  /// or else all others.
  [[nodiscard]] std::string who_is_late(const Batch& batch, std::vector<std::size_t>& ranks) const;

  const Membership& membership_;
  const SharedState state_;
  Progress& progress_;
  const FailureDetector& failure_detector_;
  const FlightRecord& record_;
  Waiting& waiting_;
  Abort& abort_;
  CallLog& calls_;
  std::mutex mutex_;         ///< guards all that follows
  std::vector<Side> sides_;  ///< by `index`
  std::deque<Batch> under_way_;
  std::uint64_t last_batch_ = 0;
  /// When the last batch was seen to be complete, or a call that is before the oldest one under way.
  std::int64_t begins_at_ = 0;
  /// Of the oldest batch: when it is told of next, and whether it has been.
  std::chrono::nanoseconds next_warning_{};
  bool has_warned_ = false;
};

}  // namespace tutti::transport::team
