// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/contract/checks.hpp"

/// Rules for edge cases: lists of no tensors, tensors without dimensions, tensors whose shapes do not matter.
namespace tutti::test::ranks {

void lists_of_no_tensors_are_calls_of_nothing(Group& group);
void every_operation_takes_every_type_and_size(Group& group);
void flat_calls_take_tensors_of_all_shapes(Group& group);

}  // namespace tutti::test::ranks
