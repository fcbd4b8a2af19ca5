// SPDX-License-Identifier: Apache-2.0
#include "allocator/registered_memory.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

namespace tutti {
namespace {

constexpr std::chrono::seconds patience(1);
constexpr std::chrono::microseconds asks_every(100);

}  // namespace

std::optional<const std::byte*> RegisteredMemory::add(const std::byte* begin, const Range& range) {
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first < begin + range.bytes) return next->first;
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (begin < before->first + before->second.bytes) return before->first;
  }
  ranges_.emplace_hint(next, begin, range);
  Counted& counted = allocations_[range.allocation.address];
  counted.allocation = range.allocation;
  ++counted.ranges;
  return std::nullopt;
}

bool RegisteredMemory::remove(const std::byte* begin, IfHeld if_held) {
  Range range;
  {
    const std::lock_guard lock(mutex_);
    const auto found = ranges_.find(begin);
    range = found->second;
    ranges_.erase(found);
    const auto counted = allocations_.find(range.allocation.address);
    if (--counted->second.ranges != 0) return true;
    allocations_.erase(counted);
  }
  if (wait_for_observers(range.allocation.address)) return true;
  if (if_held == IfHeld::keep) static_cast<void>(add(begin, range));
  return false;
}

CachingAllocator::Extent RegisteredMemory::allocation_of(int device, const void* address) {
  const std::lock_guard lock(mutex_);
  const auto* const byte = static_cast<const std::byte*>(address);
  const auto next = allocations_.upper_bound(byte);
  if (next == allocations_.begin()) return {};
  const Allocation& found = std::prev(next)->second.allocation;
  if (found.device != device || byte >= found.address + found.bytes) return {};
  return {found.address, found.bytes, false};
}

std::size_t RegisteredMemory::count() {
  const std::lock_guard lock(mutex_);
  return ranges_.size();
}

void RegisteredMemory::add_observer(SegmentObserver& observer) {
  const std::lock_guard lock(observers_mutex_);
  observers_.push_back(&observer);
}

void RegisteredMemory::remove_observer(SegmentObserver& observer) noexcept {
  const std::lock_guard lock(observers_mutex_);
  std::erase(observers_, &observer);
}

bool RegisteredMemory::wait_for_observers(const std::byte* allocation) {
  auto lasts_since = std::chrono::steady_clock::now();
  for (;;) {
    const SegmentObserver::Hold hold = ask_observers(allocation);
    if (hold == SegmentObserver::Hold::none) return true;
    const auto now = std::chrono::steady_clock::now();
    if (hold == SegmentObserver::Hold::passing) lasts_since = now;
    if (now - lasts_since > patience) return false;
    backend_.wait_elsewhere();  // others may close it only after a call of this process
    std::this_thread::sleep_for(asks_every);
  }
}

SegmentObserver::Hold RegisteredMemory::ask_observers(const std::byte* allocation) noexcept {
  const std::lock_guard lock(observers_mutex_);
  auto hold = SegmentObserver::Hold::none;
  for (SegmentObserver* const observer : observers_) hold = std::max(hold, observer->let_go(allocation));
  return hold;
}

}  // namespace tutti
