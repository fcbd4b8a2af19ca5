// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/operation.hpp"
#include "tutti/communicator.hpp"

#include <concepts>
#include <utility>

namespace tutti::perf {
namespace {

Communicator& team(const Case& what) {
  return *what.members.communicator;
}

const Tensor& only_tensor(const Lists& lists) {
  static const Tensor none;
  return lists.empty() ? none : lists[0][0];
}

const std::vector<Tensor>& only_list(const Lists& lists) {
  static const std::vector<Tensor> none;
  return lists.empty() ? none : lists[0];
}

/// The root's result where the call has it: of no process but the root's.
template <class Result>
Lists at_root(const Call& call, Result result) {
  Lists lists(call.outputs.size());
  if (lists.empty()) return lists;
  if constexpr (std::same_as<Result, Tensor>) {
    lists.back().push_back(std::move(result));
  } else {
    lists.back() = std::move(result);
  }
  return lists;
}

/// A root that is not the first local member finds its tensor at its own place.
void reduce(const Call& call, const Case& what) {
  std::vector<Tensor> out(call.outputs.size() > 1 ? call.outputs.size() - 1 : 0);
  if (!call.outputs.empty()) out.push_back(call.outputs.back()[0]);
  team(what).reduce(call.inputs[0], out, call.operation(), call.root);
}

/// Sends a message from each member to the next one, and to the first from the last.
void pass_on(const Call& call, const Case& what) {
  const std::vector<Tensor>& inputs = call.inputs[0];
  const std::vector<Tensor>& outputs = call.outputs[0];
  if (inputs.size() == 1) {
    const int member = what.members.number_of(0);
    team(what).sendrecv(inputs[0], what.members.after(member), outputs[0], what.members.before(member));
    return;
  }
  std::vector<Message> messages;
  for (std::size_t local = 0; local < inputs.size(); ++local) {
    const int member = what.members.number_of(local);
    messages.push_back(Message::send(inputs[local], what.members.after(member)));
    messages.push_back(Message::recv(outputs[local], what.members.before(member)));
  }
  team(what).batch_send_recv(messages);
}

constexpr OperationRow rows_of_communicators[] = {
    {"broadcast", Collective::broadcast, true,
     [](const Call& call, const Case& what) {
       team(what).broadcast(only_tensor(call.inputs), call.outputs[0], call.root);
     },
     [](const Call& call, const Case& what) -> Lists {
       return {team(what).broadcast(only_tensor(call.inputs), call.root)};
     }},
    {"broadcast_coalesced", coalesced(Collective::broadcast), true,
     [](const Call& call, const Case& what) {
       team(what).broadcast_coalesced(only_list(call.inputs), call.outputs, call.root);
     },
     [](const Call& call, const Case& what) {
       return team(what).broadcast_coalesced(only_list(call.inputs), call.root);
     }},
    {"reduce_add", Collective::reduce, true, reduce,
     [](const Call& call, const Case& what) {
       return at_root(call, team(what).reduce(call.inputs[0], call.operation(), call.root));
     }},
    {"reduce_add_coalesced", coalesced(Collective::reduce), true,
     [](const Call& call, const Case& what) {
       team(what).reduce_coalesced(call.inputs, call.outputs, call.operation(), call.root);
     },
     [](const Call& call, const Case& what) {
       return at_root(call, team(what).reduce_coalesced(call.inputs, call.operation(), call.root));
     }},
    {"scatter", Collective::scatter, false,
     [](const Call& call, const Case& what) {
       team(what).scatter(only_tensor(call.inputs), call.outputs[0], call.root, call.dim);
     },
     [](const Call& call, const Case& what) -> Lists {
       return {team(what).scatter(only_tensor(call.inputs), call.root, call.dim)};
     }},
    {"gather", Collective::gather, false,
     [](const Call& call, const Case& what) {
       team(what).gather(call.inputs[0], only_tensor(call.outputs), call.root, call.dim);
     },
     [](const Call& call, const Case& what) {
       return at_root(call, team(what).gather(call.inputs[0], call.root, call.dim));
     }},
    {"all_reduce_add", Collective::all_reduce, true,
     [](const Call& call, const Case& what) {
       team(what).all_reduce(call.inputs[0], call.outputs[0], call.operation());
     },
     [](const Call& call, const Case& what) -> Lists {
       return {team(what).all_reduce(call.inputs[0], call.operation())};
     }},
    {"all_reduce_add_coalesced", coalesced(Collective::all_reduce), true,
     [](const Call& call, const Case& what) {
       team(what).all_reduce_coalesced(call.inputs, call.outputs, call.operation());
     },
     [](const Call& call, const Case& what) -> Lists {
       return team(what).all_reduce_coalesced(call.inputs, call.operation());
     }},
    {"all_gather", Collective::all_gather, true,
     [](const Call& call, const Case& what) { team(what).all_gather(call.inputs[0], call.outputs[0]); },
     [](const Call& call, const Case& what) -> Lists { return {team(what).all_gather(call.inputs[0])}; }},
    {"all_gather_unequal", Collective::all_gather, true,
     [](const Call& call, const Case& what) {
       team(what).all_gather(call.inputs[0], call.outputs[0], call.sizes);
     },
     [](const Call& call, const Case& what) -> Lists {
       return {team(what).all_gather(call.inputs[0], call.sizes)};
     },
     nullptr, true},
    {"all_gather_coalesced", coalesced(Collective::all_gather), true,
     [](const Call& call, const Case& what) { team(what).all_gather_coalesced(call.inputs, call.outputs); },
     [](const Call& call, const Case& what) -> Lists {
       return team(what).all_gather_coalesced(call.inputs);
     }},
    {"reduce_scatter_add", Collective::reduce_scatter, true,
     [](const Call& call, const Case& what) {
       team(what).reduce_scatter(call.inputs[0], call.outputs[0], call.operation());
     },
     [](const Call& call, const Case& what) -> Lists {
       return {team(what).reduce_scatter(call.inputs[0], call.operation())};
     }},
    {"reduce_scatter_add_unequal", Collective::reduce_scatter, true,
     [](const Call& call, const Case& what) {
       team(what).reduce_scatter(call.inputs[0], call.outputs[0], call.operation(), call.sizes);
     },
     [](const Call& call, const Case& what) -> Lists {
       return {team(what).reduce_scatter(call.inputs[0], call.operation(), call.sizes)};
     },
     nullptr, true},
    {"reduce_scatter_coalesced", coalesced(Collective::reduce_scatter), true,
     [](const Call& call, const Case& what) {
       team(what).reduce_scatter_coalesced(call.inputs, call.outputs, call.operation());
     },
     [](const Call& call, const Case& what) -> Lists {
       return team(what).reduce_scatter_coalesced(call.inputs, call.operation());
     }},
    {"all_to_all", Collective::all_to_all, true,
     [](const Call& call, const Case& what) { team(what).all_to_all(call.inputs[0], call.outputs[0]); },
     [](const Call& call, const Case& what) -> Lists { return {team(what).all_to_all(call.inputs[0])}; }},
    {"all_to_all_unequal", Collective::all_to_all, true,
     [](const Call& call, const Case& what) {
       team(what).all_to_all(call.inputs[0], call.outputs[0], call.input_sizes, call.out_sizes);
     },
     [](const Call& call, const Case& what) -> Lists {
       return {team(what).all_to_all(call.inputs[0], call.input_sizes, call.out_sizes)};
     },
     nullptr, true},
    {"all_to_all_coalesced", coalesced(Collective::all_to_all), true,
     [](const Call& call, const Case& what) { team(what).all_to_all_coalesced(call.inputs, call.outputs); },
     [](const Call& call, const Case& what) { return team(what).all_to_all_coalesced(call.inputs); }},
    {"sendrecv", std::nullopt, false, pass_on},
    {"barrier", Collective::barrier, false, [](const Call&, const Case& what) { team(what).barrier(); }},
};

}  // namespace

std::span<const Operation> operations_of_communicators() {
  static const std::vector<Operation> all = operations_of(rows_of_communicators, true);
  return all;
}

}  // namespace tutti::perf
