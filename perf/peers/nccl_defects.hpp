// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/case.hpp"
#include "perf/operations/operation.hpp"

#include <string>

/// Defects of NCCL versions in registered memory, according to their sources and release notes, which are
/// avoided. Versions are numbers of ncclGetVersion: 22803 is 2.28.3.
namespace tutti::perf {

/// Returns true if a collective loses the addresses of memory that messages (ncclSend, ncclRecv) used first:
/// it takes other members' memory to be at address 0, and so writes out of bounds or waits for ever.
[[nodiscard]] bool loses_addresses_after_messages(int version);

/// Returns why calls of the operation must not be made in symmetric windows; empty if they may.
[[nodiscard]] std::string defect_of_windows(int version, const Operation& operation, const Case& what);

}  // namespace tutti::perf
