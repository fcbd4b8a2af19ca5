// SPDX-License-Identifier: Apache-2.0
#include "collectives/team_operations.hpp"

#include "collectives/disjoint.hpp"
#include "collectives/team_compiled.hpp"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::collectives {
namespace {

/// Elements of all the tensors have the operation.
void set_operation(TeamCall& call, const ReduceOp& operation, std::span<const Tensor> tensors) {
  call.set_operation(operation);
  if (operation.kind() == ReduceKind::sum) return;
  for (const Tensor& tensor : tensors) call.arguments().operation(operation, tensor.dtype(), call.members());
}

/// Inputs and outputs of reductions: alike on all members; outputs where `wants_output` says.
template <class WantsOutput>
void check_reduced_operands(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                            const MemberOperands& out, WantsOutput wants_output) {
  call.check_alike(inputs, "inputs");
  set_operation(call, operation, inputs[0]);
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
}

/// The whole of a reduction whose outputs are as long as its inputs.
template <class WantsOutput>
void reduce_whole(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                  const MemberOperands& out, WantsOutput wants_output) {
  check_reduced_operands(call, operation, inputs, out, wants_output);
  if (operation.kind() == ReduceKind::compiled) return reduce_by_compiled(call, operation, inputs, out);
  call.begin(inputs[0]);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t t = 0; t < inputs[i].size(); ++t) {
      call.set_input(i, t, inputs[i][t], inputs.name("inputs", i, t));
      if (wants_output(i)) call.set_output(i, t, out[i][t], out.name("out", i, t));
    }
  }
  call.run();
}

/// Operands that are flat: on one side parts, on the other what has as many elements as those of all members.
/// Parts are equal, or as long as `sizes` says by member.
class FlatOperands {
 public:
  enum class Wholes : std::uint8_t { inputs, outputs };

  FlatOperands(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out, Wholes wholes,
               std::optional<std::span<const std::int64_t>> sizes = std::nullopt)
      : call_(call),
        inputs_(inputs),
        out_(out),
        sizes_(sizes),
        wholes_(wholes == Wholes::inputs ? inputs : out),
        parts_(wholes == Wholes::inputs ? out : inputs),
        wholes_name_(wholes == Wholes::inputs ? "inputs" : "out"),
        parts_name_(wholes == Wholes::inputs ? "out" : "inputs") {}

