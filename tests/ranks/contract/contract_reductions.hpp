// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/contract/checks.hpp"

/// The rules for reductions.
namespace tutti::test::ranks {

void sums_are_those_of_one_process_bit_for_bit(Group& group);
void every_operation_is_that_of_one_process_bit_for_bit(Group& group);
void numbers_at_the_edges_go_by_the_rules(Group& group);
void a_compiled_operation_goes_through_members_in_order(Group& group);

}  // namespace tutti::test::ranks
