// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <vector>

namespace tutti::test {

/// The operands and arguments of a collective of a communicator, whichever it is.
struct MemberCall {
  /// A row for each local member. Of what the root alone has there is its row at most. A broadcast without
  /// inputs is in place.
  std::vector<std::vector<Tensor>> inputs{};
  /// A row for each local member. The last row has what the root alone gets.
  std::vector<std::vector<Tensor>> out{};
  ReduceOp operation = ReduceOp::sum;
  int root = 0;
  int dim = 0;
};

/// Makes the call by the method of the form, of which each row has one tensor, or a list. Tests that walk
/// through all collectives make them by this.
void make_call(Communicator& communicator, CollectiveForm form, const MemberCall& call,
               StreamList streams = {});

/// Makes the call by the method that makes its outputs, and returns them as `MemberCall::out` has them. All
/// members are local.
[[nodiscard]] std::vector<std::vector<Tensor>> make_returning_call(Communicator& communicator,
                                                                   CollectiveForm form,
                                                                   const MemberCall& call);

/// Returns the first tensor of each row, undefined where a row has none.
[[nodiscard]] std::vector<Tensor> firsts(const std::vector<std::vector<Tensor>>& rows);

/// Returns the forms that move tensors.
[[nodiscard]] std::vector<CollectiveForm> all_forms();

}  // namespace tutti::test
