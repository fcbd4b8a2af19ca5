// SPDX-License-Identifier: Apache-2.0
#include "stream/event_pool.hpp"

#include "device/runtime.hpp"

#include <exception>

namespace tutti {

EventPool::EventPool(Runtime& runtime) : EventPool(runtime.backend(), runtime.device_count()) {}

EventPool::EventPool(backend::Backend& backend, int device_count) : backend_(backend) {
  for (int device = 0; device < device_count; ++device) devices_.push_back(std::make_unique<PerDevice>());
}

EventPool::~EventPool() {
  for (const auto& device : devices_) {
    for (const backend::EventHandle event : device->free) backend_.destroy_event(event);
  }
}

backend::EventHandle EventPool::acquire(int device) {
  PerDevice& pool = *devices_[static_cast<std::size_t>(device)];
  {
    const std::lock_guard lock(pool.mutex);
    if (!pool.free.empty()) {
      const backend::EventHandle event = pool.free.back();
      pool.free.pop_back();
      return event;
    }
  }
  return backend_.create_event(device, backend::EventTiming::off, backend::EventWait::spin);
}

void EventPool::release(int device, backend::EventHandle event) noexcept {
  if (fork_mark_.is_in_child()) return;
  PerDevice& pool = *devices_[static_cast<std::size_t>(device)];
  try {
    const std::lock_guard lock(pool.mutex);
    pool.free.push_back(event);
  } catch (const std::exception&) {
    backend_.destroy_event(event);  // no host memory to keep it
  }
}

void EventPool::discard(backend::EventHandle event) noexcept {
  if (!fork_mark_.is_in_child()) backend_.destroy_event(event);
}

}  // namespace tutti
