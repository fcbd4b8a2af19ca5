// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/symmetric.hpp"
#include "tutti/tensor.hpp"

/// The program's kernels, for one member each. They are queued on the current stream of its device.
class Kernels {
 public:
  Kernels() = default;
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;
  virtual ~Kernels() = default;

  /// Divides each row of `sums` by the root of its mean square, and multiplies it by `weights`.
  virtual void normalise(const tutti::Tensor& weights, const tutti::Tensor& sums,
                         const tutti::Tensor& out) const = 0;
  /// Does so with the sums of all members' `memory[0]`, and writes them to all members' `memory[1]`. All
  /// members queue it. If a wait does not end well, its `tutti::WaitStatus` is written to `status` (int32).
  virtual void all_reduce_and_normalise(const tutti::SymmetricMemory& memory, int local,
                                        const tutti::Tensor& weights, const tutti::Tensor& status) const = 0;

 protected:
  static constexpr float epsilon = 1e-6F;
};

[[nodiscard]] const Kernels& virtual_kernels();
/// Throws Error(unsupported) in a build without CUDA.
[[nodiscard]] const Kernels& cuda_kernels();
