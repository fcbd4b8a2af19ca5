// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "os/shared_flag.hpp"
#include "stream/event_pool.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/progress/device_progress.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/shared_state.hpp"
#include "transport/team/windows/windows.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

namespace tutti::transport::team {

/// Tracks how far the calls of a team have come on all ranks, as far as this one knows.
///
/// A call by rounds is complete when its kernels have set a flag; one without rounds when its stream has
/// passed a mark. Some devices count finished calls in their own memory and are polled: a write to host
/// memory costs a kernel as much as a small message. Captured calls are not waited for, as nobody knows when
/// graphs run. Thread-safe.
class Progress {
 public:
  Progress(Runtime& runtime, const Membership& membership, const SharedState& state, Abort& abort);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() = default;

  /// Notes that a local call that is not captured has been announced, so that it is waited for.
  void await(std::uint64_t sequence) noexcept { last_awaited_.store(sequence, std::memory_order_release); }
  /// Returns the flag that a local member's rounds set; nullptr if they count in memory of its device.
  [[nodiscard]] backend::SharedFlag* flag_of_rounds(std::size_t local) const noexcept {
    return flags_of_rounds_[local];
  }
  /// Returns the record in which a local member's rounds note which calls they are in.
  [[nodiscard]] backend::TeamRecord* record_of(std::size_t local) const noexcept { return records_[local]; }
  /// Marks the call, which has no rounds, as complete for the local member once `stream` has come to this
  /// point.
  void mark(std::size_t local, std::uint64_t sequence, backend::StreamRef stream);

  // Each rank numbers its own batches of messages between two members from 1.
  /// Notes that a batch that is not captured has been announced, so that it is waited for.
  void await_batch(std::uint64_t number) noexcept { last_batch_.store(number); }
  /// Marks the local member's part of the batch as complete once `stream` has come to this point.
  void mark_batch(std::size_t local, std::uint64_t number, backend::StreamRef stream);
  /// Marks it as complete once the event has occurred, which was recorded behind all of the batch.
  void mark_batch(std::size_t local, std::uint64_t number, std::shared_ptr<const PooledEvent> event);
  /// Returns the number up to which batches are complete.
  [[nodiscard]] std::uint64_t completed_batches() const noexcept;
  [[nodiscard]] bool has_batches_under_way() const noexcept {
    return completed_batches() != last_batch_.load();
  }

  /// Starts polling devices that count in their own memory, if there are such, on a thread, until `stop`.
  void start(const Windows& windows);
  void stop() noexcept { devices_.reset(); }
  /// Polls devices all the time from now on: graphs may hold calls, and nobody knows when they run.
  void expect_replays() noexcept { expects_replays_ = true; }
  [[nodiscard]] bool expects_replays() const noexcept { return expects_replays_; }
  /// Waits until the members' last notes are known, for a second at most; local work must be over.
  void learn_last_records() noexcept;
  [[nodiscard]] bool asks_devices() const noexcept { return devices_.has_value(); }
  /// Returns the time, in nanoseconds of `RankStatus::now`, up to which the local members' progress is known:
  /// the present, except for devices that are polled. A device that has owed an answer for a second does not
  /// hold it up.
  [[nodiscard]] std::int64_t known_now() const noexcept;
  /// Processes the marks that streams have passed.
  void look_at_marks() noexcept;

  [[nodiscard]] bool has_completed(std::size_t rank, std::uint64_t sequence) const noexcept;
  /// Returns the sequence number up to which all of the rank's members have completed their calls.
  [[nodiscard]] std::uint64_t completed_by_rank(std::size_t rank) const noexcept;
  /// Returns the sequence number up to which this rank's calls are complete; captured calls count as
  /// complete.
  [[nodiscard]] std::uint64_t completed() const noexcept;
  /// Returns true if calls or batches of this rank are under way.
  [[nodiscard]] bool has_calls_under_way() const noexcept;
  /// Returns true if all local members have completed all calls. Queries streams and devices first, and waits
  /// a moment for their answers.
  [[nodiscard]] bool is_idle() noexcept;
  /// What has been announced up to some time, except captured calls.
  struct Announced {
    std::uint64_t sequence = 0;  ///< of the last call
    std::uint64_t batch = 0;
  };
  [[nodiscard]] Announced announced() const noexcept { return {last_awaited_.load(), last_batch_.load()}; }
  [[nodiscard]] bool has_completed(const Announced& announced) const noexcept {
    return completed() >= announced.sequence && completed_batches() >= announced.batch;
  }
  /// Returns the oldest call that is waited for, not complete, and still remembered.
  [[nodiscard]] std::optional<std::uint64_t> oldest_under_way() const noexcept;

 private:
  /// The point in a stream at which a call without rounds had been queued.
  struct Mark {
    PooledEvent event;
    std::uint32_t sequence = 0;
    bool is_pending = false;
  };
  /// The oldest call without rounds that is not complete, and the latest: those in between need no marks.
  struct Marks {
    Mark oldest;
    Mark latest;
  };

  /// The point in a stream at which all of a batch had been queued.
  struct BatchMark {
    std::shared_ptr<const PooledEvent> event;
    std::uint32_t number = 0;
  };

  void record(Mark& mark, std::uint64_t sequence, backend::StreamRef stream);
  /// Returns true if the mark was pending and has been passed.
  [[nodiscard]] bool is_passed(Mark& mark);
  /// Returns the sequence number of the last call that the member has completed.
  [[nodiscard]] std::uint32_t completed_by(std::size_t member) const noexcept;
  [[nodiscard]] std::uint64_t last_call() const noexcept {
    return state_.status(membership_.rank()).last_sequence.load();
  }

  Runtime& runtime_;
  const Membership& membership_;
  const SharedState state_;
  Abort& abort_;
  std::vector<backend::SharedFlag*> flags_of_rounds_;  ///< by local index
  std::vector<backend::TeamRecord*> records_;          ///< by local index
  std::atomic<std::uint64_t> last_awaited_ = 0;
  std::mutex marks_mutex_;
  std::vector<Marks> marks_;  ///< by local index; guarded by `marks_mutex_`
  std::vector<std::deque<BatchMark>>
      batch_marks_;  ///< by local index: one for each batch under way; guarded by `marks_mutex_`
  std::vector<std::atomic<std::uint32_t>> passed_batches_;  ///< by local index
  std::atomic<std::uint64_t> last_batch_ = 0;
  std::atomic<bool> expects_replays_ = false;
  std::optional<DeviceProgress> devices_;  ///< none where devices write to host memory
};

}  // namespace tutti::transport::team
