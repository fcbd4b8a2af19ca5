// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/operations.hpp"

#include "collectives/call/disjoint.hpp"
#include "collectives/communicator/compiled_reduction.hpp"
#include "collectives/communicator/parts_and_wholes.hpp"
#include "tutti/error.hpp"

#include <cstddef>
#include <optional>
#include <span>

#include <fmt/format.h>

namespace tutti::collectives {
namespace {

/// There is the operation, and elements of all the tensors have it.
void set_operation(TeamCall& call, const ReduceOp& operation, std::span<const Tensor> tensors) {
  call.arguments().operation(operation);
  call.set_operation(operation);
  if (operation.kind() == ReduceKind::sum) return;
  for (const Tensor& tensor : tensors) call.arguments().operation(operation, tensor.dtype(), call.members());
}

/// Inputs and outputs of reductions: alike on all members; outputs where `wants_output` says.
template <class WantsOutput>
void check_reduced_operands(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                            const MemberOperands& out, WantsOutput wants_output) {
  call.checks().alike(inputs, "inputs");
  set_operation(call, operation, inputs[0]);
  // Members that want none may be left out behind the others.
  if (out.size() > inputs.size()) call.checks().one_per_member(out.size(), "out");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!wants_output(i)) continue;
    if (out.size() <= i) call.checks().one_per_member(out.size(), "out");
    if (out[i].size() != inputs[0].size()) {
      call.arguments().fail("out[{}] has {} tensors, expected {} as inputs[0]", i, out[i].size(),
                            inputs[0].size());
    }
    for (std::size_t t = 0; t < out[i].size(); ++t) {
      call.checks().output(out[i][t], out.name("out", i, t), i, inputs[0][t], inputs.name("inputs", 0, t));
    }
    const Named given = inputs.named("inputs", i);
    const Named outputs = out.named("out", i);
    require_disjoint(call.arguments(), std::span(&given, 1), std::span(&outputs, 1), InPlace::same_index);
  }
}

/// The whole of a reduction whose outputs are as long as its inputs.
template <class WantsOutput>
void reduce_whole(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                  const MemberOperands& out, WantsOutput wants_output) {
  check_reduced_operands(call, operation, inputs, out, wants_output);
  if (operation.kind() == ReduceKind::compiled && !inputs[0].empty())
    return reduce_by_compiled(call, operation, inputs, out);
  call.begin(inputs[0]);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t t = 0; t < inputs[i].size(); ++t) {
      call.operands().set_input(i, t, inputs[i][t], inputs.name("inputs", i, t));
      if (wants_output(i)) call.operands().set_output(i, t, out[i][t], out.name("out", i, t));
    }
  }
  call.run();
}

void reduce_to_all(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                   const MemberOperands& out) {
  call.checks().one_per_member(out.size(), "out");
  reduce_whole(call, operation, inputs, out, [](std::size_t) { return true; });
}

}  // namespace

void broadcast_in_place(TeamCall& call, const MemberOperands& tensors, int root) {
  call.set_root(root);
  call.checks().alike(tensors, "tensors");
  const std::optional<std::size_t> source = call.local_of(call.root());
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    if (source == i) continue;
    for (std::size_t t = 0; t < tensors[i].size(); ++t)
      call.arguments().writable(tensors[i][t], tensors.name("tensors", i, t));
    const Named outputs = tensors.named("tensors", i);
    require_disjoint(call.arguments(), {}, std::span(&outputs, 1), InPlace::forbidden);
  }
  call.begin(tensors[0]);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    for (std::size_t t = 0; t < tensors[i].size(); ++t) {
      const Name name = tensors.name("tensors", i, t);
      if (source == i) {
        call.operands().set_input(i, t, tensors[i][t], name);
      } else {
        call.operands().set_output(i, t, tensors[i][t], name);
      }
    }
  }
  call.run();
}

void broadcast_into(TeamCall& call, const Named& source, const MemberOperands& out, int root) {
  call.set_root(root);
  call.checks().alike(out, "out");
  const std::span<const Tensor> tensors = source.tensors;
  const std::optional<std::size_t> owner = call.local_of(call.root());
  if (owner) {
    const std::span<const Tensor> own = out[*owner];
    if (tensors.size() != own.size()) {
      call.arguments().fail("{} has {} entries, expected {} as {}", source.argument, tensors.size(),
                            own.size(), Name("out", *owner));
    }
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      call.checks().on_member(tensors[t], source.name(t), *owner);
      call.arguments().same_dtype(tensors[t], source.name(t), own[t].dtype(), out.name("out", *owner, t));
      call.arguments().same_sizes(tensors[t], source.name(t), own[t].sizes(), out.name("out", *owner, t));
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (std::size_t t = 0; t < out[i].size(); ++t)
      call.arguments().writable(out[i][t], out.name("out", i, t));
    const Named outputs = out.named("out", i);
    const std::span<const Named> inputs(&source, owner == i ? 1 : 0);
    require_disjoint(call.arguments(), inputs, std::span(&outputs, 1), InPlace::same_index);
  }
  call.begin(out[0]);
  for (std::size_t i = 0; i < out.size(); ++i) {
    for (std::size_t t = 0; t < out[i].size(); ++t) {
      call.operands().set_output(i, t, out[i][t], out.name("out", i, t));
      if (owner != i) continue;
      call.operands().set_input(i, t, tensors[t], source.name(t));
    }
  }
  call.run();
}

void reduce_to_root(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                    const MemberOperands& out, int root) {
  call.set_root(root);
  reduce_whole(call, operation, inputs, out, [&](std::size_t i) { return call.local_of(call.root()) == i; });
}

void gather_to_all(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out,
                   const std::optional<PartSizes>& sizes) {
  PartsAndWholes operands(call, inputs, out, PartsAndWholes::Wholes::outputs, sizes);
  operands.check();
  operands.set();
  call.run();
}

void reduce_and_scatter(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                        const MemberOperands& out, const std::optional<PartSizes>& sizes) {
  call.checks().alike(inputs, "inputs", sizes && sizes->dim ? Likeness::sizes : Likeness::elements);
  set_operation(call, operation, inputs[0]);
  PartsAndWholes operands(call, inputs, out, PartsAndWholes::Wholes::inputs, sizes);
  operands.check();
  if (operation.kind() == ReduceKind::compiled && !inputs[0].empty())
    return reduce_by_compiled(call, operation, inputs, out, operands.parts());
  operands.set();
  call.run();
}

void run_for_all(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                 const MemberOperands& out) {
  switch (call.collective()) {
    case Collective::all_reduce:
      return reduce_to_all(call, operation, inputs, out);
    case Collective::all_gather:
      return gather_to_all(call, inputs, out);
    case Collective::reduce_scatter:
      return reduce_and_scatter(call, operation, inputs, out);
    case Collective::all_to_all:
      return all_to_all(call, inputs, out);
    default:
      throw Error(ErrorCode::internal,
                  fmt::format("{} has no form for all members", name_of(call.collective())));
  }
}

}  // namespace tutti::collectives
