// SPDX-License-Identifier: Apache-2.0
#include "transport/team/registrations/deferred_frees.hpp"

#include "allocator/allocators.hpp"
#include "settings/log.hpp"

#include <algorithm>
#include <exception>
#include <iterator>

#include <fmt/format.h>

namespace tutti::transport::team {

bool DeferredFrees::Left::is_over() const noexcept {
  for (std::size_t rank = 0; rank < statuses.size(); ++rank) {
    if (!has_left(rank)) return false;
  }
  return true;
}

DeferredFrees::DeferredFrees(Runtime& runtime) : runtime_(runtime) {
  for (int device = 0; device < runtime_.device_count(); ++device)
    runtime_.part<Allocators>().of(device).add_observer(*this);
  runtime_.part<Allocators>().registered().add_observer(*this);
}

DeferredFrees::~DeferredFrees() {
  for (int device = 0; device < runtime_.device_count(); ++device)
    runtime_.part<Allocators>().of(device).remove_observer(*this);
  runtime_.part<Allocators>().registered().remove_observer(*this);
}

void DeferredFrees::take(std::list<Left> left, std::span<const Windows::Allocated> windows,
                         std::size_t window_bytes) noexcept {
  {
    const std::lock_guard lock(mutex_);
    left_.splice(left_.end(), left);
  }
  for (const Windows::Allocated& window : windows) {
    try {
      runtime_.part<Allocators>().of(window.device).free_when_let_go({window.address, window_bytes});
    } catch (const std::exception& error) {
      log_warning(fmt::format("Communicator: {} bytes of device {} stay allocated: {}", window_bytes,
                              window.device, error.what()));
    }
  }
}

void DeferredFrees::sweep(std::span<const int> devices) noexcept {
  {
    const std::lock_guard lock(mutex_);
    if (left_.empty()) return;
    std::erase_if(left_, [](const Left& left) { return left.is_over(); });
  }
  for (const int device : devices) runtime_.part<Allocators>().of(device).free_let_go();
}

SegmentObserver::Hold DeferredFrees::hold_on(const std::byte* address) noexcept {
  const std::lock_guard lock(mutex_);
  auto hold = Hold::none;
  for (auto left = left_.begin(); left != left_.end();) {
    if (left->is_over()) {
      left = left_.erase(left);
      continue;
    }
    const auto is_at = [address](const Windows::Allocated& window) { return window.address == address; };
    if (std::ranges::any_of(left->windows, is_at)) return Hold::lasting;
    // Others may take their time to close it: nobody waits for them.
    hold = std::max(hold, left->segments->hold_on(
                              address, [&](std::size_t rank) { return left->has_left(rank); },
                              [](std::uint32_t) { return true; }));
    ++left;
  }
  return hold;
}

}  // namespace tutti::transport::team
