// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/tensor.hpp"

#include <cstdint>

/// The model's work on one device. What is queued goes to the current stream of the tensors' device, and
/// returns at once, like the library's own operations.
class Kernels {
 public:
  Kernels() = default;
  Kernels(const Kernels&) = delete;
  Kernels& operator=(const Kernels&) = delete;
  virtual ~Kernels() = default;

  /// Writes the fixed-point gradients of a batch: `weight_gradients` like `weights` and `bias_gradient` like
  /// `bias`, but int64. `inputs` is [samples, features], `targets` [samples].
  virtual void compute_gradients(const tutti::Tensor& weights, const tutti::Tensor& bias,
                                 const tutti::Tensor& inputs, const tutti::Tensor& targets,
                                 const tutti::Tensor& weight_gradients,
                                 const tutti::Tensor& bias_gradient) const = 0;
  /// parameters -= rate * gradients / samples.
  virtual void step(const tutti::Tensor& parameters, const tutti::Tensor& gradients, std::int64_t samples,
                    float rate) const = 0;
};

[[nodiscard]] const Kernels& virtual_kernels();
/// Throws Error(unsupported) in a build without CUDA.
[[nodiscard]] const Kernels& cuda_kernels();
