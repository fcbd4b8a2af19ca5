// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/stream_calls.hpp"
#include "fork_mark.hpp"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti {

/// Events without timing for the library's own ordering, reused because creating one costs more than
/// recording it. One pool per runtime, keyed by the recording stream's device. Thread-safe.
class EventPool {
 public:
  /// For devices 0 to `device_count` - 1.
  EventPool(backend::StreamCalls& streams, int device_count);
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;
  ~EventPool();

  [[nodiscard]] backend::EventHandle acquire(int device);
  /// The event may still be pending: recording it again starts a new mark. Nothing in a forked child, whose
  /// parent has the pool.
  void release(int device, backend::EventHandle event) noexcept;

 private:
  struct PerDevice {
    std::mutex mutex;
    std::vector<backend::EventHandle> free;
  };
  backend::StreamCalls& streams_;
  const ForkMark fork_mark_;
  std::vector<std::unique_ptr<PerDevice>> devices_;
};

/// An event of a pool, released when its life ends. One made by default has no event.
class PooledEvent {
 public:
  PooledEvent() = default;
  PooledEvent(EventPool& pool, int device) : pool_(&pool), device_(device), handle_(pool.acquire(device)) {}
  PooledEvent(PooledEvent&& other) noexcept
      : pool_(other.pool_), device_(other.device_), handle_(std::exchange(other.handle_, nullptr)) {}
  PooledEvent& operator=(PooledEvent&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
    return *this;
  }
  ~PooledEvent() {
    if (handle_ != nullptr) pool_->release(device_, handle_);
  }

  /// The pool is gone, and has taken the event with it.
  void forget() noexcept { handle_ = nullptr; }
  /// nullptr if there is none.
  [[nodiscard]] backend::EventHandle handle() const noexcept { return handle_; }

 private:
  EventPool* pool_ = nullptr;
  int device_ = 0;
  backend::EventHandle handle_ = nullptr;
};

}  // namespace tutti
