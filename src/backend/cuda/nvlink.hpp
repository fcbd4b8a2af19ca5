// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tutti::backend::cuda {

/// Returns the number of NVLink connections from each GPU to each other one: lanes[device][peer], through
/// switches or directly. It is asked of NVML, which is loaded at run time; all zero if NVML is missing or
/// does not know.
[[nodiscard]] std::vector<std::vector<int>> nvlink_lanes(const std::vector<std::string>& pci_bus_ids);

/// Returns true if all NVLink connections of a GPU end at switches, which connect it with all other GPUs of
/// which this is true. False if it has none, or if NVML does not tell.
[[nodiscard]] bool nvlink_leads_to_switches(const std::string& pci_bus_id);

}  // namespace tutti::backend::cuda
