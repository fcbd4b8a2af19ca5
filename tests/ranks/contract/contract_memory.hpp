// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/contract/checks.hpp"

/// Rules for large operands, which members read and write in place if they can.
namespace tutti::test::ranks {

void large_operands_may_lie_anywhere(Group& group);
void large_exchanges_in_place_may_lie_anywhere(Group& group);
void operands_may_be_written_right_after_a_large_call(Group& group);
void memory_of_large_operands_goes_back_to_the_device(Group& group);
void memory_is_opened_and_closed_while_others_wait(Group& group);

}  // namespace tutti::test::ranks
