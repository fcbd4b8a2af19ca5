// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "base/fork_mark.hpp"
#include "device/runtime_part.hpp"

#include <memory>
#include <mutex>
#include <utility>
#include <vector>

namespace tutti {

class Runtime;

/// Events without timing for the library's own ordering, reused because creating one costs more than
/// recording it. One pool per runtime, keyed by the recording stream's device. Thread-safe.
class EventPool final : public RuntimePart {
 public:
  static constexpr PartSlot slot = PartSlot::events;

  explicit EventPool(Runtime& runtime);
  /// Makes the pool for devices 0 to `device_count` - 1.
  EventPool(backend::Backend& backend, int device_count);
  ~EventPool() override;

  [[nodiscard]] backend::EventHandle acquire(int device);
  /// Returns an event to the pool. It may still be pending: recording it again starts a new mark. Does
  /// nothing in a forked child, whose parent has the pool.
  void release(int device, backend::EventHandle event) noexcept;
  /// Destroys an event in place of `release`. Does nothing in a forked child.
  void discard(backend::EventHandle event) noexcept;

  [[nodiscard]] backend::Backend& backend() const noexcept { return backend_; }

 private:
  struct PerDevice {
    std::mutex mutex;
    std::vector<backend::EventHandle> free;
  };
  backend::Backend& backend_;
  const ForkMark fork_mark_;
  std::vector<std::unique_ptr<PerDevice>> devices_;
};

/// An event of a pool, released when its life ends. One made by default has no event.
///
/// An event that a capture has recorded stays a part of that capture until it is recorded again. Another
/// thread that did so would change the capture while its own thread goes on with it, which CUDA does not
/// guard against. Such events are destroyed, and never reused.
class PooledEvent {
 public:
  PooledEvent() = default;
  PooledEvent(EventPool& pool, int device) : pool_(&pool), device_(device), handle_(pool.acquire(device)) {}
  PooledEvent(PooledEvent&& other) noexcept
      : pool_(other.pool_),
        device_(other.device_),
        handle_(std::exchange(other.handle_, nullptr)),
        is_captured_(other.is_captured_) {}
  PooledEvent& operator=(PooledEvent&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(device_, other.device_);
    std::swap(handle_, other.handle_);
    std::swap(is_captured_, other.is_captured_);
    return *this;
  }
  ~PooledEvent() {
    if (handle_ == nullptr) return;
    is_captured_ ? pool_->discard(handle_) : pool_->release(device_, handle_);
  }

  /// Marks what has been queued on `stream`, a stream of the event's device. There has to be an event.
  void record(backend::StreamRef stream) {
    is_captured_ = pool_->backend().is_capturing(stream);
    pool_->backend().record_event(handle_, stream);
  }

  /// Drops the handle, because the pool is gone and has destroyed the event.
  void forget() noexcept { handle_ = nullptr; }
  /// Returns the handle, nullptr if there is none.
  [[nodiscard]] backend::EventHandle handle() const noexcept { return handle_; }

 private:
  EventPool* pool_ = nullptr;
  int device_ = 0;
  backend::EventHandle handle_ = nullptr;
  bool is_captured_ = false;  ///< as it was last recorded
};

}  // namespace tutti
