// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/host/queues/progress.hpp"
#include "backend/host/queues/shared_marks.hpp"
#include "backend/stream_calls.hpp"

#include <memory>
#include <mutex>
#include <utility>

namespace tutti::backend::host {

/// An event: the ticket of its last recording, or the marks that it shares with other processes.
class HostEvent {
 public:
  HostEvent(int device, EventTiming timing, EventWait wait) : device_(device), timing_(timing), wait_(wait) {}
  HostEvent(int device, EventWait wait, std::shared_ptr<SharedMarks> marks)
      : device_(device), timing_(EventTiming::off), wait_(wait), marks_(std::move(marks)) {}

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] EventTiming timing() const noexcept { return timing_; }
  [[nodiscard]] EventWait wait() const noexcept { return wait_; }
  /// Returns nullptr unless the event is shared; then it has no ticket.
  [[nodiscard]] const std::shared_ptr<SharedMarks>& marks() const noexcept { return marks_; }

  [[nodiscard]] Ticket ticket() const {
    const std::lock_guard lock(mutex_);
    return ticket_;
  }
  void set_ticket(Ticket ticket) {
    const std::lock_guard lock(mutex_);
    std::swap(ticket_, ticket);
  }

 private:
  const int device_;
  const EventTiming timing_;
  const EventWait wait_;
  const std::shared_ptr<SharedMarks> marks_;
  mutable std::mutex mutex_;
  Ticket ticket_;
};

}  // namespace tutti::backend::host
