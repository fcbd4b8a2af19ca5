// SPDX-License-Identifier: Apache-2.0
#include "collectives/team_call.hpp"

#include <utility>

/// Calls between processes in NCCL's terms.
namespace tutti::collectives {
namespace {

using transport::nccl::Function;
using transport::ranks::NcclCall;

}  // namespace

void TeamCall::enqueue_nccl() {
  context_.nccl->connect(sequence_);
  context_.nccl->enqueue(nccl_calls(), streams_);
  context_.launcher.finish(sequence_, streams_);
  context_.last_plan = request_.collective;
}

std::vector<NcclCall> TeamCall::nccl_calls() const {
  std::vector<NcclCall> calls;
  if (traits_of(request_.collective).has_own_sizes) {
    add_transfers(calls);
    return calls;
  }
  for (std::size_t t = 0; t < columns().size(); ++t) {
    const TeamColumn& column = columns()[t];
    for (std::size_t own = 0; own < locals(); ++own) {
      NcclCall call{.own_member = own,
                    .peer = root(),
                    .source = input_address(own, t),
                    .target = output_address(own, t),
                    .count = column.bytes()};
      const auto sums = [&](Function function, std::uint64_t count) {
        call.function = function;
        call.count = count;
        call.dtype = column.dtype;
      };
      switch (request_.of_one_tensor()) {
        case Collective::reduce_add:
          sums(Function::reduce, column.elements);
          break;
        case Collective::all_reduce_add:
          sums(Function::all_reduce, column.elements);
          break;
        case Collective::reduce_scatter_add:
          sums(Function::reduce_scatter, column.elements / members());
          break;
        case Collective::all_gather:
          call.function = Function::all_gather;
          break;
        default:
          call.function = Function::broadcast;
          if (call.source == nullptr) call.source = call.target;
          if (call.target == nullptr) call.target = input_address(own, t);
          break;
      }
      if (call.count > 0) calls.push_back(call);
    }
  }
  return calls;
}

void TeamCall::add_transfers(std::vector<NcclCall>& calls) const {
  const bool apart = request_.collective == Collective::scatter;
  std::uint64_t start = 0;
  for (std::size_t member = 0; member < members(); ++member) {
    // One row, or none where a dimension before the one that is cut is empty.
    const std::uint64_t bytes =
        request_.lengths[member] * request_.geometry.slab_bytes * request_.geometry.rows;
    const std::uint64_t offset = std::exchange(start, start + bytes);
    if (bytes == 0) continue;  // what stays on the root is sent too: in the same kernel
    if (const auto owner = own(root())) {
      NcclCall call{.own_member = *owner, .peer = member, .count = bytes};
      call.function = apart ? Function::send : Function::receive;
      if (apart) {
        call.source = input_address(*owner) + offset;
      } else {
        call.target = output_address(*owner) + offset;
      }
      calls.push_back(call);
    }
    if (const auto other = own(member)) {
      NcclCall call{.own_member = *other, .peer = root(), .count = bytes};
      call.function = apart ? Function::receive : Function::send;
      if (apart) {
        call.target = output_address(*other);
      } else {
        call.source = input_address(*other);
      }
      calls.push_back(call);
    }
  }
}

}  // namespace tutti::collectives
