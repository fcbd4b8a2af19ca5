// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/call/arguments.hpp"
#include "tutti/communicator.hpp"

#include <span>
#include <string_view>
#include <vector>

namespace tutti::collectives {

/// Checks that lists[i] are tensors on the device of local member i, at least one, that all lists agree in
/// number, sizes and element types, and that no tensor shares memory with another of its list. Throws
/// Error(invalid_argument), in which `argument` is their name.
void check_member_lists(const Arguments& arguments, const Communicator& communicator,
                        std::span<const std::vector<Tensor>> lists, std::string_view argument);

/// Checks that `member` is one of so many local members. Throws Error(invalid_argument).
void check_local_member(const Arguments& arguments, int member, std::size_t locals);

/// Checks that no current stream of the local members' devices is being captured. Throws Error(unsupported).
void require_uncaptured(const Arguments& arguments, const Communicator& communicator);

}  // namespace tutti::collectives
