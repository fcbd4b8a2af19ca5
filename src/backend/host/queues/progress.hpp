// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <limits>
#include <memory>
#include <mutex>

namespace tutti::backend::host {

/// Tracks the progress of one stream: its entries are numbered from 1 and finish in that order.
///
/// It outlives its stream as long as a ticket refers to it. Thread-safe.
class Progress {
 public:
  /// Returns the number of the entry submitted last; 0 if there was none.
  [[nodiscard]] std::uint64_t submitted() const noexcept { return submitted_.load(); }
  /// Returns the number up to which all entries have finished.
  [[nodiscard]] std::uint64_t completed() const noexcept { return completed_.load(); }
  [[nodiscard]] bool reached(std::uint64_t position) const noexcept { return completed() >= position; }
  [[nodiscard]] bool idle() const noexcept { return reached(submitted()); }

  /// Numbers a new entry. One thread at a time.
  std::uint64_t submit() noexcept { return submitted_.fetch_add(1) + 1; }
  /// Notes that the oldest unfinished entry has finished. Called by the stream's worker only.
  void complete();
  /// Waits until `position` is reached; spins for `spin` before it sleeps.
  void wait(std::uint64_t position, std::chrono::nanoseconds spin);

  /// Waits until `deadline` at most. Returns true if `position` is reached.
  bool wait_until(std::uint64_t position, std::chrono::steady_clock::time_point deadline);

  /// The entry chosen last by an interleaver (see `interleaver.hpp`), the only user of this.
  std::atomic<std::uint64_t> chosen{0};
  /// The number of the last entry that may be submitted without checking how many are unfinished; used by the
  /// submitter only.
  std::atomic<std::uint64_t> room{0};

 private:
  static constexpr std::uint64_t nobody = std::numeric_limits<std::uint64_t>::max();

  std::atomic<std::uint64_t> submitted_{0};
  std::atomic<std::uint64_t> completed_{0};
  std::atomic<std::uint64_t> nearest_target_{nobody};  ///< the lowest position that somebody sleeps for
  std::mutex mutex_;
  std::condition_variable reached_;
};

/// The time at which an entry finished, for events with timing.
struct TimeStamp {
  std::chrono::steady_clock::time_point time;  ///< written before the entry completes, read only after
};

struct CapturedMark;

/// The point that one recording of an event refers to. Recording the event again makes a new ticket and
/// leaves this one as it is.
struct Ticket {
  std::shared_ptr<Progress> progress = nullptr;  ///< nullptr: never recorded, or during a capture
  std::uint64_t position = 0;
  std::shared_ptr<const TimeStamp> stamp = nullptr;        ///< nullptr: timing off
  std::shared_ptr<const CapturedMark> captured = nullptr;  ///< for a recording in a capture

  [[nodiscard]] bool recorded() const noexcept { return progress != nullptr || captured != nullptr; }
  [[nodiscard]] bool complete() const noexcept { return progress == nullptr || progress->reached(position); }
};

}  // namespace tutti::backend::host
