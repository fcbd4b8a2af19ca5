// SPDX-License-Identifier: Apache-2.0
#include "transport/steps/side_streams.hpp"

namespace tutti::transport {

SideStreams::SideStreams(Runtime& runtime)
    : runtime_(runtime), devices_(static_cast<std::size_t>(runtime.device_count())) {}

SideStreams::~SideStreams() {
  for (const PerDevice& device : devices_) {
    for (const backend::StreamRef stream : device.streams) runtime_.backend().destroy_stream(stream);
  }
}

backend::StreamRef SideStreams::beside(backend::StreamRef stream, std::size_t k) {
  const std::scoped_lock lock(mutex_);
  PerDevice& device = devices_[static_cast<std::size_t>(stream.device)];
  const auto known = device.index.find({stream.handle, k});
  if (known != device.index.end()) return device.streams[known->second];
  const std::size_t chosen = device.next % most_per_device;
  if (chosen == device.streams.size())
    device.streams.push_back(runtime_.backend().create_stream(stream.device, 0));
  ++device.next;
  // The previous user of this stream gets another one next time.
  std::erase_if(device.index, [chosen](const auto& entry) { return entry.second == chosen; });
  device.index[{stream.handle, k}] = chosen;
  return device.streams[chosen];
}

}  // namespace tutti::transport
