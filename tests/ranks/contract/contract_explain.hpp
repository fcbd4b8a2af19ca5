// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/contract/checks.hpp"

/// Rules for what a communicator explains about calls without making them.
namespace tutti::test::ranks {

void what_explain_tells_is_what_calls_do(Group& group);
void explain_refuses_what_cannot_be_called(Group& group);

}  // namespace tutti::test::ranks
