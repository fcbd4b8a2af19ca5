#include "collectives/team_call.hpp"

#include <utility>

/// Calls between processes in NCCL's terms.
namespace tutti::collectives {
namespace {

using transport::ranks::NcclCall;
using transport::ranks::Operation;

}  // namespace

void TeamCall::enqueue_nccl() {
  context_.nccl->connect(sequence_);
  context_.nccl->enqueue(nccl_calls(), streams_);
  context_.launcher.finish(sequence_, streams_);
  context_.last_plan = request_.operation;
}

std::vector<NcclCall> TeamCall::nccl_calls() const {
  std::vector<NcclCall> calls;
  if (has_own_numbers(request_.operation)) {
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
      const auto sums = [&](NcclCall::Kind kind, std::uint64_t count) {
        call.kind = kind;
        call.count = count;
        call.dtype = column.dtype;
      };
      switch (request_.operation) {
        case Operation::reduce_add:
        case Operation::reduce_add_coalesced:
          sums(NcclCall::Kind::reduce, column.elements);
          break;
        case Operation::all_reduce_add:
        case Operation::all_reduce_add_coalesced:
          sums(NcclCall::Kind::all_reduce, column.elements);
          break;
        case Operation::reduce_scatter_add:
          sums(NcclCall::Kind::reduce_scatter, column.elements / members());
          break;
        case Operation::all_gather:
          call.kind = NcclCall::Kind::all_gather;
          break;
        default:
          call.kind = NcclCall::Kind::broadcast;
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
  const bool apart = request_.operation == Operation::scatter;
  std::uint64_t start = 0;
  for (std::size_t member = 0; member < members(); ++member) {
    // One row, or none where a dimension before the one that is cut is empty.
    const std::uint64_t bytes =
        request_.lengths[member] * request_.geometry.slab_bytes * request_.geometry.rows;
    const std::uint64_t offset = std::exchange(start, start + bytes);
    if (bytes == 0) continue;  // what stays on the root is sent too: in the same kernel
    if (const auto owner = own(root())) {
      NcclCall call{.own_member = *owner, .peer = member, .count = bytes};
      call.kind = apart ? NcclCall::Kind::send : NcclCall::Kind::receive;
      if (apart) {
        call.source = input_address(*owner) + offset;
      } else {
        call.target = output_address(*owner) + offset;
      }
      calls.push_back(call);
    }
    if (const auto other = own(member)) {
      NcclCall call{.own_member = *other, .peer = root(), .count = bytes};
      call.kind = apart ? NcclCall::Kind::receive : NcclCall::Kind::send;
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
