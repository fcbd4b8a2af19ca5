// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace tutti::nccl_api {

/// Gives memory of their own to outputs that overlap operands of other calls which become one call of tutti
/// with theirs: programs may repeat calls in a group, and what overlaps is known to one rank alone.
class StandIns {
 public:
  /// Replaces such outputs. The input of `outputs[i]`, if there are inputs, is `inputs[i]`, and may overlap
  /// it.
  StandIns(std::span<const Tensor> inputs, std::span<Tensor> outputs, const Stream& stream);
  /// Replaces memory for messages received that overlaps that of others, or of one that is sent.
  [[nodiscard]] static StandIns of_messages(std::span<const Tensor> sent, std::span<Tensor> received,
                                            const Stream& stream);

  /// Copies to the outputs what has been written to memory that is not theirs, in order, on the stream.
  void give_back() const;

 private:
  /// `inputs[i]` is of call number `first_input + i`, and `outputs[i]` of call number `i`.
  StandIns(std::span<const Tensor> inputs, std::size_t first_input, std::span<Tensor> outputs,
           const Stream& stream);

  struct Pair {
    Tensor output;
    Tensor stand_in;
  };
  std::vector<Pair> pairs_;
  Stream stream_;
};

}  // namespace tutti::nccl_api
