// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/checks.hpp"

/// The rules for reductions, and for lists of flat tensors.
namespace tutti::test::ranks {

void sums_are_those_of_one_process_bit_for_bit(Group& group);
void every_operation_is_that_of_one_process_bit_for_bit(Group& group);
void a_compiled_operation_goes_through_members_in_order(Group& group);
void flat_lists_go_as_one_call(Group& group);

}  // namespace tutti::test::ranks
