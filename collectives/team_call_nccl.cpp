#include "collectives/team_call.hpp"
#include "transport/tuning.hpp"
#include "tutti/error.hpp"

#include <numeric>
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

std::uint64_t nccl_from(Operation operation) {
  switch (operation) {
    case Operation::all_reduce_add:
    case Operation::all_reduce_add_coalesced:
      return transport::ranks_nccl_from.all_reduce;
    case Operation::all_gather:
      return transport::ranks_nccl_from.all_gather;
    default:
      return transport::ranks_nccl_from.others;
  }
}

bool cuts(Operation operation) {
  return operation == Operation::scatter || operation == Operation::gather;
}

}  // namespace

std::string TeamCall::nccl_refusal() const {
  if (context_.nccl == nullptr) return context_.nccl_refusal;
  if (signature_.operation == Operation::barrier || signature_.operation == Operation::split)
    return "nothing is to be moved";
  if (members() < 2) return "there is one member";
  if (cuts(signature_.operation) && geometry_.rows > 1) return "rows are apart in memory";
  if (!is_sum(signature_.operation)) return {};
  if (team_.settings().determinism == Determinism::bitwise) return "it adds in an order of its own";
  for (const TeamColumn& column : columns_) {
    if (!context_.nccl->adds(column.dtype)) return fmt::format("it does not add {}", name_of(column.dtype));
  }
  return {};
}

std::string TeamCall::nccl_objection() const {
  std::string refusal = nccl_refusal();
  if (!refusal.empty() || team_.settings().transport == TransportKind::nccl) return refusal;
  if (team_.spans_hosts()) return {};  // it alone reaches from GPU to GPU
  const std::uint64_t bytes = link_bytes();
  const std::uint64_t from = nccl_from(signature_.operation);
  if (bytes <= from && (is_direct_ || largest_message() <= tuning().message_bytes)) {
    return fmt::format("{} bytes over a link are not more than the {} from which it is faster", bytes, from);
  }
  if (bytes / columns_.size() < transport::ranks_nccl_tensor) return "the tensors are small";
  return {};
}

std::uint64_t TeamCall::largest_message() const {
  const std::uint64_t whole = link_bytes();
  switch (signature_.operation) {
    case Operation::scatter:
    case Operation::reduce_scatter_add:
      return whole;
    default:
      return whole / (members() - 1);
  }
}

std::uint64_t TeamCall::link_bytes() const {
  std::uint64_t bytes = 0;
  for (const TeamColumn& column : columns_) bytes += column.bytes();
  const std::uint64_t others = members() - 1;
  switch (signature_.operation) {
    case Operation::scatter:
    case Operation::gather:
      // Known when all ranks have told their parts' lengths.
      return geometry_.slab_bytes * geometry_.rows *
             std::accumulate(lengths_.begin(), lengths_.end(), std::uint64_t{0}) / members() * others;
    case Operation::reduce_scatter_add:
      return bytes / members() * others;
    default:
      return bytes * others;
  }
}

void TeamCall::enqueue_nccl() {
  context_.nccl->connect(sequence_);
  context_.nccl->enqueue(nccl_calls(), streams_);
  context_.launcher.finish(sequence_, streams_);
  context_.last_plan = signature_.operation;
}

std::vector<NcclCall> TeamCall::nccl_calls() const {
  std::vector<NcclCall> calls;
  if (cuts(signature_.operation)) {
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
    const std::uint64_t bytes = lengths_[member] * geometry_.slab_bytes;
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
