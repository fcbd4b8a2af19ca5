// SPDX-License-Identifier: Apache-2.0
#include "device/capture_gate.hpp"

#include <chrono>

namespace tutti {
namespace {

constexpr std::chrono::milliseconds longest_delay{20};

}  // namespace

void CaptureGate::begin_capture() {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, longest_delay, [this] { return waits_ == 0; });
  ++captures_;
}

void CaptureGate::begin_wait() {
  std::unique_lock lock(mutex_);
  ++waits_;  // before it waits: captures that overlap one another would never let it in
  changed_.wait_for(lock, longest_delay, [this] { return captures_ == 0; });
}

void CaptureGate::leave(int& mine) noexcept {
  const std::lock_guard lock(mutex_);
  --mine;
  changed_.notify_all();
}

}  // namespace tutti
