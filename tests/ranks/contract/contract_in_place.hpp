// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/contract/checks.hpp"

/// Rules for inputs and outputs that are the same memory, or overlap, on some members.
namespace tutti::test::ranks {

void broadcast_leaves_its_source_alone(Group& group);
void broadcast_takes_lists_that_are_partly_in_place(Group& group);
void all_gather_takes_inputs_that_are_in_their_place(Group& group);
void reduce_scatter_takes_outputs_that_are_in_their_place(Group& group);

}  // namespace tutti::test::ranks
