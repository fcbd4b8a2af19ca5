// SPDX-License-Identifier: Apache-2.0
#include "transport/team/windows/device_name.hpp"

#include <algorithm>
#include <string>

namespace tutti::transport::team {

DeviceName DeviceName::of(const backend::Backend& backend, int device) {
  const DeviceProperties& properties = backend.properties(device);
  DeviceName name{.number = device, .major = properties.major};
  const std::string& id = properties.pci_bus_id;
  std::copy_n(id.begin(), std::min(id.size(), name.pci_bus_id.size() - 1), name.pci_bus_id.begin());
  return name;
}

bool has_nvlink(backend::Backend& backend, int device, const DeviceName& peer) {
  constexpr int least_major = 9;  // older ones have not been tried
  if (backend.kind() == BackendKind::host) {
    if (peer.number >= backend.device_count()) return false;
    return peer.number == device || backend.link(device, peer.number).kind == backend::LinkKind::nvlink;
  }
  if (peer.major < least_major) return false;
  return peer.pci_bus_id == DeviceName::of(backend, device).pci_bus_id ||
         backend.has_nvlink_to(device, peer.pci_bus_id.data());
}

bool are_all_joined_by_nvlink(backend::Backend& backend, std::span<const int> devices) {
  return std::ranges::all_of(devices, [&](int device) {
    return std::ranges::all_of(
        devices, [&](int peer) { return has_nvlink(backend, device, DeviceName::of(backend, peer)); });
  });
}

}  // namespace tutti::transport::team
