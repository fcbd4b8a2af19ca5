// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator/team_call.hpp"
#include "tutti/reduce_op.hpp"

namespace tutti::collectives {

/// Carries out a reduction by an operation that is compiled at run time, once all of its arguments have been
/// checked, step by step (`team_compiled_steps.hpp`). `parts`: of a reduce_scatter into parts of given sizes,
/// how they lie in the inputs; else without elements.
void reduce_by_compiled(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                        const MemberOperands& out, const PartsInRows& parts = {});

}  // namespace tutti::collectives
