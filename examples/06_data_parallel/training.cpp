// SPDX-License-Identifier: Apache-2.0
#include "training.hpp"

#include "tutti/collectives.hpp"
#include "tutti/communicator.hpp"
#include "tutti/data_parallel.hpp"

#include <cmath>

namespace training {
namespace {

/// What the model should find.
float true_weight(std::int64_t feature) {
  return 0.25F * static_cast<float>(feature) - 1.0F;
}
constexpr float true_bias = 0.5F;

}  // namespace

Data make_data() {
  std::vector<float> inputs;
  std::vector<float> targets;
  std::uint32_t state = 1;
  for (std::int64_t sample = 0; sample < samples; ++sample) {
    float target = true_bias;
    for (std::int64_t feature = 0; feature < features; ++feature) {
      state = state * 1664525U + 1013904223U;
      inputs.push_back(static_cast<float>(state >> 16U) / 32768.0F - 1.0F);
      target += inputs.back() * true_weight(feature);
    }
    targets.push_back(target);
  }
  return {tutti::tensor(inputs, {samples, features}).pin_memory(),
          tutti::tensor(targets, {samples}).pin_memory()};
}

Parameters zero_parameters(tutti::Device device) {
  return {tutti::zeros({features}, {.device = device}), tutti::zeros({1}, {.device = device})};
}

bool operator==(const Parameters& left, const Parameters& right) {
  return left.weights.to_bytes() == right.weights.to_bytes() && left.bias.to_bytes() == right.bias.to_bytes();
}

bool has_converged(const Parameters& parameters) {
  const std::vector<float> weights = parameters.weights.to_vector<float>();
  bool is_close = std::abs(parameters.bias.item<float>() - true_bias) < 1e-3F;
  for (std::int64_t feature = 0; feature < features; ++feature) {
    is_close =
        is_close && std::abs(weights[static_cast<std::size_t>(feature)] - true_weight(feature)) < 1e-3F;
  }
  return is_close;
}

const Kernels& kernels() {
  return tutti::backend_kind() == tutti::BackendKind::cuda ? cuda_kernels() : virtual_kernels();
}

Parameters train(const Data& data, const std::vector<tutti::Device>& devices, int steps) {
  tutti::Communicator communicator({.devices = devices});
  const Parameters initial = zero_parameters(devices.front());
  // replicas[d] = {weights, bias} on devices[d]. The first device's are the initial ones themselves.
  const auto replicas = tutti::replicate(communicator, {initial.weights, initial.bias});
  std::vector<std::vector<tutti::Tensor>> gradients;
  for (const tutti::Device device : devices) {
    const tutti::TensorOptions fixed_point{.dtype = tutti::DType::int64, .device = device};
    gradients.push_back({tutti::empty({features}, fixed_point), tutti::empty({1}, fixed_point)});
  }
  tutti::GradientBuckets buckets(communicator, gradients, {.operation = tutti::ReduceOp::sum});

  for (int step = 0; step < steps; ++step) {
    const auto inputs = tutti::scatter(data.inputs, devices);
    const auto targets = tutti::scatter(data.targets, devices);
    for (std::size_t d = 0; d < devices.size(); ++d) {
      kernels().compute_gradients(replicas[d][0], replicas[d][1], inputs[d], targets[d], gradients[d][0],
                                  gradients[d][1]);
      buckets.ready(static_cast<int>(d), 1);
      buckets.ready(static_cast<int>(d), 0);
    }
    buckets.synchronize();
    // Every device has the sums, and makes the same step.
    for (std::size_t d = 0; d < devices.size(); ++d) {
      kernels().step(replicas[d][0], gradients[d][0], samples, rate);
      kernels().step(replicas[d][1], gradients[d][1], samples, rate);
    }
  }
  return {replicas[0][0], replicas[0][1]};
}

}  // namespace training
