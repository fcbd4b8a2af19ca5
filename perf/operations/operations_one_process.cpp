// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/operation.hpp"

namespace tutti::perf {
namespace {

// Sums are reductions by ReduceOp::sum, as they are in the library.
constexpr OperationRow rows_of_one_process[] = {
    {"broadcast", Collective::broadcast, true,
     [](const Call& call, const Case& what) { broadcast(call.inputs[0][0], call.outputs[0], what.options); },
     [](const Call& call, const Case& what) -> Lists {
       return {broadcast(call.inputs[0][0], call.devices, what.options)};
     },
     [](const Call& call, const Case& what) {
       return persistent_broadcast(call.inputs[0][0], call.outputs[0], what.options);
     }},
    {"broadcast_coalesced", coalesced(Collective::broadcast), true,
     [](const Call& call, const Case& what) {
       broadcast_coalesced(call.inputs[0], call.outputs, default_buffer_size, what.options);
     },
     [](const Call& call, const Case& what) {
       return broadcast_coalesced(call.inputs[0], call.devices, default_buffer_size, what.options);
     },
     [](const Call& call, const Case& what) {
       return persistent_broadcast_coalesced(call.inputs[0], call.outputs, default_buffer_size, what.options);
     }},
    {"reduce_add", Collective::reduce, true,
     [](const Call& call, const Case& what) {
       reduce(call.inputs[0], call.outputs[0][0], call.operation(), what.options);
     },
     [](const Call& call, const Case& what) -> Lists {
       return {{reduce(call.inputs[0], call.operation(), call.root, what.options)}};
     },
     [](const Call& call, const Case& what) {
       return persistent_reduce(call.inputs[0], call.outputs[0][0], call.operation(), what.options);
     }},
    {"reduce_add_coalesced", coalesced(Collective::reduce), true,
     [](const Call& call, const Case& what) {
       reduce_coalesced(call.inputs, call.outputs[0], call.operation(), default_buffer_size, what.options);
     },
     [](const Call& call, const Case& what) -> Lists {
       return {reduce_coalesced(call.inputs, call.operation(), call.root, default_buffer_size, what.options)};
     },
     [](const Call& call, const Case& what) {
       return persistent_reduce_coalesced(call.inputs, call.outputs[0], call.operation(), default_buffer_size,
                                          what.options);
     }},
    {"scatter", Collective::scatter, false,
     [](const Call& call, const Case& what) {
       scatter(call.inputs[0][0], call.outputs[0], call.dim, {}, what.options);
     },
     [](const Call& call, const Case& what) -> Lists {
       return {scatter(call.inputs[0][0], call.devices, {}, call.dim, {}, what.options)};
     },
     [](const Call& call, const Case& what) {
       return persistent_scatter(call.inputs[0][0], call.outputs[0], call.dim, what.options);
     }},
    {"gather", Collective::gather, false,
     [](const Call& call, const Case& what) {
       gather(call.inputs[0], call.outputs[0][0], call.dim, what.options);
     },
     [](const Call& call, const Case& what) -> Lists {
       return {{gather(call.inputs[0], call.dim, call.root, what.options)}};
     },
     [](const Call& call, const Case& what) {
       return persistent_gather(call.inputs[0], call.outputs[0][0], call.dim, what.options);
     }},
    {"sendrecv", std::nullopt, false,
     [](const Call& call, const Case&) { call.outputs[0][0].copy_(call.inputs[0][0], Blocking::no); }},
};

}  // namespace

std::span<const Operation> operations_of_one_process() {
  static const std::vector<Operation> all = operations_of(rows_of_one_process, false);
  return all;
}

}  // namespace tutti::perf
