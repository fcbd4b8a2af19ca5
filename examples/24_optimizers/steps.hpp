// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/float_types.hpp"

#include <cmath>
#include <cstdint>
#include <variant>

/// Steps of optimisers for one element, the same source for CPU and GPU.
namespace optimizers {

/// Float arrays of equal length. What an optimiser has no use for is nullptr.
struct Elements {
  float* parameters = nullptr;
  const float* gradients = nullptr;
  float* first_state = nullptr;
  float* second_state = nullptr;
  std::int64_t count = 0;
};

/// Stochastic gradient descent as torch.optim.SGD does it. `first_state` is the momentum.
struct Sgd {
  float rate = 0.01F;
  float momentum = 0.9F;
  float weight_decay = 0.0F;

  TUTTI_HOST_DEVICE void operator()(const Elements& elements, std::int64_t i) const {
    float& parameter = elements.parameters[i];
    const float gradient = elements.gradients[i] + weight_decay * parameter;
    elements.first_state[i] = momentum * elements.first_state[i] + gradient;
    parameter -= rate * elements.first_state[i];
  }
};

/// Adam (D. Kingma, J. Ba, 2014) as torch.optim.Adam does it, and AdamW (I. Loshchilov, F. Hutter, 2017),
/// whose weight decay does not pass through the moments. The states are the first and the second moment.
struct Adam {
  float rate = 1e-3F;
  float beta1 = 0.9F;
  float beta2 = 0.999F;
  float epsilon = 1e-8F;
  float weight_decay = 0.0F;
  bool is_decoupled = false;  ///< AdamW
  float step_size = 0.0F;     ///< rate / (1 - beta1^step)
  float correction = 1.0F;    ///< sqrt(1 - beta2^step)

  /// Returns the optimiser for a step, counted from 1.
  [[nodiscard]] Adam at(std::int64_t step) const {
    Adam adam = *this;
    adam.step_size = static_cast<float>(rate / (1.0 - std::pow(double{beta1}, static_cast<double>(step))));
    adam.correction = static_cast<float>(std::sqrt(1.0 - std::pow(double{beta2}, static_cast<double>(step))));
    return adam;
  }
  TUTTI_HOST_DEVICE void operator()(const Elements& elements, std::int64_t i) const {
    float& parameter = elements.parameters[i];
    float& mean = elements.first_state[i];
    float& square = elements.second_state[i];
    float gradient = elements.gradients[i];
    if (is_decoupled) {
      parameter *= 1.0F - rate * weight_decay;
    } else {
      gradient += weight_decay * parameter;
    }
    mean += (gradient - mean) * (1.0F - beta1);
    square = beta2 * square + (1.0F - beta2) * gradient * gradient;
    parameter -= step_size * mean / (std::sqrt(square) / correction + epsilon);
  }
};

using Step = std::variant<Sgd, Adam>;

}  // namespace optimizers
