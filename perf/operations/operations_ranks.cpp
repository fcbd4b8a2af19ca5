// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/prepare.hpp"
#include "tutti/communicator.hpp"

#include <array>
#include <concepts>
#include <string_view>
#include <utility>
#include <vector>

namespace tutti::perf::operations {
namespace {

/// What tells one collective of a communicator from another.
struct Description {
  std::string_view name;
  CollectiveForm form;
  bool has_in_place;
  void (*run)(Communicator&, const Call&, const Case&);
  /// Lists like `Call::outputs`.
  Lists (*run_returning)(Communicator&, const Call&, const Case&);
  bool has_unequal_parts = false;
};

class OfCommunicator final : public Operation {
 public:
  explicit OfCommunicator(const Description& description) : description_(description) {}

  [[nodiscard]] std::string_view name() const override { return description_.name; }
  [[nodiscard]] std::optional<CollectiveForm> form() const override { return description_.form; }
  [[nodiscard]] bool needs_communicator() const override { return true; }
  [[nodiscard]] bool has_unequal_parts() const override { return description_.has_unequal_parts; }
  [[nodiscard]] bool has(Placement placement) const override {
    return placement != Placement::in_place || description_.has_in_place;
  }

  [[nodiscard]] Call prepare(const Case& what, Placement placement) const override {
    return prepare_collective(description_.form, what, placement,
                              has_unequal_parts() ? Parts::unequal : Parts::equal);
  }
  void run(const Call& call, const Case& what) const override {
    description_.run(*what.members.communicator, call, what);
  }
  [[nodiscard]] Lists run_returning(const Call& call, const Case& what) const override {
    return description_.run_returning(*what.members.communicator, call, what);
  }
  [[nodiscard]] PersistentCollective bind(const Call& call, const Case& what) const override {
    return what.members.communicator->persistent([this, call, what] { run(call, what); });
  }

