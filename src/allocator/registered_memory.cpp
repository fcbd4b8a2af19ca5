// SPDX-License-Identifier: Apache-2.0
#include "allocator/registered_memory.hpp"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <thread>
#include <utility>

namespace tutti {
namespace {

constexpr std::chrono::seconds longest_hold(1);
constexpr std::chrono::microseconds asks_again_every(100);

}  // namespace

std::optional<DeviceAllocation> allocation_around(backend::Backend& backend, void* address,
                                                  std::size_t bytes) {
  const backend::PointerInfo info = backend.pointer_info(address);
  if (info.kind != backend::MemoryKind::device || info.base == nullptr) return std::nullopt;
  auto* const byte = static_cast<std::byte*>(address);
  const backend::MemoryOrigin origin = backend.origin_of(address);
  if (origin != backend::MemoryOrigin::piece)
    return DeviceAllocation{byte - (byte - info.base), info.bytes, info.device, origin};
  const std::byte* end = info.base + info.bytes;
  while (end < byte + bytes) {
    const backend::PointerInfo next = backend.pointer_info(end);
    const bool is_beside =
        next.kind == backend::MemoryKind::device && next.device == info.device && next.base == end;
    if (!is_beside || next.bytes == 0 || backend.origin_of(end) != backend::MemoryOrigin::piece) break;
    end += next.bytes;
  }
  return DeviceAllocation{byte, std::min(bytes, static_cast<std::size_t>(end - byte)), info.device, origin};
}

std::string reason_not_to_share(backend::Backend& backend, const void* address) {
  return backend.pointer_info(address).is_managed ? "it is managed memory, as cudaMallocManaged gives it"
                                                  : "";
}

std::optional<const std::byte*> RegisteredMemory::add(const std::byte* begin, std::size_t bytes,
                                                      const DeviceAllocation& allocation) {
  const std::lock_guard lock(mutex_);
  const auto next = ranges_.lower_bound(begin);
  if (next != ranges_.end() && next->first < begin + bytes) return next->first;
  if (next != ranges_.begin()) {
    const auto before = std::prev(next);
    if (begin < before->first + before->second.bytes) return before->first;
  }
  const auto counted = allocations_.try_emplace(allocation.address).first;
  ranges_.emplace_hint(next, begin, Range{.bytes = bytes, .allocation = counted});
  counted->second.allocation = allocation;
  ++counted->second.ranges;
  return std::nullopt;
}

bool RegisteredMemory::remove(const std::byte* begin, IfHeld if_held) {
  std::unique_lock lock(mutex_);
  const auto range = ranges_.find(begin);
  const auto counted = range->second.allocation;
  bool is_let_go = true;
  if (++counted->second.ending == counted->second.ranges) {
    // The range stays on the list meanwhile, so that nobody registers what overlaps it.
    lock.unlock();
    is_let_go = wait_for_observers(counted->first);
    if (!is_let_go && if_held == IfHeld::drop) static_cast<void>(ask_observers(counted->first, true));
    lock.lock();
  }
  --counted->second.ending;
  if (!is_let_go && if_held == IfHeld::keep) return false;
  ranges_.erase(range);
  if (--counted->second.ranges == 0) allocations_.erase(counted);
  return is_let_go;
}

CachingAllocator::Extent RegisteredMemory::allocation_of(int device, const void* address) {
  const std::lock_guard lock(mutex_);
  const auto* const byte = static_cast<const std::byte*>(address);
  const auto next = allocations_.upper_bound(byte);
  if (next == allocations_.begin()) return {};
  const Counted& counted = std::prev(next)->second;
  if (counted.ranges == counted.ending) return {};
  const DeviceAllocation& found = counted.allocation;
  if (found.device != device || byte >= found.address + found.bytes) return {};
  return {.address = found.address, .bytes = found.bytes, .origin = found.origin};
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
  auto held_since = std::chrono::steady_clock::now();
  for (;;) {
    const SegmentObserver::Hold hold = ask_observers(allocation, false);
    if (hold == SegmentObserver::Hold::none) return true;
    const auto now = std::chrono::steady_clock::now();
    if (hold == SegmentObserver::Hold::passing) held_since = now;
    if (now - held_since > longest_hold) return false;
    backend_.wait_elsewhere();  // others may close it only after a call of this process
    std::this_thread::sleep_for(asks_again_every);
  }
}

SegmentObserver::Hold RegisteredMemory::ask_observers(const std::byte* allocation, bool insists) noexcept {
  const std::lock_guard lock(observers_mutex_);
  bool is_used = false;
  bool is_open = false;
  for (SegmentObserver* const observer : observers_) {
    const SegmentObserver::Hold hold = observer->let_go(allocation, insists);
    is_used |= hold == SegmentObserver::Hold::passing;
    is_open |= hold == SegmentObserver::Hold::lasting;
  }
  if (is_used) return SegmentObserver::Hold::passing;
  return is_open ? SegmentObserver::Hold::lasting : SegmentObserver::Hold::none;
}

}  // namespace tutti
