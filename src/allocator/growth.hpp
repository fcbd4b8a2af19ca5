// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/blocking_call.hpp"

#include <chrono>
#include <condition_variable>
#include <exception>
#include <mutex>

namespace tutti {

/// Lets one of an allocator's threads at a time ask the system for memory, and decide what is returned to it.
class Growth {
 private:
  friend class GrowthLock;
  std::mutex mutex_;
  std::condition_variable returned_;
  int returns_ = 0;  ///< threads that give memory back
};

/// A thread's turn. The thread gives the turn up while it waits for streams or devices, or returns memory to
/// the system, which waits, too: what it waits for may need another thread, and that thread memory.
class GrowthLock {
 public:
  explicit GrowthLock(Growth& growth) : growth_(growth), lock_(growth.mutex_) {}
  GrowthLock(const GrowthLock&) = delete;
  GrowthLock& operator=(const GrowthLock&) = delete;
  ~GrowthLock() = default;

  /// Calls `wait()` without the turn.
  template <class Wait>
  void let_go(const Wait& wait) {
    const Pause pause(lock_);
    wait();
  }
  /// Calls `give_back()` without the turn; `await_returns` of other threads waits for it. It throws nothing.
  template <class GiveBack>
  void let_go_to_return(const GiveBack& give_back) noexcept {
    ++growth_.returns_;
    let_go(give_back);
    if (--growth_.returns_ == 0) growth_.returned_.notify_all();
  }
  /// Waits until no thread returns memory, for a second at most: such a thread may wait for what this one
  /// does next.
  void await_returns() {
    constexpr std::chrono::seconds patience{1};
    growth_.returned_.wait_for(lock_, patience, [this] { return growth_.returns_ == 0; });
  }

 private:
  class Pause {
   public:
    explicit Pause(std::unique_lock<std::mutex>& lock) : lock_(lock) { lock_.unlock(); }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;
    ~Pause() { lock_.lock(); }

   private:
    std::unique_lock<std::mutex>& lock_;
  };

  Growth& growth_;
  std::unique_lock<std::mutex> lock_;
};

/// Serves a request that finds nothing cached: asks the system, and if that refuses, frees what it can in
/// steps, cheapest first. Returns nullptr if nothing helped.
///
/// `Source` answers one request. `from_cache()` and `from_system()` return a block or nullptr; `reap()`
/// collects blocks that have become free, `count_retry()` keeps the statistics, `may_wait()` says whether
/// waiting is allowed; `finish_pending()` waits for blocks that will become free; `return_cached()` returns
/// cached memory to the system, including memory that other threads are returning.
template <class Source>
[[nodiscard]] auto grow(Source& source) -> decltype(source.from_cache()) {
  // Between the miss and now another thread may have given something back, or made the cache grow.
  if (auto* block = source.from_cache()) return block;
  if (auto* block = source.from_system()) return block;
  if (!source.may_wait()) return nullptr;
  source.count_retry();

  source.reap();
  if (auto* block = source.from_cache()) return block;

  const BlockingCall blocks("an allocation that found no memory free");
  source.return_cached();
  if (auto* block = source.from_system()) return block;

  // What returns now may be parts of segments that are still in use elsewhere: the cache can serve what the
  // system, which gets whole segments only, cannot.
  source.finish_pending();
  if (auto* block = source.from_cache()) return block;

  source.return_cached();
  if (auto* block = source.from_cache()) return block;
  return source.from_system();
}

/// Returns all cached memory to the system, after waiting for blocks that wait for streams. Throws a failure
/// of work queued earlier, which keeps no memory, at the end.
template <class Source>
void return_all(Source& source) {
  std::exception_ptr failure;
  try {
    source.finish_pending();
  } catch (...) {
    failure = std::current_exception();
  }
  source.return_cached();
  if (failure) std::rethrow_exception(failure);
}

}  // namespace tutti
