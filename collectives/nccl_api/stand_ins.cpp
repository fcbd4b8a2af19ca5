// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/stand_ins.hpp"

#include "collectives/call/disjoint.hpp"

#include <algorithm>
#include <cstddef>

namespace tutti::nccl_api {
namespace {

/// An operand of call number `call`.
struct Operand {
  const std::byte* begin;
  const std::byte* end;
  std::size_t call;
  bool is_output;
};

Operand operand(const Tensor& tensor, std::size_t call, bool is_output) {
  const auto* const begin = static_cast<const std::byte*>(tensor.data());
  return {begin, begin + tensor.nbytes(), call, is_output};
}

/// Returns for each output whether it overlaps an operand of another call.
std::vector<bool> overlapping(std::span<const Tensor> inputs, std::size_t first_input,
                              std::span<const Tensor> outputs) {
  std::vector<Operand> operands;
  operands.reserve(inputs.size() + outputs.size());
  for (std::size_t i = 0; i < inputs.size(); ++i)
    operands.push_back(operand(inputs[i], first_input + i, false));
  for (std::size_t i = 0; i < outputs.size(); ++i) operands.push_back(operand(outputs[i], i, true));
  std::ranges::sort(operands, {}, &Operand::begin);
  std::vector<bool> result(outputs.size(), false);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    for (std::size_t j = i + 1; j < operands.size() && operands[j].begin < operands[i].end; ++j) {
      if (operands[i].call == operands[j].call) continue;
      for (const Operand& one : {operands[i], operands[j]}) {
        if (one.is_output) result[one.call] = true;
      }
    }
  }
  return result;
}

}  // namespace

StandIns::StandIns(std::span<const Tensor> inputs, std::span<Tensor> outputs, const Stream& stream)
    : StandIns(inputs, 0, outputs, stream) {}

StandIns StandIns::of_messages(std::span<const Tensor> sent, std::span<Tensor> received,
                               const Stream& stream) {
  return {sent, received.size(), received, stream};
}

StandIns::StandIns(std::span<const Tensor> inputs, std::size_t first_input, std::span<Tensor> outputs,
                   const Stream& stream)
    : stream_(stream) {
  const std::size_t calls = std::max(outputs.size(), first_input + inputs.size());
  if (outputs.empty() || calls < 2) return;
  if (inputs.size() == 1 && outputs.size() == 1 && collectives::lie_apart(inputs[0], outputs[0])) return;
  const std::vector<bool> overlaps = overlapping(inputs, first_input, outputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!overlaps[i]) continue;
    const StreamGuard guard(stream);
    pairs_.push_back({.output = outputs[i], .stand_in = empty_like(outputs[i])});
    outputs[i] = pairs_.back().stand_in;
  }
}

void StandIns::give_back() const {
  if (pairs_.empty()) return;
  const StreamGuard guard(stream_);
  for (const Pair& pair : pairs_) pair.output.copy_(pair.stand_in);
}

}  // namespace tutti::nccl_api
