// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/queues/failure_log.hpp"
#include "backend/host/queues/task.hpp"
#include "os/thread.hpp"

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

namespace tutti::backend::host {

/// The time for which a thread spins before it sleeps. Sleeping and waking costs several microseconds; with
/// many streams on few cores, spinning longer would take the processor from threads that have work.
inline constexpr std::chrono::nanoseconds worker_spin{4'000};
inline constexpr std::chrono::nanoseconds host_spin{20'000};

/// A stream of a virtual device: a queue, and a thread that starts with the first entry.
///
/// Thread-safe. Destroy after `join`, or without any entry ever pushed.
class StreamWorker {
 public:
  /// Called on the worker after each entry has finished.
  class Observer {
   public:
    virtual void on_finished(const StreamWorker& worker) noexcept = 0;

   protected:
    ~Observer() = default;
  };

  /// `id` numbers the streams of a device for messages and for the order in which choices among them are
  /// made.
  StreamWorker(int device, int id, int priority, FailureLog& failures, Observer& observer)
      : device_(device), id_(id), priority_(priority), failures_(failures), observer_(observer) {}
  StreamWorker(const StreamWorker&) = delete;
  StreamWorker& operator=(const StreamWorker&) = delete;
  ~StreamWorker() = default;

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] int id() const noexcept { return id_; }
  /// Returns the priority that it was made with, which has no effect.
  [[nodiscard]] int priority() const noexcept { return priority_; }
  /// Returns true if the caller is an entry of this stream.
  [[nodiscard]] bool is_running_here() const noexcept;
  /// Returns true if the caller is an entry of any stream.
  [[nodiscard]] static bool is_any_running_here() noexcept;
  [[nodiscard]] const std::shared_ptr<Progress>& progress() const noexcept { return progress_; }
  /// Returns true if its entries are being recorded into a graph; the machine knows which.
  [[nodiscard]] bool is_captured() const noexcept { return is_captured_.load(std::memory_order_acquire); }
  void set_captured(bool is_captured) noexcept { is_captured_.store(is_captured, std::memory_order_release); }

  /// Numbers the entry and queues it. Returns its position.
  std::uint64_t push(std::unique_ptr<Task> task);
  /// Starts the thread now instead of with the first entry. Throws Error(out_of_memory) if the system has
  /// none left.
  void start();
  /// Queues an entry that was numbered before, in the order of the numbers; the observer is notified of its
  /// end. If it throws, the caller still has the entry.
  void dispatch(std::unique_ptr<Task>& task);

  /// Closes the queue: no entries may be submitted any more; those submitted still run, then the thread ends.
  void close();
  /// Waits for the thread to end, after `close`.
  void join();

 private:
  enum class Origin : std::uint8_t { pushed, dispatched };
  struct Entry {
    std::unique_ptr<Task> task;
    Origin origin;
  };

  // `mutex_` must be held for these.
  void start_locked();
  void enqueue(std::unique_ptr<Task>& task, Origin origin);

  void loop();
  [[nodiscard]] std::vector<Entry> take();
  void execute(Entry entry);
  void note_failure(std::string_view what, const Escaped& escaped,
                    ErrorCode code = ErrorCode::device_failure) noexcept;

  const int device_;
  const int id_;
  const int priority_;
  FailureLog& failures_;
  Observer& observer_;
  const std::shared_ptr<Progress> progress_ = std::make_shared<Progress>();
  std::atomic<bool> is_captured_{false};

  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<Entry> inbox_;
  std::atomic<bool> has_mail_{false};  ///< `inbox_` is not empty
  bool sleeping_ = false;
  bool closing_ = false;
  Thread thread_;
};

}  // namespace tutti::backend::host
