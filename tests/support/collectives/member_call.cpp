// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/member_call.hpp"

#include <cstddef>
#include <stdexcept>
#include <string>
#include <utility>

namespace tutti::test {
namespace {

using Row = std::vector<Tensor>;  // of one local member

void make_call_of_lists(Communicator& communicator, Collective collective, const MemberCall& call,
                        StreamList streams) {
  const auto& [inputs, out, operation, root, dim] = call;
  switch (collective) {
    case Collective::broadcast:
      if (inputs.empty()) return communicator.broadcast_coalesced(out, root, streams);
      return communicator.broadcast_coalesced(inputs.front(), out, root, streams);
    case Collective::reduce:
      return communicator.reduce_coalesced(inputs, out, operation, root, streams);
    case Collective::all_reduce:
      return communicator.all_reduce_coalesced(inputs, out, operation, streams);
    case Collective::all_gather:
      return communicator.all_gather_coalesced(inputs, out, streams);
    case Collective::reduce_scatter:
      return communicator.reduce_scatter_coalesced(inputs, out, operation, streams);
    case Collective::all_to_all:
      return communicator.all_to_all_coalesced(inputs, out, streams);
    default:
      throw std::invalid_argument(std::string(name_of(collective)) + " takes no lists");
  }
}

std::vector<Row> returned_lists(Communicator& communicator, Collective collective, const MemberCall& call) {
  const auto& inputs = call.inputs;
  switch (collective) {
    case Collective::broadcast:
      return communicator.broadcast_coalesced(inputs.front(), call.root);
    case Collective::reduce:
      return {{}, communicator.reduce_coalesced(inputs, call.operation, call.root)};
    case Collective::all_reduce:
      return communicator.all_reduce_coalesced(inputs, call.operation);
    case Collective::all_gather:
      return communicator.all_gather_coalesced(inputs);
    case Collective::reduce_scatter:
      return communicator.reduce_scatter_coalesced(inputs, call.operation);
    case Collective::all_to_all:
      return communicator.all_to_all_coalesced(inputs);
    default:
      throw std::invalid_argument(std::string(name_of(collective)) + " takes no lists");
  }
}

Row returned_tensors(Communicator& communicator, Collective collective, const MemberCall& call) {
  const Row inputs = firsts(call.inputs);
  switch (collective) {
    case Collective::broadcast:
      return communicator.broadcast(inputs.front(), call.root);
    case Collective::reduce:
      return {Tensor(), communicator.reduce(inputs, call.operation, call.root)};
    case Collective::scatter:
      return communicator.scatter(inputs.front(), call.root, call.dim);
    case Collective::gather:
      return {Tensor(), communicator.gather(inputs, call.root, call.dim)};
    case Collective::all_reduce:
      return communicator.all_reduce(inputs, call.operation);
    case Collective::all_gather:
      return communicator.all_gather(inputs);
    case Collective::reduce_scatter:
      return communicator.reduce_scatter(inputs, call.operation);
    case Collective::all_to_all:
      return communicator.all_to_all(inputs);
    default:
      throw std::invalid_argument(std::string(name_of(collective)) + " returns nothing");
  }
}

Tensor last_of(const std::vector<Row>& rows) {
  return rows.empty() || rows.back().empty() ? Tensor() : rows.back().front();
}

}  // namespace

void make_call(Communicator& communicator, CollectiveForm form, const MemberCall& call, StreamList streams) {
  if (form.takes_lists) return make_call_of_lists(communicator, form.collective, call, streams);
  const Row inputs = firsts(call.inputs);
  const Row out = firsts(call.out);
  const Tensor own = inputs.empty() ? Tensor() : inputs.front();
  switch (form.collective) {
    case Collective::broadcast:
      if (inputs.empty()) return communicator.broadcast(out, call.root, streams);
      return communicator.broadcast(own, out, call.root, streams);
    case Collective::reduce:
      return communicator.reduce(inputs, out, call.operation, call.root, streams);
    case Collective::scatter:
      return communicator.scatter(own, out, call.root, call.dim, streams);
    case Collective::gather:
      return communicator.gather(inputs, last_of(call.out), call.root, call.dim, streams);
    case Collective::all_reduce:
      return communicator.all_reduce(inputs, out, call.operation, streams);
    case Collective::all_gather:
      return communicator.all_gather(inputs, out, streams);
    case Collective::reduce_scatter:
      return communicator.reduce_scatter(inputs, out, call.operation, streams);
    case Collective::all_to_all:
      return communicator.all_to_all(inputs, out, streams);
    case Collective::barrier:
      return communicator.barrier(streams);
    case Collective::split:
      break;
  }
  throw std::invalid_argument(std::string(name_of(form.collective)) + " is no such call");
}

std::vector<Row> make_returning_call(Communicator& communicator, CollectiveForm form,
                                     const MemberCall& call) {
  if (form.takes_lists) return returned_lists(communicator, form.collective, call);
  std::vector<Row> rows;
  for (Tensor& tensor : returned_tensors(communicator, form.collective, call)) {
    Row& row = rows.emplace_back();
    if (tensor.defined()) row.push_back(std::move(tensor));
  }
  return rows;
}

std::vector<Tensor> firsts(const std::vector<Row>& rows) {
  Row tensors;
  for (const Row& row : rows) tensors.push_back(row.empty() ? Tensor() : row.front());
  return tensors;
}

std::vector<CollectiveForm> all_forms() {
  std::vector<CollectiveForm> forms;
  for (std::size_t value = 0; value < collective_count; ++value) {
    const auto collective = static_cast<Collective>(value);
    if (!moves_tensors(collective)) continue;
    forms.emplace_back(collective);
    if (traits_of(collective).may_take_lists()) forms.push_back(coalesced(collective));
  }
  return forms;
}

}  // namespace tutti::test
