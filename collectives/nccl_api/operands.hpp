// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/nccl_api/call.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <span>
#include <vector>

namespace tutti::nccl_api {

/// Returns whether the rank gives something to the call.
[[nodiscard]] bool needs_input(const Call& call) noexcept;
/// Returns the call's input: the program's memory, or if the call has a factor a copy, multiplied by it on
/// the stream.
[[nodiscard]] Tensor input(const Call& call, const Stream& stream);
/// Returns the call's output, over the program's memory.
[[nodiscard]] Tensor output(const Call& call);
/// Returns the output, or where the rank gets nothing, and may have given no address, a tensor like one over
/// its input, which nothing is written to.
[[nodiscard]] Tensor output_or_input(const Call& call);

enum class Pieces : std::uint8_t { inputs, outputs };

/// The inputs or outputs of a rank's calls, one behind the other in one tensor: the program's memory, where
/// they lie like this, else memory of its own.
class JoinedPieces {
 public:
  /// Copies inputs, on the stream, if they do not lie one behind the other.
  JoinedPieces(std::span<const Call> calls, Pieces pieces, const Stream& stream);

  [[nodiscard]] const Tensor& whole() const noexcept { return whole_; }
  /// Copies to the outputs, on the stream, what has been written to memory that is not theirs.
  void give_back() const;

 private:
  Tensor whole_;
  std::vector<Tensor> parts_;  ///< empty if nothing is copied
  Stream stream_;
};

}  // namespace tutti::nccl_api
