// SPDX-License-Identifier: Apache-2.0
#include "device/ended_work.hpp"

#include "device/runtime.hpp"

#include <algorithm>

namespace tutti {

EndedWork::EndedWork(Runtime& runtime) : counts_(static_cast<std::size_t>(runtime.device_count())) {}

void EndedWork::add(Source& source, std::span<const int> devices) {
  const std::lock_guard lock(mutex_);
  entries_.push_back({&source, {devices.begin(), devices.end()}});
  for (const int device : devices) ++counts_[static_cast<std::size_t>(device)];
}

void EndedWork::remove(const Source& source) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase_if(entries_, [&](const Entry& entry) {
    if (entry.source != &source) return false;
    for (const int device : entry.devices) --counts_[static_cast<std::size_t>(device)];
    return true;
  });
}

void EndedWork::ask(int device) {
  const std::lock_guard lock(mutex_);
  for (const Entry& entry : entries_) {
    if (std::ranges::find(entry.devices, device) == entry.devices.end()) continue;
    if (const std::optional<Error> end = entry.source->take_end(device)) throw Error(*end);
  }
}

}  // namespace tutti
