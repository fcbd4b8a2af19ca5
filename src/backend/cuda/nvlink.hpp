// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace tutti::backend::cuda {

/// How many NVLink connections lead from each GPU to each other one: lanes[device][peer], through switches or
/// directly. Asked of NVML, which is loaded at run time; all zero if it is not there or knows nothing.
[[nodiscard]] std::vector<std::vector<int>> nvlink_lanes(const std::vector<std::string>& pci_bus_ids);

/// Whether all NVLink connections of a GPU end at switches, which lead to all other GPUs of which this is so.
/// False if it has none, or if NVML does not say.
[[nodiscard]] bool nvlink_leads_to_switches(const std::string& pci_bus_id);

}  // namespace tutti::backend::cuda
