// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/queues/stream_worker.hpp"

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <utility>

namespace tutti::backend::host {

/// Runs the entries of all streams one at a time, except those that take long, in an order drawn from a seed.
///
/// While on, entries do not go to their worker but are held here. Two things are kept apart:
///  - The *order* is decided from logical state only: which entries were submitted, and which were chosen
///    before. At every submission the generator draws how many entries to choose now (often none, which is
///    the delay), and for each draws a stream among those whose oldest entry waits for nothing that has not
///    been chosen yet. A host that blocks makes choices until what it waits for has been chosen. No clock and
///    no thread takes part, so a program that submits from one thread sees the same order each time. (An
///    entry that waits for flags may be drawn once they are set. Chosen entries have run before the next
///    choice, so this is repeatable, too, unless another process sets the flags.)
///  - The *execution* follows that order on the streams' own workers: the next entry starts when the last one
///    ends. The host goes on only when all chosen entries have finished, so that premature reads of the host
///    are reproduced as well. Neither wait is forever, because a chosen entry may itself wait for something
///    that the host does next, or for another stream's entry: an entry that takes long is overdue, and is no
///    longer waited for. A host that only submits or queries waits a small part of that time, and once per
///    entry, so as not to delay others.
///
/// A host that waits for something else than the backend's work calls `wait_elsewhere` repeatedly, and each
/// time an entry may be chosen. A host that does not call it makes no choices; if it submits nothing for a
/// while, entries are chosen for it, one after another, until it comes back. Only in these cases, and where
/// entries take long, does time decide something.
class Interleaver final : public StreamWorker::Observer {
 public:
  Interleaver() = default;
  Interleaver(const Interleaver&) = delete;
  Interleaver& operator=(const Interleaver&) = delete;
  ~Interleaver();

  [[nodiscard]] bool active() const noexcept { return active_.load(std::memory_order_relaxed); }
  [[nodiscard]] std::optional<std::uint64_t> seed() const;
  /// Sets the seed; all streams must be idle.
  void set_seed(std::optional<std::uint64_t> seed);

  /// Numbers and queues an entry, on the stream itself if no seed is set. Returns its position.
  std::uint64_t submit(StreamWorker& worker, std::unique_ptr<Task> task);
  /// Chooses entries until `position` has been chosen. Returns at once if no seed is set.
  void choose_until(const std::shared_ptr<Progress>& progress, std::uint64_t position);
  /// Lets time pass when the host queries progress, so that repeated queries come to an end.
  void pass_time();
  /// Chooses an entry if the last one has run: the host waits for something else, and will call again soon.
  /// Does not block.
  void wait_elsewhere() noexcept;

  void on_finished(const StreamWorker& worker) noexcept override;

 private:
  struct Entry {
    std::unique_ptr<Task> task;
    std::uint64_t position = 0;
  };
  struct Lane {
    StreamWorker* worker = nullptr;
    std::deque<Entry> held;  ///< never empty
  };
  struct Choice {
    StreamWorker* worker = nullptr;
    std::unique_ptr<Task> task;
  };
  /// Keyed by (device, stream id): choices must not depend on addresses.
  using Lanes = std::map<std::pair<int, int>, Lane>;

  // `mutex_` must be held for these.
  void pass(std::uint64_t draws);
  bool choose_one();
  void choose_head(Lanes::iterator lane);
  void start_next();
  /// Ends the turn of an entry that is overdue.
  void end_turn();
  [[nodiscard]] bool settled() const { return agenda_.empty() && in_turn_ == nullptr; }
  /// Waits until all chosen entries have run or are overdue.
  void settle(std::unique_lock<std::mutex>& lock);
  /// Waits for the same for a short time, for a host that has something else to do.
  void settle_briefly(std::unique_lock<std::mutex>& lock);
  bool choose_if_settled();

  void watch_for_silence();

  std::atomic<bool> active_{false};
  mutable std::mutex mutex_;
  std::optional<std::uint64_t> seed_;
  std::mt19937_64 generator_;
  Lanes lanes_;
  std::deque<Choice> agenda_;              ///< chosen, not yet started
  const StreamWorker* in_turn_ = nullptr;  ///< whose entry the others wait for
  std::uint64_t turns_ = 0;
  std::uint64_t long_turn_ = 0;  ///< the last turn whose end `settle_briefly` has not waited for
  /// The number of entries that have started, or follow one that has, and that nobody waits for, by worker.
  std::map<const StreamWorker*, std::size_t> overdue_;
  std::condition_variable settled_;

  std::uint64_t calls_ = 0;
  bool stop_ = false;
  std::condition_variable stopped_;
  Thread watch_;
};

}  // namespace tutti::backend::host
