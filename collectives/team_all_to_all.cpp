// SPDX-License-Identifier: Apache-2.0
#include "collectives/disjoint.hpp"
#include "collectives/team_operations.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::collectives {
namespace {

/// Tensors that count as flat, so that shapes make no difference.
std::vector<Tensor> flattened(std::span<const Tensor> tensors) {
  std::vector<Tensor> flat;
  flat.reserve(tensors.size());
  for (const Tensor& tensor : tensors)
    flat.push_back(tensor.is_contiguous() ? tensor.view({tensor.numel()}) : tensor);
  return flat;
}

/// The outputs of a local member, which have been looked at one by one, overlap nothing; but one may be the
/// input in its place.
void check_overlaps(const TeamCall& call, const MemberOperands& inputs, const MemberOperands& out,
                    std::size_t local) {
  const std::vector<Tensor> given = flattened(inputs[local]);
  const std::vector<Tensor> written = flattened(out[local]);
  Named named_inputs = inputs.named("inputs", local);
  Named named_out = out.named("out", local);
  named_inputs.tensors = given;
  named_out.tensors = written;
  require_disjoint(call.arguments(), std::span(&named_inputs, 1), std::span(&named_out, 1),
                   InPlace::same_index);
}

void set_exchanged(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out) {
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    for (std::size_t t = 0; t < inputs[i].size(); ++t) {
      const Tensor& input = inputs[i][t];
      const Name name = inputs.name("inputs", i, t);
      // What is sent must not be overwritten before by what comes.
      if (input.numel() > 0 && input.data() == out[i][t].data()) {
        call.set_input_copy(i, t, input, name);
      } else {
        call.set_input(i, t, input, name);
      }
      call.set_output(i, t, out[i][t], out.name("out", i, t));
    }
  }
}

/// `sizes` are a list for each local member, of a number for each of all members; each list has as many
/// elements in all as that member's tensor.
void check_sizes(const TeamCall& call, const SizeLists& sizes, std::string_view argument, TensorList tensors,
                 std::string_view tensors_argument) {
  call.one_per_member(sizes.size(), argument);
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const std::int64_t total = call.check_part_sizes(sizes[i], Name(argument, i));
    if (tensors[i].numel() != total) {
      call.arguments().fail("{} has {} elements, expected {}: as many as {} in all",
                            Name(tensors_argument, i), tensors[i].numel(), total, Name(argument, i));
    }
  }
}

}  // namespace

void exchange_all(TeamCall& call, const MemberOperands& inputs, const MemberOperands& out) {
  call.check_alike(inputs, "inputs", Likeness::elements);
  call.one_per_member(out.size(), "out");
  for (std::size_t t = 0; t < inputs[0].size(); ++t) {
    const std::int64_t elements = inputs[0][t].numel();
    if (elements % static_cast<std::int64_t>(call.members()) != 0) {
      call.arguments().fail("{} has {} elements, expected a multiple of {}: equal parts for all members",
                            inputs.name("inputs", 0, t), elements, call.members());
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (out[i].size() != inputs[0].size()) {
      call.arguments().fail("out[{}] has {} tensors, expected {} as inputs[0]", i, out[i].size(),
                            inputs[0].size());
    }
    for (std::size_t t = 0; t < out[i].size(); ++t) {
      const Tensor& like = inputs[0][t];
      const Name name = out.name("out", i, t);
      call.on_member(out[i][t], name, i);
      call.arguments().same_dtype(out[i][t], name, like.dtype(), inputs.name("inputs", 0, t));
      if (out[i][t].numel() != like.numel()) {
        call.arguments().fail("{} has {} elements, expected {} as {}", name, out[i][t].numel(), like.numel(),
                              inputs.name("inputs", 0, t));
      }
      call.arguments().writable(out[i][t], name);
    }
    check_overlaps(call, inputs, out, i);
  }
  call.begin(inputs[0]);
  set_exchanged(call, inputs, out);
  call.run();
}

void exchange_all(TeamCall& call, TensorList inputs, TensorList out, const SizeLists& input_sizes,
                  const SizeLists& out_sizes) {
  call.one_per_member(inputs.size(), "inputs");
  call.one_per_member(out.size(), "out");
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    call.on_member(inputs[i], Name("inputs", i), i);
    call.arguments().same_dtype(inputs[i], Name("inputs", i), inputs[0].dtype(), Name("inputs", 0));
    call.on_member(out[i], Name("out", i), i);
    call.arguments().same_dtype(out[i], Name("out", i), inputs[0].dtype(), Name("inputs", 0));
    call.arguments().writable(out[i], Name("out", i));
  }
  check_sizes(call, input_sizes, "input_sizes", inputs, "inputs");
  check_sizes(call, out_sizes, "out_sizes", out, "out");
  for (std::size_t i = 0; i < call.locals(); ++i) {
    for (std::size_t j = 0; j < call.locals(); ++j) {
      const std::int64_t sent = input_sizes[i][call.first_local() + j];
      const std::int64_t expected = out_sizes[j][call.first_local() + i];
      if (sent == expected) continue;
      call.arguments().fail(
          "out_sizes[{}][{}] is {}, expected {} as input_sizes[{}][{}]: from member {} to {}", j,
          call.first_local() + i, expected, sent, i, call.first_local() + j, call.first_local() + i,
          call.first_local() + j);
    }
  }
  const MemberOperands given = MemberOperands::one_each(inputs);
  const MemberOperands written = MemberOperands::one_each(out);
  for (std::size_t i = 0; i < call.locals(); ++i) check_overlaps(call, given, written, i);
  call.begin_exchange(inputs[0].dtype());
  set_exchanged(call, given, written);
  call.run_agreed(input_sizes, out_sizes);
}

}  // namespace tutti::collectives
