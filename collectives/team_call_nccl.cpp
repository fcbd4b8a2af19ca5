#include "collectives/team_call.hpp"
#include "transport/tuning.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

/// Calls between processes in NCCL's terms.
namespace tutti::collectives {
namespace {

using transport::ranks::NcclCall;
using transport::ranks::Operation;

bool is_sum(Operation operation) {
  switch (operation) {
    case Operation::reduce_add:
    case Operation::reduce_add_coalesced:
    case Operation::all_reduce_add:
    case Operation::all_reduce_add_coalesced:
    case Operation::reduce_scatter_add:
      return true;
    default:
      return false;
  }
}

}  // namespace

transport::RanksPattern TeamCall::pattern() const {
  switch (signature_.operation) {
    case Operation::reduce_add:
    case Operation::reduce_add_coalesced:
      return transport::RanksPattern::reduce;
    case Operation::all_reduce_add:
    case Operation::all_reduce_add_coalesced:
      return transport::RanksPattern::all_reduce;
    case Operation::all_gather:
      return transport::RanksPattern::all_gather;
    case Operation::reduce_scatter_add:
      return transport::RanksPattern::reduce_scatter;
    case Operation::scatter:
      return transport::RanksPattern::scatter;
    case Operation::gather:
      return transport::RanksPattern::gather;
    default:
      return transport::RanksPattern::broadcast;
  }
}

TeamCall::NcclObjection TeamCall::nccl_refusal() const {
  if (context_.nccl == nullptr) return NcclObjection::is_absent;
  if (!moves()) return NcclObjection::nothing_moves;
  if (members() < 2) return NcclObjection::one_member;
  if (has_own_numbers(signature_.operation) && geometry_.rows > 1) return NcclObjection::rows_apart;
  if (!is_sum(signature_.operation)) return NcclObjection::none;
  if (team_.settings().determinism == Determinism::bitwise) return NcclObjection::own_order;
  const auto is_added = [this](const TeamColumn& column) { return context_.nccl->adds(column.dtype); };
  return std::ranges::all_of(columns_, is_added) ? NcclObjection::none : NcclObjection::dtype;
}

TeamCall::NcclObjection TeamCall::nccl_objection() const {
  const NcclObjection refusal = nccl_refusal();
  if (refusal != NcclObjection::none || team_.settings().transport == TransportKind::nccl) return refusal;
  if (team_.spans_hosts()) return NcclObjection::none;  // it alone reaches from GPU to GPU
  // Making its connections cannot be captured.
  if (context_.launcher.captured() && !context_.nccl->is_connected()) return NcclObjection::not_connected;
  const transport::ranks::CallShape shape = this->shape();
  if (rounds_match_nccl(shape, means(), rounds_)) return NcclObjection::not_faster;
  if (shape.payload / shape.tensors < transport::ranks_nccl_tensor) return NcclObjection::small_tensors;
  return NcclObjection::none;
}

std::string TeamCall::to_words(NcclObjection objection) const {
  switch (objection) {
    case NcclObjection::none:
      return {};
    case NcclObjection::is_absent:
      return context_.nccl_refusal;
    case NcclObjection::nothing_moves:
      return "nothing is to be moved";
    case NcclObjection::one_member:
      return "there is one member";
    case NcclObjection::rows_apart:
      return "rows are apart in memory";
    case NcclObjection::own_order:
      return "it adds in an order of its own";
    case NcclObjection::dtype:
      return "it does not add all of the element types";
    case NcclObjection::not_faster:
      return fmt::format("it is not faster for {} bytes", shape().payload);
    case NcclObjection::small_tensors:
      return "the tensors are small";
    case NcclObjection::not_connected:
      return "the call is captured before the first one that goes by NCCL";
  }
  return {};
}

void TeamCall::enqueue_nccl() {
  context_.nccl->connect(sequence_);
  context_.nccl->enqueue(nccl_calls(), streams_);
  context_.launcher.finish(sequence_, streams_);
  context_.last_plan = signature_.operation;
}

std::vector<NcclCall> TeamCall::nccl_calls() const {
  std::vector<NcclCall> calls;
  if (has_own_numbers(signature_.operation)) {
    add_transfers(calls);
    return calls;
  }
  for (std::size_t t = 0; t < columns_.size(); ++t) {
    const TeamColumn& column = columns_[t];
    for (std::size_t own = 0; own < locals(); ++own) {
      NcclCall call{.own_member = own,
                    .peer = root_,
                    .source = input_address(own, t),
                    .target = output_address(own, t),
                    .count = column.bytes()};
      const auto sums = [&](NcclCall::Kind kind, std::uint64_t count) {
        call.kind = kind;
        call.count = count;
        call.dtype = column.dtype;
      };
      switch (signature_.operation) {
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
  const bool apart = signature_.operation == Operation::scatter;
  std::uint64_t start = 0;
  for (std::size_t member = 0; member < members(); ++member) {
    // One row, or none where a dimension before the one that is cut is empty.
    const std::uint64_t bytes = lengths_[member] * geometry_.slab_bytes * geometry_.rows;
    const std::uint64_t offset = std::exchange(start, start + bytes);
    if (bytes == 0) continue;  // what stays on the root is sent too: in the same kernel
    if (const auto root = own(root_)) {
      NcclCall call{.own_member = *root, .peer = member, .count = bytes};
      call.kind = apart ? NcclCall::Kind::send : NcclCall::Kind::receive;
      if (apart) {
        call.source = input_address(*root) + offset;
      } else {
        call.target = output_address(*root) + offset;
      }
      calls.push_back(call);
    }
    if (const auto other = own(member)) {
      NcclCall call{.own_member = *other, .peer = root_, .count = bytes};
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
