// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/communicator/team_call.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/tensor.hpp"

#include <optional>

/// The operations of a communicator. Each is a whole call: it checks its operands, which of local members are
/// meant, and queues the work.
namespace tutti::collectives {

/// The root's tensors are copied into all others.
void broadcast_in_place(TeamCall& call, const MemberOperands& tensors, int root);
/// The root's tensors are copied into all members' outputs.
void broadcast_into(TeamCall& call, const Named& source, const MemberOperands& out, int root);
void reduce_to_root(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                    const MemberOperands& out, int root);
/// Parts are equal and all is flat, or as `sizes` says, of one tensor.
void gather_to_all(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out,
                   const std::optional<PartSizes>& sizes = std::nullopt);
void reduce_and_scatter(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                        const MemberOperands& out, const std::optional<PartSizes>& sizes = std::nullopt);
/// Each member sends a part to each.
void all_to_all(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out);
/// Exchanges parts of given sizes, which only their own ranks know beforehand.
void all_to_all(TeamCall& call, TensorList inputs, TensorList out, const SizeLists& input_sizes,
                const SizeLists& out_sizes);

/// The operation that the call is of, where all members have inputs and outputs, whose parts are equal.
/// `operation`: of those that reduce.
void run_for_all(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                 const MemberOperands& out);

/// The root's tensor, cut along a dimension, into the parts that members have room for; and back.
void scatter_from_root(TeamCall& call, const Tensor& tensor, TensorList out, int root, int dim);
void gather_to_root(TeamCall& call, TensorList tensors, const Tensor& out, int root, int dim);

}  // namespace tutti::collectives
