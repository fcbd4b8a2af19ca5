// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/case.hpp"
#include "perf/operations/operation.hpp"
#include "perf/options/options.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tutti::perf {

/// Returns all cases of one operation, in the order in which they are measured: by dimension, element type,
/// root, size. If several sizes give the same payload, in whole elements for each member, only the first is
/// included.
[[nodiscard]] std::vector<Case> cases_of(const Operation& operation, const Options& options,
                                         const Members& members);

/// Describes a case for people: "broadcast 64K float32 root 0".
[[nodiscard]] std::string in_words(const Operation& operation, const Case& what);

/// Returns the payload of a case, in bytes.
[[nodiscard]] std::size_t payload_bytes(const Operation& operation, const Case& what);

/// Returns the most bytes of a member's operands of a call, each beginning at a multiple of
/// `OperandMemory::alignment`. The same for all members.
[[nodiscard]] std::size_t operand_bytes(const Operation& operation, const Case& what);

/// Returns why there is nothing to measure although `what.bytes` is not 0: the operation moves at least one
/// element, or one for every member. Empty if there is something.
[[nodiscard]] std::string too_small(const Operation& operation, const Case& what);

}  // namespace tutti::perf
