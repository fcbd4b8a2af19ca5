// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"

#include <array>
#include <span>

namespace tutti::transport::team {

/// Identifies a device across processes: another process may know the GPU by another number, or not at all.
struct DeviceName {
  std::array<char, 32> pci_bus_id{};
  int number = -1;  ///< for virtual devices, which are alike everywhere and have no bus
  int major = 0;    ///< compute capability

  [[nodiscard]] static DeviceName of(const backend::Backend& backend, int device);
};

/// Returns true if NVLink connects a device of this process with `peer`, which may be the device itself. Not
/// tried, and false, for GPUs of a compute capability below 9.0. Throws the backend's errors.
[[nodiscard]] bool has_nvlink(backend::Backend& backend, int device, const DeviceName& peer);
/// Returns true if NVLink connects all of this process's `devices` with one another.
[[nodiscard]] bool are_all_joined_by_nvlink(backend::Backend& backend, std::span<const int> devices);

}  // namespace tutti::transport::team
