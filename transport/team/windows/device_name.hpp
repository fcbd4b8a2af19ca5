// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"

#include <array>
#include <span>

namespace tutti::transport::team {

/// A device as other processes know it, too: a GPU may have another number there, or none.
struct DeviceName {
  std::array<char, 32> pci_bus_id{};
  int number = -1;  ///< for virtual devices, which are alike everywhere and have no bus
  int major = 0;    ///< compute capability

  [[nodiscard]] static DeviceName of(const backend::Backend& backend, int device);
};

/// Whether NVLink joins a device of this process with `peer`, which may be the device itself, as far as that
/// has been tried: not for GPUs of a compute capability below 9.0. Throws what the backend throws.
[[nodiscard]] bool has_nvlink(backend::Backend& backend, int device, const DeviceName& peer);
/// Likewise, whether it joins all of this process's `devices` with one another.
[[nodiscard]] bool are_all_joined_by_nvlink(backend::Backend& backend, std::span<const int> devices);

}  // namespace tutti::transport::team