  /// The inputs, which are alike, have been checked.
  void check() const {
    if (sizes_) {
      check_parts();
    } else {
      call_.check_alike(parts_, parts_name_, Likeness::elements);
    }
    call_.one_per_member(wholes_.size(), wholes_name_);
    for (std::size_t i = 0; i < out_.size(); ++i) {
      check_count(i);
      for (std::size_t t = 0; t < parts_[0].size(); ++t) check_whole(i, t);
      for (std::size_t t = 0; t < out_[i].size(); ++t)
        call_.arguments().writable(out_[i][t], out_.name("out", i, t));
      check_overlaps(i);
    }
  }
  void set() const {
    if (sizes_) {
      call_.begin_parts(*sizes_, parts_[0][0].dtype());
    } else {
      call_.begin(inputs_[0]);
    }
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      for (std::size_t t = 0; t < inputs_[i].size(); ++t) {
        call_.set_input(i, t, inputs_[i][t], inputs_.name("inputs", i, t));
        call_.set_output(i, t, out_[i][t], out_.name("out", i, t));
      }
    }
  }

 private:
  /// Of unequal lengths.
  void check_parts() const {
    call_.one_per_member(parts_.size(), parts_name_);
    call_.check_part_sizes(*sizes_, "sizes");
    for (std::size_t i = 0; i < parts_.size(); ++i) {
      const Tensor& part = parts_[i][0];
      const Name name = parts_.name(parts_name_, i, 0);
      call_.on_member(part, name, i);
      call_.arguments().same_dtype(part, name, parts_[0][0].dtype(), parts_.name(parts_name_, 0, 0));
      const std::size_t member = call_.first_local() + i;
      if (part.numel() != (*sizes_)[member]) {
        call_.arguments().fail("{} has {} elements, expected {} as sizes[{}]", name, part.numel(),
                               (*sizes_)[member], member);
      }
    }
  }
  /// Whether `part` lies in `whole` where that local member's belongs.
  [[nodiscard]] bool is_in_place(const Tensor& part, const Tensor& whole, std::size_t local) const {
    const std::size_t member = call_.first_local() + local;
    const std::size_t start =
        sizes_
            ? static_cast<std::size_t>(std::accumulate(
                  sizes_->begin(), sizes_->begin() + static_cast<std::ptrdiff_t>(member), std::int64_t{0})) *
                  size_of(part.dtype())
            : member * part.nbytes();
    return part.is_contiguous() && whole.is_contiguous() &&
           static_cast<const std::byte*>(part.data()) == static_cast<const std::byte*>(whole.data()) + start;
  }
  void check_count(std::size_t i) const {
    if (wholes_[i].size() == parts_[0].size()) return;
    call_.arguments().fail("{}[{}] has {} tensors, expected {} as {}[0]", wholes_name_, i, wholes_[i].size(),
                           parts_[0].size(), parts_name_);
  }
  void check_whole(std::size_t i, std::size_t t) const {
    const Tensor& whole = wholes_[i][t];
    const Tensor& part = parts_[0][t];
    const Name name = wholes_.name(wholes_name_, i, t);
    const Name part_name = parts_.name(parts_name_, 0, t);
    call_.on_member(whole, name, i);
    call_.arguments().same_dtype(whole, name, part.dtype(), part_name);
    if (sizes_) {
      const auto total = std::accumulate(sizes_->begin(), sizes_->end(), std::int64_t{0});
      if (whole.numel() == total) return;
      call_.arguments().fail("{} has {} elements, expected {}: as many as sizes in all", name, whole.numel(),
                             total);
    }
    std::int64_t all = 0;
    if (__builtin_mul_overflow(part.numel(), call_.members(), &all)) {
      call_.arguments().fail("{} has {} elements, expected fewer: those of {} members are more than 2^63 - 1",
                             part_name, part.numel(), call_.members());
    }
    if (whole.numel() != all) {
      call_.arguments().fail("{} has {} elements, expected {}: {} {} each of {} members", name, whole.numel(),
                             all, part.numel(), wholes_name_ == "out" ? "from" : "for", call_.members());
    }
  }
  /// A part that is in place belongs to its whole, which then counts as an output: nothing else may overlap
  /// it.
  void check_overlaps(std::size_t i) const {
    std::vector<Tensor> given;
    std::vector<Tensor> written;
    for (std::size_t t = 0; t < out_[i].size(); ++t) {
      const Tensor& whole = wholes_[i][t];
      if (is_in_place(parts_[i][t], whole, i)) {
        given.push_back(whole.view({whole.numel()}).narrow(0, 0, 0));
        written.push_back(whole);
      } else {
        given.push_back(inputs_[i][t]);
        written.push_back(out_[i][t]);
      }
    }
    Named inputs = inputs_.named("inputs", i);
    Named outputs = out_.named("out", i);
    inputs.tensors = given;
    outputs.tensors = written;
    require_disjoint(call_.arguments(), std::span(&inputs, 1), std::span(&outputs, 1), InPlace::forbidden);
  }

  TeamCall& call_;
  const MemberOperands& inputs_;
  const MemberOperands& out_;
  std::optional<std::span<const std::int64_t>> sizes_;
  const MemberOperands& wholes_;
  const MemberOperands& parts_;
  std::string_view wholes_name_;
  std::string_view parts_name_;
};

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

void reduce_to_root(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                    const MemberOperands& out, int root) {
  call.set_root(root);
  reduce_whole(call, operation, inputs, out, [&](std::size_t i) { return call.local_of(call.root()) == i; });
}

void reduce_to_all(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                   const MemberOperands& out) {
  call.one_per_member(out.size(), "out");
  reduce_whole(call, operation, inputs, out, [](std::size_t) { return true; });
}

void gather_to_all(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out) {
  const FlatOperands operands(call, inputs, out, FlatOperands::Wholes::outputs);
  operands.check();
  operands.set();
  call.run();
}

void reduce_and_scatter(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                        const MemberOperands& out) {
  call.check_alike(inputs, "inputs", Likeness::elements);
  set_operation(call, operation, inputs[0]);
  const FlatOperands operands(call, inputs, out, FlatOperands::Wholes::inputs);
  operands.check();
  if (operation.kind() == ReduceKind::compiled) return reduce_by_compiled(call, operation, inputs, out);
  operands.set();
  call.run();
}

void gather_to_all(TeamCall& call, TensorList inputs, TensorList out, std::span<const std::int64_t> sizes) {
  const MemberOperands parts = MemberOperands::one_each(inputs);
  const MemberOperands wholes = MemberOperands::one_each(out);
  const FlatOperands operands(call, parts, wholes, FlatOperands::Wholes::outputs, sizes);
  operands.check();
  operands.set();
  call.run();
}

void reduce_and_scatter(TeamCall& call, const ReduceOp& operation, TensorList inputs, TensorList out,
                        std::span<const std::int64_t> sizes) {
  const MemberOperands wholes = MemberOperands::one_each(inputs);
  const MemberOperands parts = MemberOperands::one_each(out);
  call.check_alike(wholes, "inputs", Likeness::elements);
  set_operation(call, operation, wholes[0]);
  const FlatOperands operands(call, wholes, parts, FlatOperands::Wholes::inputs, sizes);
  operands.check();
  if (operation.kind() == ReduceKind::compiled)
    return reduce_by_compiled(call, operation, wholes, parts, sizes);
  operands.set();
  call.run();
}

}  // namespace tutti::collectives
