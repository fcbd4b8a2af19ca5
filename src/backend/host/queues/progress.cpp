// SPDX-License-Identifier: Apache-2.0
#include "backend/host/queues/progress.hpp"

#include "os/yielding.hpp"

#include <algorithm>

namespace tutti::backend::host {

void Progress::complete() {
  const std::uint64_t completed = completed_.fetch_add(1) + 1;
  // A sleeper announces its target before it looks at `completed_` for the last time, and both are
  // sequentially consistent: either this load sees the target, or the sleeper sees the new count.
  if (completed < nearest_target_.load()) return;
  const std::lock_guard lock(mutex_);
  nearest_target_.store(nobody);  // those woken too early announce theirs again
  reached_.notify_all();
}

void Progress::wait(std::uint64_t position, std::chrono::nanoseconds spin) {
  if (reached(position)) return;
  const auto deadline = std::chrono::steady_clock::now() + spin;
  while (std::chrono::steady_clock::now() < deadline) {
    // Yielding, because with more streams than cores the awaited worker may need this one.
    if (!yield_unless_crowded()) break;
    if (reached(position)) return;
  }
  std::unique_lock lock(mutex_);
  for (;;) {
    nearest_target_.store(std::min(nearest_target_.load(), position));
    if (reached(position)) return;
    reached_.wait(lock);
  }
}

bool Progress::wait_until(std::uint64_t position, std::chrono::steady_clock::time_point deadline) {
  std::unique_lock lock(mutex_);
  for (;;) {
    nearest_target_.store(std::min(nearest_target_.load(), position));
    if (reached(position)) return true;
    if (reached_.wait_until(lock, deadline) == std::cv_status::timeout) return reached(position);
  }
}

}  // namespace tutti::backend::host
