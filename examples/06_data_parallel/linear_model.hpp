// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/float_types.hpp"

#include <cmath>
#include <cstdint>

/// A linear model, prediction = inputs · weights + bias, and its arithmetic, the same source for CPU and GPU.
namespace linear_model {

/// Gradients are summed over samples in fixed point, with 24 bits behind the binary point. Sums of integers
/// do not depend on their order, so it does not matter how a batch is cut over devices: the sum is the same,
/// bit for bit. Floating-point sums would differ in the last bits for every number of devices.
inline constexpr float fixed_point_one = 16777216.0F;

/// prediction - target of one sample.
TUTTI_HOST_DEVICE inline float error_of(const float* inputs, float target, const float* weights, float bias,
                                        std::int64_t features) {
  float prediction = bias;
  for (std::int64_t feature = 0; feature < features; ++feature)
    prediction += inputs[feature] * weights[feature];
  return prediction - target;
}

/// The gradient of the squared error for one parameter, summed over the samples: for weight `parameter`, or
/// for the bias if `parameter` is `features`.
TUTTI_HOST_DEVICE inline std::int64_t gradient_of(std::int64_t parameter, const float* inputs,
                                                  const float* targets, std::int64_t samples,
                                                  const float* weights, float bias, std::int64_t features) {
  std::int64_t sum = 0;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    const float* row = inputs + sample * features;
    const float slope = parameter == features ? 1.0F : row[parameter];
    const float error = error_of(row, targets[sample], weights, bias, features);
    sum += llrintf(2.0F * error * slope * fixed_point_one);
  }
  return sum;
}

/// One step of gradient descent for one parameter.
TUTTI_HOST_DEVICE inline float stepped(float parameter, std::int64_t gradient, std::int64_t samples,
                                       float rate) {
  const float mean = static_cast<float>(gradient) / fixed_point_one / static_cast<float>(samples);
  return parameter - rate * mean;
}

}  // namespace linear_model
