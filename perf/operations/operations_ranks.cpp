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
  Collective collective;
  bool has_in_place;
  void (*run)(Communicator&, const Call&, const Case&);
  /// Lists like `Call::outputs`.
  Lists (*run_returning)(Communicator&, const Call&, const Case&);
  std::string_view name_of_unequal{};  ///< where parts differ in length
};

class OfCommunicator final : public Operation {
 public:
  explicit OfCommunicator(const Description& description) : description_(description) {}

  [[nodiscard]] std::string_view name() const override {
    return has_unequal_parts() ? description_.name_of_unequal : name_of(description_.collective);
  }
  [[nodiscard]] std::optional<Collective> collective() const override { return description_.collective; }
  [[nodiscard]] bool needs_communicator() const override { return true; }
  [[nodiscard]] bool has_unequal_parts() const override { return !description_.name_of_unequal.empty(); }
  [[nodiscard]] bool has(Placement placement) const override {
    return placement != Placement::in_place || description_.has_in_place;
  }

  [[nodiscard]] Call prepare(const Case& what, Placement placement) const override {
    return prepare_collective(description_.collective, what, placement,
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
    Description{Collective::broadcast, true,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.broadcast(only_tensor(call.inputs), call.outputs[0], call.root);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return {communicator.broadcast(only_tensor(call.inputs), call.root)};
                }},
    Description{Collective::broadcast_coalesced, true,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.broadcast_coalesced(call.inputs.empty() ? TensorList() : call.inputs[0],
                                                   call.outputs, call.root);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return communicator.broadcast_coalesced(
                      call.inputs.empty() ? std::vector<Tensor>() : call.inputs[0], call.root);
                }},
    Description{Collective::reduce_add, true, &reduce,
                [](Communicator& communicator, const Call& call, const Case& what) -> Lists {
                  return at_root(call, communicator.reduce(call.inputs[0], what.operation(), call.root));
                }},
    Description{Collective::reduce_add_coalesced, true,
                [](Communicator& communicator, const Call& call, const Case& what) {
                  communicator.reduce_coalesced(call.inputs, call.outputs, what.operation(), call.root);
                },
                [](Communicator& communicator, const Call& call, const Case& what) -> Lists {
                  return at_root(call,
                                 communicator.reduce_coalesced(call.inputs, what.operation(), call.root));
                }},
    Description{Collective::scatter, false,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.scatter(only_tensor(call.inputs), call.outputs[0], call.root, call.dim);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return {communicator.scatter(only_tensor(call.inputs), call.root, call.dim)};
                }},
    Description{Collective::gather, false,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.gather(call.inputs[0], only_tensor(call.outputs), call.root, call.dim);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return at_root(call, communicator.gather(call.inputs[0], call.root, call.dim));
                }},
    Description{Collective::all_reduce_add, true,
                [](Communicator& communicator, const Call& call, const Case& what) {
                  communicator.all_reduce(call.inputs[0], call.outputs[0], what.operation());
                },
                [](Communicator& communicator, const Call& call, const Case& what) -> Lists {
                  return {communicator.all_reduce(call.inputs[0], what.operation())};
                }},
    Description{Collective::all_reduce_add_coalesced, true,
                [](Communicator& communicator, const Call& call, const Case& what) {
                  communicator.all_reduce_coalesced(call.inputs, call.outputs, what.operation());
                },
                [](Communicator& communicator, const Call& call, const Case& what) -> Lists {
                  return communicator.all_reduce_coalesced(call.inputs, what.operation());
                }},
    Description{Collective::all_gather, true,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.all_gather(call.inputs[0], call.outputs[0]);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return {communicator.all_gather(call.inputs[0])};
                }},
    Description{Collective::all_gather, true,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.all_gather(call.inputs[0], call.outputs[0], call.sizes);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return {communicator.all_gather(call.inputs[0], call.sizes)};
                },
                "all_gather_unequal"},
    Description{Collective::all_gather_coalesced, true,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.all_gather_coalesced(call.inputs, call.outputs);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return communicator.all_gather_coalesced(call.inputs);
                }},
    Description{Collective::reduce_scatter_add, true,
                [](Communicator& communicator, const Call& call, const Case& what) {
                  communicator.reduce_scatter(call.inputs[0], call.outputs[0], what.operation());
                },
                [](Communicator& communicator, const Call& call, const Case& what) -> Lists {
                  return {communicator.reduce_scatter(call.inputs[0], what.operation())};
                }},
    Description{Collective::reduce_scatter_add, true,
                [](Communicator& communicator, const Call& call, const Case& what) {
                  communicator.reduce_scatter(call.inputs[0], call.outputs[0], what.operation(), call.sizes);
                },
                [](Communicator& communicator, const Call& call, const Case& what) -> Lists {
                  return {communicator.reduce_scatter(call.inputs[0], what.operation(), call.sizes)};
                },
                "reduce_scatter_add_unequal"},
    Description{Collective::reduce_scatter_coalesced, true,
                [](Communicator& communicator, const Call& call, const Case& what) {
                  communicator.reduce_scatter_coalesced(call.inputs, call.outputs, what.operation());
                },
                [](Communicator& communicator, const Call& call, const Case& what) -> Lists {
                  return communicator.reduce_scatter_coalesced(call.inputs, what.operation());
                }},
    Description{Collective::all_to_all, true,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.all_to_all(call.inputs[0], call.outputs[0]);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return {communicator.all_to_all(call.inputs[0])};
                }},
    Description{Collective::all_to_all, true,
                [](Communicator& communicator, const Call& call, const Case&) {
                  communicator.all_to_all(call.inputs[0], call.outputs[0], call.input_sizes, call.out_sizes);
                },
                [](Communicator& communicator, const Call& call, const Case&) -> Lists {
                  return {communicator.all_to_all(call.inputs[0], call.input_sizes, call.out_sizes)};
                },
                "all_to_all_unequal"},
    Description{Collective::all_to_all_coalesced, true,
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
