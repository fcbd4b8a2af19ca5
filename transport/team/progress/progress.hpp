// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "os/shared_flag.hpp"
#include "transport/team/progress/abort.hpp"
#include "transport/team/progress/device_progress.hpp"
#include "transport/team/shared/membership.hpp"
#include "transport/team/shared/shared_state.hpp"
#include "transport/team/windows/windows.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <vector>

namespace tutti::transport::team {

/// How far the calls of a team have come, on all ranks as far as this one knows.
///
/// A call by rounds is completed when its kernels have set a flag; one without rounds when its stream has
/// passed a mark. Some devices count finished calls in their own memory and are asked now and then: a write
/// to host memory costs a kernel as much as a small message. Captured calls are not waited for, as nobody
/// knows when graphs run. Thread-safe.
class Progress {
 public:
  Progress(Runtime& runtime, const Membership& membership, const SharedState& state, Abort& abort);
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;
  ~Progress() = default;

  /// A local call, which is not captured, has been announced: it is waited for.
  void await(std::uint64_t sequence) noexcept { last_awaited_.store(sequence, std::memory_order_release); }
  /// The flag that rounds of a local member set; nullptr: they count in memory of its device.
  [[nodiscard]] backend::SharedFlag* flag_of_rounds(std::size_t local) const noexcept {
    return flags_of_rounds_[local];
  }
  /// Where a local member's rounds note which calls they are in.
  [[nodiscard]] backend::TeamRecord* record_of(std::size_t local) const noexcept { return records_[local]; }
  /// The local member has completed the call, which had no rounds, once `stream` has come to this point.
  void mark(std::size_t local, std::uint64_t sequence, backend::StreamRef stream);

  // Batches of messages between two members are numbered by each rank for itself, from 1.
  /// A batch that is not captured has been announced: it is waited for.
  void await_batch(std::uint64_t number) noexcept { last_batch_.store(number); }
  /// The local member's part of the batch is complete once `stream` has come to this point.
  void mark_batch(std::size_t local, std::uint64_t number, backend::StreamRef stream);
  /// Up to which number batches are complete.
  [[nodiscard]] std::uint64_t completed_batches() const noexcept;
  [[nodiscard]] bool has_batches_under_way() const noexcept {
    return completed_batches() != last_batch_.load();
  }

  /// Asks devices that count in their own memory, where there are such, by a thread. Until `stop`.
  void start(const Windows& windows);
  void stop() noexcept { devices_.reset(); }
  /// From now on devices are asked all the time: graphs may hold calls, and nobody knows when they run.
  void expect_replays() noexcept { expects_replays_ = true; }
  [[nodiscard]] bool expects_replays() const noexcept { return expects_replays_; }
  /// Local work is over: waits until what its members have noted is known, for a second at most.
  void learn_last_records() noexcept;
  [[nodiscard]] bool asks_devices() const noexcept { return devices_.has_value(); }
  /// The time up to which is known what local members have done, in nanoseconds of `RankStatus::now`: the
  /// present, but for devices that are asked. One that has owed an answer for a second does not hold it up.
  [[nodiscard]] std::int64_t known_now() const noexcept;
  /// Takes note of the marks that streams have passed.
  void look_at_marks() noexcept;

  [[nodiscard]] bool has_completed(std::size_t rank, std::uint64_t sequence) const noexcept;
  /// The sequence number up to which all of the rank's members have completed their calls.
  [[nodiscard]] std::uint64_t completed_by_rank(std::size_t rank) const noexcept;
  /// Likewise of this rank; captured calls count as completed.
  [[nodiscard]] std::uint64_t completed() const noexcept;
  /// Whether calls or batches of this rank are under way.
  [[nodiscard]] bool has_calls_under_way() const noexcept;
  /// Asks streams and devices first, and waits a moment for their answers. Whether all local members have
  /// completed all calls.
  [[nodiscard]] bool is_idle() noexcept;
  /// Of the local calls that are waited for and not complete, the oldest that is still remembered.
  [[nodiscard]] std::optional<std::uint64_t> oldest_under_way() const noexcept;

 private:
  /// Where a stream was when a call without rounds had been queued.
  struct Mark {
    PooledEvent event;
    std::uint32_t sequence = 0;
    bool is_pending = false;
  };
  /// The oldest such call that is not complete yet, and the latest: those in between need no marks.
  struct Marks {
    Mark oldest;
    Mark latest;
  };

  void record(Mark& mark, std::uint64_t sequence, backend::StreamRef stream);
  /// True if the mark was pending and has been passed.
  [[nodiscard]] bool is_passed(Mark& mark);
  /// The sequence number of the last call that the member has completed.
  [[nodiscard]] std::uint32_t completed_by(std::size_t member) const noexcept;
  [[nodiscard]] std::uint64_t last_call() const noexcept {
    return state_.status(membership_.rank()).last_sequence.load();
  }

  Runtime& runtime_;
  const Membership& membership_;
  const SharedState state_;
  Abort& abort_;
  std::vector<backend::SharedFlag*> flags_of_rounds_;  ///< by local index
  std::vector<backend::TeamRecord*> records_;          ///< likewise
  std::atomic<std::uint64_t> last_awaited_ = 0;
  std::mutex marks_mutex_;
  std::vector<Marks> marks_;                                ///< by local index; guarded by `marks_mutex_`
  std::vector<std::deque<Mark>> batch_marks_;               ///< likewise: one for each batch under way
  std::vector<std::atomic<std::uint32_t>> passed_batches_;  ///< by local index
  std::atomic<std::uint64_t> last_batch_ = 0;
  std::atomic<bool> expects_replays_ = false;
  std::optional<DeviceProgress> devices_;  ///< none where devices write to host memory
};

}  // namespace tutti::transport::team
