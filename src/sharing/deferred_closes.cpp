// SPDX-License-Identifier: Apache-2.0
#include "sharing/deferred_closes.hpp"

#include "device/runtime.hpp"

#include <utility>

namespace tutti {

QuietCloses::QuietCloses(Runtime& runtime) : reclaimers_(runtime.part<Allocators>().reclaimers()) {}

QuietCloses::~QuietCloses() {
  for (const auto& close : waiting_) close();
}

void QuietCloses::set_gates(Gate if_none, Gate if_idle) {
  const std::lock_guard lock(mutex_);
  if_none_ = std::move(if_none);
  if_idle_ = std::move(if_idle);
}

void QuietCloses::add(std::function<void()> close) {
  Gate gate;
  {
    const std::lock_guard lock(mutex_);
    if (!std::exchange(is_reclaimer_, true)) reclaimers_->add(weak_from_this());
    waiting_.push_back(std::move(close));
    gate = if_none_;
  }
  static_cast<void>(close_all(gate));
}

bool QuietCloses::close_idle() {
  Gate gate;
  {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty()) return false;
    gate = if_idle_;
  }
  return close_all(gate);
}

bool QuietCloses::close_all(const Gate& gate) {
  bool has_closed = false;
  const auto work = [&] {
    std::vector<std::function<void()>> all;
    {
      const std::lock_guard lock(mutex_);
      all.swap(waiting_);
    }
    for (const auto& close : all) close();
    has_closed = !all.empty();
  };
  if (gate == nullptr) {  // nobody has come to make such calls
    work();
  } else {
    static_cast<void>(gate(work));
  }
  return has_closed;
}

}  // namespace tutti
