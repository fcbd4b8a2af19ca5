// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/case.hpp"
#include "perf/operations/operation.hpp"

#include <string>

/// What versions of NCCL get wrong in registered memory, by its sources and release notes, so that it is not
/// asked of them. Versions are as ncclGetVersion tells them: 22803 is 2.28.3.
namespace tutti::perf {

/// Whether in memory whose first use were messages (ncclSend, ncclRecv) a collective takes the other members'
/// for lying at address 0, and so writes outside of all memory, or waits for ever.
[[nodiscard]] bool loses_addresses_after_messages(int version);

/// Why calls of the operation are not to be made in symmetric windows; empty if they can be.
[[nodiscard]] std::string defect_of_windows(int version, const Operation& operation, const Case& what);

}  // namespace tutti::perf
