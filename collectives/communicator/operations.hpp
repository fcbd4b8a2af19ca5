// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator/team_call.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/tensor.hpp"

#include <optional>

/// The operations of a communicator. Each is a whole call: it checks its operands, which are those of local
/// members, and queues the work.
namespace tutti::collectives {

/// Copies the root's tensors into all others.
void broadcast_in_place(TeamCall& call, const MemberOperands& tensors, int root);
/// Copies the root's tensors into all members' outputs.
void broadcast_into(TeamCall& call, const Named& source, const MemberOperands& out, int root);
void reduce_to_root(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                    const MemberOperands& out, int root);
/// Gathers all members' parts on all members. Parts are equal and flat, or parts of one tensor as `sizes`
/// says.
void gather_to_all(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out,
                   const std::optional<PartSizes>& sizes = std::nullopt);
void reduce_and_scatter(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                        const MemberOperands& out, const std::optional<PartSizes>& sizes = std::nullopt);
/// Sends a part from each member to each.
void all_to_all(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out);
/// Exchanges parts of given sizes, which only their own ranks know beforehand.
void all_to_all(TeamCall& call, TensorList inputs, TensorList out, const SizeLists& input_sizes,
                const SizeLists& out_sizes);

/// Makes the call of a collective in which all members have inputs and outputs, whose parts are equal.
/// `operation`: for those that reduce.
void run_for_all(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                 const MemberOperands& out);

/// Scatters the root's tensor, cut along a dimension, into the parts that members have room for;
/// `gather_to_root` is the inverse.
void scatter_from_root(TeamCall& call, const Tensor& tensor, TensorList out, int root, int dim);
void gather_to_root(TeamCall& call, TensorList tensors, const Tensor& out, int root, int dim);

}  // namespace tutti::collectives
