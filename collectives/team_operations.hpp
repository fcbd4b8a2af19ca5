// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/team_call.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/tensor.hpp"

#include <cstdint>
#include <span>

/// The operations of a communicator. Each is a whole call: it checks its operands, which of local members are
/// meant, and queues the work. (Scatter and gather are `TeamCall`'s own.)
namespace tutti::collectives {

/// From the root's tensors into all others.
void broadcast_in_place(TeamCall& call, const MemberOperands& tensors, int root);
/// From the root's tensors into all members' outputs.
void broadcast_into(TeamCall& call, const Named& source, const MemberOperands& out, int root);
void reduce_to_root(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                    const MemberOperands& out, int root);
void reduce_to_all(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                   const MemberOperands& out);
void gather_to_all(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out);
void reduce_and_scatter(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                        const MemberOperands& out);
// The same of parts as long as `sizes` says, in elements by member.
void gather_to_all(TeamCall& call, TensorList inputs, TensorList out, std::span<const std::int64_t> sizes);
void reduce_and_scatter(TeamCall& call, const ReduceOp& operation, TensorList inputs, TensorList out,
                        std::span<const std::int64_t> sizes);
/// From each a part to each.
void exchange_all(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out);
/// Likewise of parts of given sizes, which only their own ranks know beforehand.
void exchange_all(TeamCall& call, TensorList inputs, TensorList out, const SizeLists& input_sizes,
                  const SizeLists& out_sizes);

}  // namespace tutti::collectives
