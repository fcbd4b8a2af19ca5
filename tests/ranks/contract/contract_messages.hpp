// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "ranks/contract/checks.hpp"

/// The rules for messages between two members.
namespace tutti::test::ranks {

void messages_go_from_member_to_member(Group& group);
void messages_can_be_captured(Group& group);

}  // namespace tutti::test::ranks
