// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_backend.hpp"

#include "backend/host/machine.hpp"
#include "tutti/error.hpp"

#include <fmt/format.h>

namespace tutti::backend {

namespace {

void check(const virtual_devices::VirtualMachine& machine) {
  const auto refuse = [&machine](const std::string& reason) {
    throw Error(ErrorCode::invalid_argument, fmt::format("virtual machine '{}': {}", machine.name, reason));
  };
  if (machine.device_count < 0 || machine.device_count > most_virtual_devices)
    refuse(fmt::format("{} devices; expected 0 to {}", machine.device_count, most_virtual_devices));
  if (machine.memory_bytes == 0) refuse("devices without memory");
  if (machine.links.empty()) return;
  const auto n = static_cast<std::size_t>(machine.device_count);
  if (machine.links.size() != n)
    refuse(fmt::format("{} rows of links for {} devices", machine.links.size(), n));
  for (std::size_t i = 0; i < n; ++i) {
    if (machine.links[i].size() != n) {
      refuse(fmt::format("links[{}] has {} entries for {} devices", i, machine.links[i].size(), n));
    }
    for (std::size_t j = 0; j < n; ++j) {
      const auto link = static_cast<unsigned>(machine.links[i][j]);
      if (link > static_cast<unsigned>(virtual_devices::VirtualLink::nvlink))
        refuse(fmt::format("links[{}][{}] is {}; expected none, pcie or nvlink, 0 to 2", i, j, link));
    }
  }
}

}  // namespace

HostBackend make_host_backend(const virtual_devices::VirtualMachine& machine,
                              std::optional<std::uint64_t> interleaving_seed) {
  check(machine);
  auto booted = std::make_unique<host::Machine>(machine);
  booted->set_interleaving_seed(interleaving_seed);
  VirtualMachineControl* control = booted.get();
  return {std::move(booted), control};
}

}  // namespace tutti::backend
