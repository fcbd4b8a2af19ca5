// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "stream/event_pool.hpp"

#include <atomic>
#include <list>
#include <memory>
#include <mutex>
#include <vector>

namespace tutti {

/// What the library lets go of at one of its later calls: from threads where the backend must not be entered,
/// or when work of streams is done. Thread-safe.
class LateReleases {
 public:
  struct One {
    std::shared_ptr<void> resource;
    std::vector<backend::StreamRef> streams;  ///< those whose work queued so far comes first
    std::vector<PooledEvent> marks;           ///< recorded by its owner: these come first, too
  };
  /// Made by its owner beforehand, so that to hand it over takes no memory.
  using Ones = std::list<One>;

  LateReleases(backend::Backend& backend, EventPool& events) : backend_(backend), events_(events) {}

  void add(Ones&& ones) noexcept;
  /// The same from a thread that may enter the backend: what its streams are given from now on is not waited
  /// for, and they may be destroyed.
  void add_marked(Ones&& ones) noexcept;
  /// Lets go of what may go, and waits for nothing. One atomic load when there is nothing. Whether anything
  /// has gone.
  bool release() {
    if (!has_any_.load(std::memory_order_acquire)) [[likely]]
      return false;
    return release_some();
  }
  [[nodiscard]] bool has_any() const noexcept { return has_any_.load(std::memory_order_acquire); }
  /// Lets go of everything: all work is done, or will never be.
  void release_all();

 private:
  bool release_some();
  /// A stream that cannot be marked now, because it is being captured or its device is in trouble, is tried
  /// again.
  [[nodiscard]] bool has_come(One& one);
  [[nodiscard]] bool try_mark(One& one, backend::StreamRef stream);

  backend::Backend& backend_;
  EventPool& events_;
  std::mutex mutex_;
  Ones ones_;
  std::atomic<bool> has_any_ = false;
};

}  // namespace tutti
