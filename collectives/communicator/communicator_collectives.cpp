// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/communicator_impl.hpp"
#include "collectives/communicator/operations.hpp"
#include "collectives/communicator/team_call.hpp"
#include "tutti/communicator.hpp"
#include "tutti/error.hpp"

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

/// Calls that write to outputs that are given.
namespace tutti {
namespace {

using collectives::MemberOperands;
using collectives::Named;
using collectives::PartSizes;
using collectives::TeamCall;
using collectives::TeamContext;

/// A call in which all members have inputs and outputs.
void call_for_all(TeamContext& context, CollectiveForm form, const ReduceOp& op, const MemberOperands& inputs,
                  const MemberOperands& out, StreamList streams) {
  TeamCall call(context, form, streams);
  collectives::run_for_all(call, op, inputs, out);
}

}  // namespace

CommunicatorCollectives::CommunicatorCollectives() noexcept = default;
CommunicatorCollectives::CommunicatorCollectives(std::unique_ptr<Impl> impl) noexcept
    : impl_(std::move(impl)) {}
CommunicatorCollectives::CommunicatorCollectives(CommunicatorCollectives&&) noexcept = default;
CommunicatorCollectives& CommunicatorCollectives::operator=(CommunicatorCollectives&&) noexcept = default;
CommunicatorCollectives::~CommunicatorCollectives() = default;

CommunicatorCollectives::Impl& CommunicatorCollectives::impl() const {
  if (impl_) return *impl_;
  throw Error(ErrorCode::invalid_argument,
              "Communicator: it is empty (default-constructed or moved from), expected one that has been "
              "made or moved "
              "into it");
}

void CommunicatorCollectives::broadcast(TensorList tensors, int root, StreamList streams) {
  TeamCall call(*impl().context, Collective::broadcast, streams);
  collectives::broadcast_in_place(call, MemberOperands::one_each(tensors), root);
}

void CommunicatorCollectives::broadcast(const Tensor& tensor, TensorList out, int root, StreamList streams) {
  TeamCall call(*impl().context, Collective::broadcast, streams);
  collectives::broadcast_into(call, Named::one("tensor", tensor), MemberOperands::one_each(out), root);
}

void CommunicatorCollectives::broadcast_coalesced(TensorLists tensors, int root, StreamList streams) {
  TeamCall call(*impl().context, coalesced(Collective::broadcast), streams);
  collectives::broadcast_in_place(call, MemberOperands::lists(tensors), root);
}

void CommunicatorCollectives::broadcast_coalesced(TensorList tensors, TensorLists out, int root,
                                                  StreamList streams) {
  TeamCall call(*impl().context, coalesced(Collective::broadcast), streams);
  collectives::broadcast_into(call, {"tensors", tensors}, MemberOperands::lists(out), root);
}

void CommunicatorCollectives::reduce(TensorList inputs, TensorList out, const ReduceOp& op, int root,
                                     StreamList streams) {
  TeamCall call(*impl().context, Collective::reduce, streams);
  collectives::reduce_to_root(call, op, MemberOperands::one_each(inputs), MemberOperands::one_each(out),
                              root);
}

void CommunicatorCollectives::reduce_coalesced(TensorLists inputs, TensorLists out, const ReduceOp& op,
                                               int root, StreamList streams) {
  TeamCall call(*impl().context, coalesced(Collective::reduce), streams);
  collectives::reduce_to_root(call, op, MemberOperands::lists(inputs), MemberOperands::lists(out), root);
}

void CommunicatorCollectives::all_reduce(TensorList inputs, TensorList out, const ReduceOp& op,
                                         StreamList streams) {
  call_for_all(*impl().context, Collective::all_reduce, op, MemberOperands::one_each(inputs),
               MemberOperands::one_each(out), streams);
}

void CommunicatorCollectives::all_reduce_coalesced(TensorLists inputs, TensorLists out, const ReduceOp& op,
                                                   StreamList streams) {
  call_for_all(*impl().context, coalesced(Collective::all_reduce), op, MemberOperands::lists(inputs),
               MemberOperands::lists(out), streams);
}

void CommunicatorCollectives::all_gather(TensorList inputs, TensorList out, StreamList streams) {
  call_for_all(*impl().context, Collective::all_gather, ReduceOp::sum, MemberOperands::one_each(inputs),
               MemberOperands::one_each(out), streams);
}

void CommunicatorCollectives::all_gather_coalesced(TensorLists inputs, TensorLists out, StreamList streams) {
  call_for_all(*impl().context, coalesced(Collective::all_gather), ReduceOp::sum,
               MemberOperands::lists(inputs), MemberOperands::lists(out), streams);
}

void CommunicatorCollectives::reduce_scatter(TensorList inputs, TensorList out, const ReduceOp& op,
                                             StreamList streams) {
  call_for_all(*impl().context, Collective::reduce_scatter, op, MemberOperands::one_each(inputs),
               MemberOperands::one_each(out), streams);
}

void CommunicatorCollectives::reduce_scatter_coalesced(TensorLists inputs, TensorLists out,
                                                       const ReduceOp& op, StreamList streams) {
  call_for_all(*impl().context, coalesced(Collective::reduce_scatter), op, MemberOperands::lists(inputs),
               MemberOperands::lists(out), streams);
}

void CommunicatorCollectives::all_gather(TensorList inputs, TensorList out, ListOf<std::int64_t> sizes,
                                         StreamList streams) {
  TeamCall call(*impl().context, Collective::all_gather, streams);
  collectives::gather_to_all(call, MemberOperands::one_each(inputs), MemberOperands::one_each(out),
                             PartSizes{.sizes = sizes});
}

void CommunicatorCollectives::gather_along(TensorList inputs, TensorList out, ListOf<std::int64_t> sizes,
                                           int dim, StreamList streams) {
  TeamCall call(*impl().context, Collective::all_gather, streams);
  collectives::gather_to_all(call, MemberOperands::one_each(inputs), MemberOperands::one_each(out),
                             PartSizes{.sizes = sizes, .dim = dim});
}

void CommunicatorCollectives::reduce_scatter(TensorList inputs, TensorList out, const ReduceOp& op,
                                             ListOf<std::int64_t> sizes, StreamList streams) {
  TeamCall call(*impl().context, Collective::reduce_scatter, streams);
  collectives::reduce_and_scatter(call, op, MemberOperands::one_each(inputs), MemberOperands::one_each(out),
                                  PartSizes{.sizes = sizes});
}

void CommunicatorCollectives::reduce_scatter_along(TensorList inputs, TensorList out, const ReduceOp& op,
                                                   ListOf<std::int64_t> sizes, int dim, StreamList streams) {
  TeamCall call(*impl().context, Collective::reduce_scatter, streams);
  collectives::reduce_and_scatter(call, op, MemberOperands::one_each(inputs), MemberOperands::one_each(out),
                                  PartSizes{.sizes = sizes, .dim = dim});
}

void CommunicatorCollectives::all_to_all(TensorList inputs, TensorList out, StreamList streams) {
  call_for_all(*impl().context, Collective::all_to_all, ReduceOp::sum, MemberOperands::one_each(inputs),
               MemberOperands::one_each(out), streams);
}

void CommunicatorCollectives::all_to_all_coalesced(TensorLists inputs, TensorLists out, StreamList streams) {
  call_for_all(*impl().context, coalesced(Collective::all_to_all), ReduceOp::sum,
               MemberOperands::lists(inputs), MemberOperands::lists(out), streams);
}

void CommunicatorCollectives::all_to_all(TensorList inputs, TensorList out,
                                         ListOf<std::vector<std::int64_t>> input_sizes,
                                         ListOf<std::vector<std::int64_t>> out_sizes, StreamList streams) {
  TeamCall call(*impl().context, Collective::all_to_all, streams);
  collectives::all_to_all(call, inputs, out, input_sizes, out_sizes);
}

void CommunicatorCollectives::scatter(const Tensor& tensor, TensorList out, int root, int dim,
                                      StreamList streams) {
  TeamCall call(*impl().context, Collective::scatter, streams);
  collectives::scatter_from_root(call, tensor, out, root, dim);
}

void CommunicatorCollectives::gather(TensorList tensors, const Tensor& out, int root, int dim,
                                     StreamList streams) {
  TeamCall call(*impl().context, Collective::gather, streams);
  collectives::gather_to_root(call, tensors, out, root, dim);
}

void CommunicatorCollectives::barrier(StreamList streams) {
  TeamCall call(*impl().context, Collective::barrier, streams);
  call.begin({});
  call.run();
}

}  // namespace tutti
