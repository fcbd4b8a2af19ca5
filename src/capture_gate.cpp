// SPDX-License-Identifier: Apache-2.0
#include "capture_gate.hpp"

#include <chrono>

namespace tutti {
namespace {

constexpr std::chrono::milliseconds longest_delay{20};

}  // namespace

void CaptureGate::enter(int& mine, const int& others) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, longest_delay, [&] { return others == 0; });
  ++mine;
}

void CaptureGate::leave(int& mine) noexcept {
  const std::lock_guard lock(mutex_);
  --mine;
  changed_.notify_all();
}

}  // namespace tutti
