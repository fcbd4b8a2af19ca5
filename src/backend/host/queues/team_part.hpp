// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/memory/address_space.hpp"
#include "backend/host/queues/table_work.hpp"
#include "backend/host/queues/task.hpp"
#include "backend/team_round.hpp"
#include "os/shared_flag.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

/// Runs rounds of teams, whose windows are in device memory or in pinned memory. Messages are in inboxes
/// without lines, and flags announce them.
namespace tutti::backend::host {

/// Counts the rounds of a member's completed calls on its device, as graphs are launched repeatedly.
class RoundCount {
 public:
  /// `counters`, in memory of `block`; nullptr: the rounds are `before`.
  RoundCount(std::shared_ptr<const Allocation> block, TeamCounters* counters, std::uint64_t before)
      : block_(std::move(block)), counters_(counters), before_(before) {}
  [[nodiscard]] std::uint64_t get() const noexcept {
    return counters_ == nullptr ? before_ : std::atomic_ref(counters_->rounds).load();
  }
  /// Adds the rounds of a completed call.
  void add(std::uint32_t rounds) const noexcept {
    if (counters_ != nullptr) std::atomic_ref(counters_->rounds).fetch_add(rounds);
  }
  /// Stores the number of a completed call that counts itself.
  void set_done(std::uint32_t value) const noexcept {
    if (counters_ != nullptr) counters_->done.store(value);
  }

 private:
  std::shared_ptr<const Allocation> block_;
  TeamCounters* counters_;
  std::uint64_t before_;
};

/// Throws Ended, with the reason's code, if the team has given up.
void require_running(const AbortWord& abort);
/// Ends the team because of the exception being handled, as a failure of `process`.
void end_team(AbortWord& abort, std::uint32_t process) noexcept;

/// One member's part in one round: `put`; `take`, if it waits for others half-way; `end`, if it exposes
/// memory that others read. Each waits for conditions of its own.
///
/// It owns a copy of its description, which its tasks and their clones in graphs share and never change:
/// rounds are numbered, and slots found, when it runs.
class TeamPart {
 public:
  /// A flag and the round it must have reached, which is `round` after those of the calls before.
  struct Condition {
    SharedFlag* flag;  ///< or the first of one for each slot
    std::uint32_t round;
    bool is_of_call;  ///< it has the round's number and the call's mark, and there is one for each slot
  };
  [[nodiscard]] bool holds(const Condition& condition) const noexcept;
  /// Waits for a condition, for `milliseconds` at most. Returns true if it holds.
  [[nodiscard]] bool wait_for(const Condition& condition, int milliseconds) const noexcept;
  /// `window` is the block that contains the member's own window. Throws Error(invalid_argument) if the
  /// description contradicts itself.
  TeamPart(const TeamRound& task, std::shared_ptr<const Allocation> window, RoundCount rounds);

  [[nodiscard]] bool takes() const noexcept { return waits_ || !copies_.empty() || swaps_ || reductions_; }
  [[nodiscard]] bool exposes() const noexcept { return exposed_count_ != 0; }
  /// Returns the conditions of `put`: all have read what it overwrites.
  [[nodiscard]] std::span<const Condition> until_free() const noexcept { return until_free_; }
  /// Returns the conditions of `take`: what it reads has arrived.
  [[nodiscard]] std::span<const Condition> until_arrived() const noexcept { return until_arrived_; }
  /// Returns the conditions of `end`: all have read what was exposed.
  [[nodiscard]] std::span<const Condition> until_read() const noexcept { return until_read_; }

  /// Notes in the record, for as long as it lives, that a captured call waits.
  class NotedWait {
   public:
    explicit NotedWait(const TeamPart& part) : record_(part.is_captured_ ? part.record_ : nullptr) {
      if (record_ != nullptr) ++record_->waits;
    }
    NotedWait(const NotedWait&) = delete;
    NotedWait& operator=(const NotedWait&) = delete;
    ~NotedWait() {
      if (record_ != nullptr) --record_->waits;
    }

   private:
    TeamRecord* record_;
  };

  /// Begins the part, before `put` waits.
  void begin() const noexcept;
  void put(Translation& translation) const;
  void take(Translation& translation) const;
  void end(Translation& translation) const;

  [[nodiscard]] const std::shared_ptr<const Allocation>& window() const noexcept { return window_; }
  [[nodiscard]] AbortWord& abort() const noexcept { return abort_; }
  [[nodiscard]] std::uint32_t process() const noexcept { return process_; }

 private:
  [[nodiscard]] Condition condition(std::size_t flag, std::uint32_t round, bool is_of_call) const;
  /// Returns the flag as the calls before have left it.
  [[nodiscard]] SharedFlag& flag_of(const Condition& condition) const noexcept;
  [[nodiscard]] std::uint64_t number_of(std::uint32_t round) const noexcept {
    return rounds_.get() + round + TeamRecord::mark_in(call_);
  }
  /// Returns the offset of the slot or the inbox from that of round 0.
  [[nodiscard]] std::uint64_t shift() const;
  void tell_finished(Translation& translation) const;
  void close() const;

  TeamWindowLayout layout_;
  std::vector<std::byte*> windows_;
  std::uint32_t member_;
  std::shared_ptr<const Allocation> window_;
  std::byte* own_window_;  ///< where workers find its bytes, whose address never changes
  RoundCount rounds_;
  std::uint64_t call_;  ///< as the record has it
  bool is_captured_;
  TeamRecord* record_;
  AbortWord& abort_;
  std::uint32_t process_;

  std::uint32_t round_;
  std::uint32_t finished_;
  bool ends_call_;
  bool is_low_latency_;
  bool is_direct_;
  bool waits_;  ///< for others half-way
  FanOutWork puts_;
  std::vector<std::uint32_t> readers_;
  FanOutWork copies_;
  std::optional<SwapWork> swaps_;                   ///< or else `copies_`
  std::optional<OrderedReductionWork> reductions_;  ///< or else `copies_`
  std::uint32_t exposed_count_;
  std::vector<std::byte*> exposed_;  ///< by reader
  SharedFlag* done_;
  std::uint32_t done_value_;
  bool counts_done_;

  std::vector<Condition> until_free_;
  std::vector<Condition> until_arrived_;
  std::vector<Condition> until_read_;
};

/// Runs its work when other processes have done theirs.
class TeamTask final : public Task {
 public:
  /// `work` runs once all `conditions`, which `part` owns, hold; the part begins with this task if `begins`,
  /// otherwise it has begun before. If the task fails, the team fails: the others would take the flags of
  /// later rounds for those of this one.
  TeamTask(std::shared_ptr<const TeamPart> part, bool begins, std::span<const TeamPart::Condition> conditions,
           std::unique_ptr<Task> work)
      : Task("team_round"),
        part_(std::move(part)),
        begins_(begins),
        conditions_(conditions),
        work_(std::move(work)) {}
  /// Throws Ended, with the reason's code, if the team has given up.
  void run() override;
  [[nodiscard]] bool ready() const noexcept override;
  [[nodiscard]] std::unique_ptr<Task> clone() const override;
  void begin_launch() override { work_->begin_launch(); }

 private:
  std::shared_ptr<const TeamPart> part_;
  bool begins_;
  std::span<const TeamPart::Condition> conditions_;
  std::unique_ptr<Task> work_;
  mutable std::optional<TeamPart::NotedWait> noted_;  ///< until it runs its work
};

}  // namespace tutti::backend::host
