// SPDX-License-Identifier: Apache-2.0
#include "collectives/team_operations.hpp"

#include "collectives/disjoint.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

namespace tutti::collectives {
namespace {

/// Inputs and outputs of sums: alike on all members; outputs where `wants_output` says.
template <class WantsOutput>
void set_sum_operands(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out,
                      WantsOutput wants_output) {
  call.check_alike(inputs, "inputs");
  // Members that want none may be left out behind the others.
  if (out.size() > inputs.size()) call.one_per_member(out.size(), "out");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!wants_output(i)) continue;
    if (out.size() <= i) call.one_per_member(out.size(), "out");
    if (out[i].size() != inputs[0].size()) {
      call.arguments().fail("out[{}] has {} tensors, expected {} as inputs[0]", i, out[i].size(),
                            inputs[0].size());
    }
    for (std::size_t t = 0; t < out[i].size(); ++t) {
      call.check_output(out[i][t], out.name("out", i, t), i, inputs[0][t], inputs.name("inputs", 0, t));
    }
    const Named given = inputs.named("inputs", i);
    const Named outputs = out.named("out", i);
    require_disjoint(call.arguments(), std::span(&given, 1), std::span(&outputs, 1), InPlace::same_index);
  }
  call.begin(inputs[0]);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t t = 0; t < inputs[i].size(); ++t) {
      call.set_input(i, t, inputs[i][t], inputs.name("inputs", i, t));
      if (wants_output(i)) call.set_output(i, t, out[i][t], out.name("out", i, t));
    }
  }
}

/// An input and its member's output overlap nowhere, or `part`, which is one of them, lies in `whole` where
/// that member's belongs.
void require_part_in_place(const TeamCall& call, const Tensor& input, const Tensor& out, const Tensor& part,
                           const Tensor& whole, std::size_t local) {
  const int row = static_cast<int>(local);
  if (part.is_contiguous() && whole.is_contiguous() &&
      static_cast<const std::byte*>(part.data()) ==
          static_cast<const std::byte*>(whole.data()) + (call.first() + local) * part.nbytes()) {
    return;
  }
  const Named given = Named::one("inputs", input, row);
  const Named outputs = Named::one("out", out, row);
  require_disjoint(call.arguments(), std::span(&given, 1), std::span(&outputs, 1), InPlace::forbidden);
}

}  // namespace

void broadcast_in_place(TeamCall& call, const MemberOperands& tensors, int root) {
  call.set_root(root);
  call.check_alike(tensors, "tensors");
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
        call.set_input(i, t, tensors[i][t], name);
      } else {
        call.set_output(i, t, tensors[i][t], name);
      }
    }
  }
  call.run();
}

void broadcast_into(TeamCall& call, const Named& source, const MemberOperands& out, int root) {
  call.set_root(root);
  call.check_alike(out, "out");
  const std::span<const Tensor> tensors = source.tensors;
  const std::optional<std::size_t> owner = call.local_of(call.root());
  if (owner) {
    const std::span<const Tensor> own = out[*owner];
    if (tensors.size() != own.size()) {
      call.arguments().fail("{} has {} entries, expected {} as {}", source.argument, tensors.size(),
                            own.size(), Name("out", *owner));
    }
    for (std::size_t t = 0; t < tensors.size(); ++t) {
      call.on_member(tensors[t], source.name(t), *owner);
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
      call.set_output(i, t, out[i][t], out.name("out", i, t));
      if (owner != i) continue;
      call.set_input(i, t, tensors[t], source.name(t));
    }
  }
  call.run();
}

void reduce_to_root(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out, int root) {
  call.set_root(root);
  set_sum_operands(call, inputs, out, [&](std::size_t i) { return call.local_of(call.root()) == i; });
  call.run();
}

void reduce_to_all(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out) {
  call.one_per_member(out.size(), "out");
  set_sum_operands(call, inputs, out, [](std::size_t) { return true; });
  call.run();
}

void gather_to_all(TeamCall& call, TensorList inputs, TensorList out) {
  call.check_alike(MemberOperands::one_each(inputs), "inputs", Likeness::elements);
  call.one_per_member(out.size(), "out");
  const std::int64_t elements = inputs[0].numel();
  std::int64_t all = 0;
  if (__builtin_mul_overflow(elements, call.members(), &all)) {
    call.arguments().fail(
        "inputs[0] has {} elements, expected fewer: those of {} members are more than 2^63 - 1", elements,
        call.members());
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Name name("out", i);
    call.on_member(out[i], name, i);
    call.arguments().same_dtype(out[i], name, inputs[0].dtype(), "inputs[0]");
    call.arguments().writable(out[i], name);
    if (out[i].numel() != all) {
      call.arguments().fail("{} has {} elements, expected {}: {} from each of {} members", name,
                            out[i].numel(), all, elements, call.members());
    }
    require_part_in_place(call, inputs[i], out[i], inputs[i], out[i], i);
  }
  call.begin(inputs.first(1));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.set_input(i, 0, inputs[i], Name("inputs", i));
    call.set_output(i, 0, out[i], Name("out", i));
  }
  call.run();
}

void reduce_and_scatter(TeamCall& call, TensorList inputs, TensorList out) {
  call.check_alike(MemberOperands::one_each(inputs), "inputs", Likeness::elements);
  call.check_alike(MemberOperands::one_each(out), "out", Likeness::elements);
  const std::int64_t elements = out[0].numel();
  for (std::size_t i = 0; i < out.size(); ++i) {
    const Name name("out", i);
    call.arguments().same_dtype(out[i], name, inputs[0].dtype(), "inputs[0]");
    call.arguments().writable(out[i], name);
    require_part_in_place(call, inputs[i], out[i], out[i], inputs[i], i);
  }
  if (inputs[0].numel() != elements * static_cast<std::int64_t>(call.members())) {
    call.arguments().fail("inputs[0] has {} elements, expected {}: {} for each of {} members",
                          inputs[0].numel(), elements * static_cast<std::int64_t>(call.members()), elements,
                          call.members());
  }
  call.begin(inputs.first(1));
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.set_input(i, 0, inputs[i], Name("inputs", i));
    call.set_output(i, 0, out[i], Name("out", i));
  }
  call.run();
}

}  // namespace tutti::collectives