 private:
  const Description& description_;
};

const Tensor& only_tensor(const Lists& lists) {
  static const Tensor none;
  return lists.empty() ? none : lists[0][0];
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
void reduce(Communicator& communicator, const Call& call, const Case& what) {
  std::vector<Tensor> out(call.outputs.size() > 1 ? call.outputs.size() - 1 : 0);
  if (!call.outputs.empty()) out.push_back(call.outputs.back()[0]);
  communicator.reduce(call.inputs[0], out, what.operation(), call.root);
}

constexpr std::array descriptions{
    Description{"broadcast", Collective::broadcast, true,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.broadcast(only_tensor(call.inputs), call.outputs[0], call.root);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return {communicator.broadcast(only_tensor(call.inputs), call.root)};
                }},
    Description{"broadcast_coalesced", coalesced(Collective::broadcast), true,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.broadcast_coalesced(call.inputs.empty() ? TensorList() : call.inputs[0],
                                                   call.outputs, call.root);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return communicator.broadcast_coalesced(
                      call.inputs.empty() ? std::vector<Tensor>() : call.inputs[0], call.root);
                }},
    Description{"reduce_add", Collective::reduce, true, &reduce,
                [](Communicator& communicator, const Call& call, const Case& what) -> Lists {
                  return at_root(call, communicator.reduce(call.inputs[0], what.operation(), call.root));
                }},
    Description{"reduce_add_coalesced", coalesced(Collective::reduce), true,
                [](Communicator& communicator, const Call& call, const Case& what) {
                  communicator.reduce_coalesced(call.inputs, call.outputs, what.operation(), call.root);
                },
                [](Communicator& communicator, const Call& call, const Case& what) -> Lists {
                  return at_root(call,
                                 communicator.reduce_coalesced(call.inputs, what.operation(), call.root));
                }},
    Description{"scatter", Collective::scatter, false,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.scatter(only_tensor(call.inputs), call.outputs[0], call.root, call.dim);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return {communicator.scatter(only_tensor(call.inputs), call.root, call.dim)};
                }},
    Description{"gather", Collective::gather, false,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.gather(call.inputs[0], only_tensor(call.outputs), call.root, call.dim);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return at_root(call, communicator.gather(call.inputs[0], call.root, call.dim));
                }},
    Description{"all_reduce_add", Collective::all_reduce, true,
                [](Communicator& communicator, const Call& call, const Case& what) {
                  communicator.all_reduce(call.inputs[0], call.outputs[0], what.operation());
                },
                [](Communicator& communicator, const Call& call, const Case& what) -> Lists {
                  return {communicator.all_reduce(call.inputs[0], what.operation())};
                }},
    Description{"all_reduce_add_coalesced", coalesced(Collective::all_reduce), true,
                [](Communicator& communicator, const Call& call, const Case& what) {
                  communicator.all_reduce_coalesced(call.inputs, call.outputs, what.operation());
                },
                [](Communicator& communicator, const Call& call, const Case& what) -> Lists {
                  return communicator.all_reduce_coalesced(call.inputs, what.operation());
                }},
    Description{"all_gather", Collective::all_gather, true,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.all_gather(call.inputs[0], call.outputs[0]);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return {communicator.all_gather(call.inputs[0])};
                }},
    Description{"all_gather_unequal", Collective::all_gather, true,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.all_gather(call.inputs[0], call.outputs[0], call.sizes);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return {communicator.all_gather(call.inputs[0], call.sizes)};
                },
                true},
    Description{"all_gather_coalesced", coalesced(Collective::all_gather), true,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.all_gather_coalesced(call.inputs, call.outputs);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return communicator.all_gather_coalesced(call.inputs);
                }},
    Description{"reduce_scatter_add", Collective::reduce_scatter, true,
                [](Communicator& communicator, const Call& call, const Case& what) {
                  communicator.reduce_scatter(call.inputs[0], call.outputs[0], what.operation());
                },
                [](Communicator& communicator, const Call& call, const Case& what) -> Lists {
                  return {communicator.reduce_scatter(call.inputs[0], what.operation())};
                }},
    Description{"reduce_scatter_add_unequal", Collective::reduce_scatter, true,
                [](Communicator& communicator, const Call& call, const Case& what) {
                  communicator.reduce_scatter(call.inputs[0], call.outputs[0], what.operation(), call.sizes);
                },
                [](Communicator& communicator, const Call& call, const Case& what) -> Lists {
                  return {communicator.reduce_scatter(call.inputs[0], what.operation(), call.sizes)};
                },
                true},
    Description{"reduce_scatter_coalesced", coalesced(Collective::reduce_scatter), true,
                [](Communicator& communicator, const Call& call, const Case& what) {
                  communicator.reduce_scatter_coalesced(call.inputs, call.outputs, what.operation());
                },
                [](Communicator& communicator, const Call& call, const Case& what) -> Lists {
                  return communicator.reduce_scatter_coalesced(call.inputs, what.operation());
                }},
    Description{"all_to_all", Collective::all_to_all, true,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.all_to_all(call.inputs[0], call.outputs[0]);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return {communicator.all_to_all(call.inputs[0])};
                }},
    Description{"all_to_all_unequal", Collective::all_to_all, true,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.all_to_all(call.inputs[0], call.outputs[0], call.input_sizes, call.out_sizes);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return {communicator.all_to_all(call.inputs[0], call.input_sizes, call.out_sizes)};
                },
                true},
    Description{"all_to_all_coalesced", coalesced(Collective::all_to_all), true,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.all_to_all_coalesced(call.inputs, call.outputs);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return communicator.all_to_all_coalesced(call.inputs);
                }},
};

}  // namespace

std::span<const Operation* const> of_communicators() {
  static const std::vector<OfCommunicator> operations(descriptions.begin(), descriptions.end());
  static const std::vector<const Operation*> pointers = [] {
    std::vector<const Operation*> all;
    for (const OfCommunicator& operation : operations) all.push_back(&operation);
    return all;
  }();
  return pointers;
}

}  // namespace tutti::perf::operations
