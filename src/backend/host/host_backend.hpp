// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "backend/host/virtual_machine_control.hpp"
#include "tutti/virtual_devices.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace tutti::backend {

struct HostBackend {
  std::unique_ptr<Backend> backend;
  VirtualMachineControl* control = nullptr;  ///< owned by `backend`
};

inline constexpr int most_virtual_devices = 1024;

/// Boots a virtual machine, which interleaves its streams' work as `interleaving_seed` says. Throws
/// Error(invalid_argument) if the description contradicts itself.
[[nodiscard]] HostBackend make_host_backend(const virtual_devices::VirtualMachine& machine,
                                            std::optional<std::uint64_t> interleaving_seed = {});

}  // namespace tutti::backend
