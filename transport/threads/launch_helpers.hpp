// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "os/thread.hpp"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti::transport {

/// Threads that help the calling thread with many short, independent calls: on GPUs each call that a device
/// must act upon costs the host more than a microsecond, and drivers take calls for different devices at the
/// same time.
///
/// They help with bursts only. A thread that has had nothing to do for `patience` sleeps, and waking it takes
/// longer than the calls it could help with; so only a lease that comes soon after another wakes it. A
/// program that launches now and then makes all calls itself, and uses no other processor. A runtime
/// part. A forked child has no helpers, and makes all calls itself.
class LaunchHelpers : public std::enable_shared_from_this<LaunchHelpers> {
 public:
  /// Uses at most as many threads as the environment says. By default, that is one for every four processors
  /// that the library's threads may use, up to five, and none on virtual devices: they take calls in no time,
  /// and the order that a seed draws depends on the order of the calls. A limit on processor time, as a
  /// container may have, is not seen.
  explicit LaunchHelpers(Runtime& runtime);
  /// Uses at most `size` threads, whose calls are of no runtime.
  explicit LaunchHelpers(std::size_t size) : most_(size) {}
  LaunchHelpers(const LaunchHelpers&) = delete;
  LaunchHelpers& operator=(const LaunchHelpers&) = delete;
  ~LaunchHelpers();

  static constexpr std::chrono::microseconds patience{100};

  /// The exclusive use of the helpers for one launch, which makes about `calls` calls. Starts helpers until
  /// there is one for each call but the caller's own, or as many as there may be. Threads that want it at the
  /// same time work without helpers, and so does a launch with fewer than two calls.
  class Lease {
   public:
    Lease(LaunchHelpers& helpers, std::size_t calls);

    /// Returns true if any helper is awake.
    [[nodiscard]] bool has_help() const noexcept {
      return lock_.owns_lock() && helpers_.sleepers_.load() < helpers_.threads_.size();
    }

    /// Calls `work(i)` once for each i below `count`, on this thread and on those that are awake, and returns
    /// when all are done. Rethrows the first failure; what follows it may not have been called then.
    template <class Work>
    void for_each(std::size_t count, const Work& work) {
      helpers_.for_each(
          lock_.owns_lock(), static_cast<std::uint32_t>(count),
          {&work, [](const void* context, std::size_t i) { (*static_cast<const Work*>(context))(i); }});
    }

   private:
    LaunchHelpers& helpers_;
    std::unique_lock<std::mutex> lock_;
  };

 private:
  using Clock = std::chrono::steady_clock;
  struct Work {
    const void* context = nullptr;
    void (*call)(const void* context, std::size_t i) = nullptr;
  };
  /// The remaining part of a job. A thread that takes a part may have read this value in an earlier job that
  /// had come as far; the part is one of the present job all the same.
  struct Job {
    std::uint32_t count = 0;
    std::uint32_t next = 0;
    [[nodiscard]] bool is_open() const noexcept { return next < count; }
  };
  static_assert(std::atomic<Job>::is_always_lock_free);

  void for_each(bool has_helpers, std::uint32_t count, Work work);
  /// Runs parts of the job until none is left.
  void run_tasks() noexcept;
  /// Starts threads until there are `wanted`, or as many as there may be.
  void start(std::size_t wanted) noexcept;
  /// Wakes threads until `wanted` are awake, or all there are.
  void wake(std::size_t wanted) noexcept;
  /// Runs parts of jobs until the helpers are to stop, and sleeps where there have been none for `patience`.
  void run();
  /// Returns false if there is nothing to do for `patience`, or the helpers are to stop.
  [[nodiscard]] bool wait_for_job() const noexcept;
  /// Waits until there may be something to do, or the helpers are to stop.
  void sleep() noexcept;

  Runtime* runtime_ = nullptr;  ///< of the calls, if there is one
  std::mutex mutex_;            ///< held by a lease, and guards the next three
  std::size_t most_;
  Clock::time_point last_lease_{};
  std::vector<backend::Thread> threads_;

  // Written by the lease before the job that they belong to, and read by all that run a part of it.
  Work work_;
  std::exception_ptr failure_;  ///< written by the thread that sets `has_failed_`
  std::atomic<bool> has_failed_ = false;
  alignas(64) std::atomic<Job> job_{};
  alignas(64) std::atomic<std::uint32_t> done_ = 0;
  alignas(64) std::atomic<std::uint32_t> sleepers_ = 0;
  std::atomic<std::uint32_t> wake_count_ = 0;
  std::atomic<bool> is_stopping_ = false;
};

}  // namespace tutti::transport
