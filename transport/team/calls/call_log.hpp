// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/team/lateness/waiting.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/progress/local_news.hpp"
#include "transport/team/progress/progress.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/shared_state.hpp"
#include "transport/team/shared/signature.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace tutti::transport::team {

/// Numbers the calls of a team, which each rank announces, and compares them between the ranks. A rank whose
/// call differs from that of the rank that came first ends the team, with both signatures.
///
/// Thread-safe, except that `post` and `agree` are called by one thread at a time.
class CallLog {
 public:
  CallLog(const Membership& membership, const SharedState& state, Progress& progress, Waiting& waiting,
          Abort& abort, LocalNews& news);
  CallLog(const CallLog&) = delete;
  CallLog& operator=(const CallLog&) = delete;
  ~CallLog() = default;

  /// Returns the mutex that is held while a call is being made.
  [[nodiscard]] std::mutex& mutex() noexcept { return mutex_; }
  /// Announces this rank's next call and compares it with the others'. Returns its sequence number. Waits for
  /// ranks that are far behind. Throws the error that has ended the team, and Error(invalid_argument) with
  /// both signatures if a rank makes a different call.
  [[nodiscard]] std::uint64_t post(const Signature& signature, bool is_captured);
  /// Numbers the next call of a rank that has the team to itself; it is neither announced nor compared.
  [[nodiscard]] std::uint64_t number() noexcept;
  /// Ends the team if the call in the status of `rank` differs from what the first rank that this host knows
  /// of has made of it.
  void compare_with_first(std::size_t rank, const Signature& signature, bool is_captured,
                          std::uint64_t sequence) noexcept;
  /// Waits until all ranks have made the call, whose signature on this rank is `signature`. Returns their
  /// `lengths`, by member. Throws like `post`.
  [[nodiscard]] std::vector<std::uint64_t> agree(std::uint64_t sequence, const Signature& signature);

  /// Notes that the work of the call has been queued, so that it completes without the calling thread.
  void has_queued(std::uint64_t sequence) noexcept { last_queued_.store(sequence); }
  [[nodiscard]] std::uint64_t last_queued() const noexcept { return last_queued_.load(); }
  [[nodiscard]] std::uint64_t last() const noexcept { return status().last_sequence.load(); }
  /// Describes the captured call of this number, for messages, if it is one of the last ones.
  [[nodiscard]] std::string captured_in_words(std::uint64_t sequence) const;
  /// Notes that a call has been captured; such a call has no number.
  void note_capture() noexcept { has_captured_ = true; }
  /// Returns true if calls have been captured: then nobody knows when they run.
  [[nodiscard]] bool has_captured() const noexcept { return has_captured_; }

  /// Returns the number of local parts of symmetric memory that are in use: kernels of the program's may wait
  /// for other ranks while there are any. It may outlive the team.
  [[nodiscard]] const std::shared_ptr<std::atomic<int>>& symmetric_count() const noexcept {
    return symmetric_count_;
  }
  /// Returns true if devices may wait for other ranks at times that nobody knows.
  [[nodiscard]] bool may_wait_any_time() const noexcept {
    return has_captured_ || symmetric_count_->load() != 0;
  }

  /// Returns true if the team has been ended, so that its rounds wait for nothing.
  [[nodiscard]] bool is_over() const noexcept { return abort_.is_set(); }
  /// Returns true if all local members have completed all calls; queries the devices.
  [[nodiscard]] bool is_idle() noexcept { return progress_.is_idle(); }
  /// Returns a function that returns true once the calls that have been announced by now, except captured
  /// ones, are known to be complete, or wait for nothing. It does not query devices, so it may be some
  /// milliseconds late. The team must outlive it.
  [[nodiscard]] std::function<bool()> end_of_announced() const {
    return
        [this, announced = progress_.announced()] { return is_over() || progress_.has_completed(announced); };
  }
  /// Keeps calls from being made, if none are under way or captured, there is no symmetric memory and the
  /// lock is free; otherwise the result holds no lock. While it holds one, nothing of this team on the local
  /// devices waits for other ranks. Does not query devices.
  [[nodiscard]] std::unique_lock<std::mutex> hold_if_idle();
  /// Returns true if `rank` closes no memory until this rank makes another call, or has queued the one that
  /// it is making. Once calls have been captured, that holds for good; and while it has symmetric memory. The
  /// state that is read may be some milliseconds old.
  [[nodiscard]] bool closes_nothing(std::size_t rank) const noexcept;

 private:
  [[nodiscard]] RankStatus& status() const noexcept { return state_.status(membership_.rank()); }
  /// Waits until this rank may overwrite the entry that call `sequence` uses.
  void wait_for_room(std::uint64_t sequence);
  void note_captured(std::uint64_t sequence, const Signature& signature);
  /// Ends the team if `other` has made call `sequence` too and it differs from the call of `rank`,
  /// `signature`.
  void compare(std::size_t rank, const Signature& signature, std::size_t other,
               std::uint64_t sequence) noexcept;

  const Membership& membership_;
  const SharedState state_;
  Progress& progress_;
  Waiting& waiting_;
  Abort& abort_;
  LocalNews& news_;
  std::mutex mutex_;
  std::uint64_t all_have_posted_ = 0;       ///< the last answer that `post` got
  std::atomic<bool> has_captured_ = false;  ///< changed under `mutex_`
  const std::shared_ptr<std::atomic<int>> symmetric_count_ = std::make_shared<std::atomic<int>>(0);
  std::atomic<std::uint64_t> last_queued_ = 0;  ///< changed under `mutex_`
  struct Captured {
    std::uint64_t sequence = 0;
    Signature signature;
  };
  mutable std::mutex captured_mutex_;
  std::deque<Captured> captured_;  ///< the last ones; guarded by `captured_mutex_`
};

}  // namespace tutti::transport::team
