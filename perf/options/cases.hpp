// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/case.hpp"
#include "perf/operations/operation.hpp"
#include "perf/options/options.hpp"

#include <cstddef>
#include <string>
#include <vector>

namespace tutti::perf {

/// All cases of one operation, in the order they are measured: by dimension, element type, root, size. Of
/// sizes that come to the same payload, in whole elements for each member, there is the first.
[[nodiscard]] std::vector<Case> cases_of(const Operation& operation, const Options& options,
                                         const Members& members);

/// For people: "broadcast 64K float32 root 0".
[[nodiscard]] std::string in_words(const Operation& operation, const Case& what);

/// The payload of a case, in bytes.
[[nodiscard]] std::size_t payload_bytes(const Operation& operation, const Case& what);

/// What a member's operands of a call take at most, in bytes, each beginning at a multiple of
/// `OperandMemory::alignment`. The same for all members.
[[nodiscard]] std::size_t operand_bytes(const Operation& operation, const Case& what);

/// Why there is nothing to measure although `what.bytes` is not 0: they are less than the least that the
/// operation moves, an element or one for every member. Empty if there is something.
[[nodiscard]] std::string too_small(const Operation& operation, const Case& what);

}  // namespace tutti::perf
