// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/compiled_reduction.hpp"

#include "collectives/communicator/compiled_steps.hpp"
#include "jit/jit_combination.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace tutti::collectives {
namespace {

using TensorColumns = std::vector<Tensor>;

Tensor as_flat(const Tensor& tensor) {
  return tensor.view({tensor.numel()});
}

/// One call: its operands, and the steps that it takes.
class CompiledReduction {
 public:
  CompiledReduction(TeamCall& call, const JitCombination& combination, const MemberOperands& inputs,
                    const MemberOperands& out, const PartsInRows& parts)
      : call_(call),
        combination_(combination),
        out_(out),
        parts_(parts),
        is_for_all_(traits_of(call.collective()).output == CollectiveOutput::all),
        inputs_(inputs.size()),
        results_(inputs.size()) {
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      results_[i].resize(inputs[i].size());
      for (const Tensor& input : inputs[i])
        combination.prepare(call.runtime(), call.device_of(i).index(), input.dtype());
    }
    for (std::size_t i = 0; i < out.size(); ++i) {
      for (std::size_t t = 0; t < out[i].size(); ++t) {
        if (out[i][t].defined()) call.operands().check_dense_in_capture(out[i][t], out.name("out", i, t), i);
      }
    }
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      for (std::size_t t = 0; t < inputs[i].size(); ++t)
        inputs_[i].push_back(as_flat(call.operands().dense(inputs[i][t], inputs.name("inputs", i, t))));
    }
  }

  void run(const CompiledStep& step) {
    call_.begin_step(step.request, elements_of(step), inputs_[0][step.first].dtype());
    call_.signature().show_list(std::span(inputs_[0]).subspan(step.first, step.columns));
    if (!parts_.elements.empty()) call_.signature().show_parts(parts_.elements);
    step.kind == CompiledStep::Kind::spread ? spread(step) : bring(step);
  }

 private:
  [[nodiscard]] std::uint64_t elements_of(const CompiledStep& step) const {
    std::uint64_t elements = 0;
    for (std::size_t k = 0; k < step.columns; ++k)
      elements += static_cast<std::uint64_t>(inputs_[0][step.first + k].numel());
    return elements;
  }
  /// Returns how many elements of the step's column `k` a local member combines.
  [[nodiscard]] std::uint64_t share_of(const CompiledStep& step, std::size_t k, std::size_t local) const {
    return step.shares[k][call_.first_local() + local];
  }
  [[nodiscard]] Tensor memory(std::uint64_t elements, DType dtype, std::size_t local) const {
    return tutti::empty({static_cast<std::int64_t>(elements)},
                        {.dtype = dtype, .device = call_.device_of(local)});
  }
  /// Returns the memory that the results of a local member's column are written to first: its output, if that
  /// is dense.
  const Tensor& result(std::size_t local, std::size_t column) {
    Tensor& found = results_[local][column];
    if (found.defined()) return found;
    const Tensor& out = out_[local][column];
    found = out.is_contiguous() ? as_flat(out)
                                : memory(static_cast<std::uint64_t>(out.numel()), out.dtype(), local);
    return found;
  }
  /// Has the memory stay that results are written to, here and by `finish`.
  void keep(std::size_t local, std::size_t column) {
    call_.operands().keep(result(local, column), local);
    if (!out_[local][column].is_contiguous()) call_.operands().keep(out_[local][column], local);
  }
  /// Queues the copy to an output that is not dense.
  void finish(std::size_t local, std::size_t column) {
    const Tensor& out = out_[local][column];
    if (!out.is_contiguous()) out.copy_(result(local, column).view(out.sizes()));
  }

  /// Sets an input, or a copy of it with one part behind the other.
  void set_input(std::size_t local, std::size_t k, const Tensor& input) {
    if (parts_.rows > 1) return call_.operands().set_input_whole(local, input, "inputs", parts_);
    call_.operands().set_input(local, k, input, "inputs");
  }

  /// Brings operands to who combines them, which is done behind it.
  void bring(const CompiledStep& step) {
    std::vector<TensorColumns> operands(call_.locals());
    for (std::size_t i = 0; i < call_.locals(); ++i) {
      for (std::size_t k = 0; k < step.columns; ++k) {
        const Tensor& input = inputs_[i][step.first + k];
        // A gather brings all to everyone, whether it is combined there or not.
        const std::uint64_t each = step.kind == CompiledStep::Kind::gather
                                       ? static_cast<std::uint64_t>(input.numel())
                                       : share_of(step, k, i);
        operands[i].push_back(memory(each * call_.members(), input.dtype(), i));
        set_input(i, k, input);
        call_.operands().set_output(i, k, operands[i].back(), "out");
        if (share_of(step, k, i) > 0) keep(i, step.first + k);
      }
    }
    call_.run([&] {
      for (std::size_t i = 0; i < call_.locals(); ++i) {
        for (std::size_t k = 0; k < step.columns; ++k) combine(step, i, k, operands[i][k]);
      }
    });
  }

  void combine(const CompiledStep& step, std::size_t local, std::size_t k, const Tensor& operands) {
    const std::uint64_t share = share_of(step, k, local);
    if (share == 0) return;
    const std::size_t width = size_of(operands.dtype());
    const auto* const first = static_cast<const std::byte*>(operands.data());
    std::vector<const void*> addresses;
    for (std::size_t member = 0; member < call_.members(); ++member)
      addresses.push_back(first + member * share * width);
    const std::size_t column = step.first + k;
    const bool is_part = is_for_all_ && step.kind == CompiledStep::Kind::exchange;
    const std::uint64_t start = is_part ? step.start_of(k, call_.first_local() + local) : 0;
    combination_.run(call_.runtime(), call_.stream_of(local), operands.dtype(),
                     static_cast<std::byte*>(result(local, column).data()) + start * width, addresses, share);
    if (!is_part) finish(local, column);
  }

  /// Everyone's results go to all.
  void spread(const CompiledStep& step) {
    for (std::size_t i = 0; i < call_.locals(); ++i) {
      for (std::size_t k = 0; k < step.columns; ++k) {
        const Tensor& whole = result(i, step.first + k);
        const auto start = static_cast<std::int64_t>(step.start_of(k, call_.first_local() + i));
        const auto share = static_cast<std::int64_t>(share_of(step, k, i));
        call_.operands().set_input(i, k, whole.narrow(0, start, share), "inputs");
        call_.operands().set_output(i, k, whole, "out");
        keep(i, step.first + k);
      }
    }
    call_.run([&] {
      for (std::size_t i = 0; i < call_.locals(); ++i) {
        for (std::size_t k = 0; k < step.columns; ++k) finish(i, step.first + k);
      }
    });
  }

  TeamCall& call_;
  const JitCombination& combination_;
  const MemberOperands& out_;
  const PartsInRows& parts_;
  bool is_for_all_;
  std::vector<TensorColumns> inputs_;   ///< by local member and column, flat and dense
  std::vector<TensorColumns> results_;  ///< likewise; undefined until they are needed
};

}  // namespace

void reduce_by_compiled(TeamCall& call, const ReduceOp& operation, const MemberOperands& inputs,
                        const MemberOperands& out, const PartsInRows& parts) {
  Request whole(call.collective(), {}, inputs[0].size());
  for (const Tensor& input : inputs[0])
    whole.add_column(static_cast<std::uint64_t>(input.numel()), input.dtype());
  whole.parts.assign(parts.elements.begin(), parts.elements.end());
  const std::vector<CompiledStep> steps = compiled_steps(whole, call.members(), call.root());
  CompiledReduction reduction(call, *ReduceOpAccess::combination(operation), inputs, out, parts);
  call.run_steps([&] {
    for (const CompiledStep& step : steps) reduction.run(step);
  });
}

}  // namespace tutti::collectives
