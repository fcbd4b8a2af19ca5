// Data-parallel training: every step replicates the parameters, cuts the batch, computes gradients on every
// device, adds them up and updates. The result is compared with training on one device: it is the same, bit
// for bit (see linear_model.hpp for why).

#include "kernels.hpp"
#include "tutti/tutti.hpp"

#include <cmath>
#include <cstdint>
#include <iostream>
#include <span>
#include <vector>

namespace {

constexpr std::int64_t samples = 250;  // not a multiple of the number of devices: the chunks differ in size
constexpr std::int64_t features = 8;
constexpr int steps = 300;
constexpr float rate = 0.1F;

/// What the model should find.
float true_weight(std::int64_t feature) {
  return 0.25F * static_cast<float>(feature) - 1.0F;
}
constexpr float true_bias = 0.5F;

struct Data {
  tutti::Tensor inputs;   ///< [samples, features]
  tutti::Tensor targets;  ///< [samples]
};

/// A made-up regression problem without noise, on the host in pinned memory.
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
  return {tutti::from_host(inputs, {samples, features}).pin_memory(),
          tutti::from_host(targets, {samples}).pin_memory()};
}

const Kernels& kernels() {
  return tutti::backend_kind() == tutti::BackendKind::cuda ? cuda_kernels() : virtual_kernels();
}

struct Parameters {
  tutti::Tensor weights;
  tutti::Tensor bias;
};

/// Trains on `devices`, the first of which keeps the parameters. No call here waits for a device.
Parameters train(const Data& data, const std::vector<tutti::Device>& devices) {
  const tutti::Device home = devices.front();
  const Parameters parameters{tutti::zeros({features}, {.device = home}),
                              tutti::zeros({1}, {.device = home})};

  for (int step = 0; step < steps; ++step) {
    // replicas[d] = {weights, bias} on devices[d]: all tensors in one operation.
    const auto replicas = tutti::broadcast_coalesced({parameters.weights, parameters.bias}, devices);
    const auto inputs = tutti::scatter(data.inputs, devices);
    const auto targets = tutti::scatter(data.targets, devices);

    std::vector<std::vector<tutti::Tensor>> gradients;
    for (std::size_t d = 0; d < devices.size(); ++d) {
      const tutti::TensorOptions fixed_point{.dtype = tutti::DType::int64, .device = devices[d]};
      gradients.push_back({tutti::empty({features}, fixed_point), tutti::empty({1}, fixed_point)});
      kernels().compute_gradients(replicas[d][0], replicas[d][1], inputs[d], targets[d], gradients[d][0],
                                  gradients[d][1]);
    }

    const auto sums = tutti::reduce_add_coalesced(gradients, home);
    kernels().step(parameters.weights, sums[0], samples, rate);
    kernels().step(parameters.bias, sums[1], samples, rate);
  }
  return parameters;
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

}  // namespace

int main() {
  const Data data = make_data();
  std::vector<tutti::Device> devices;
  for (int device = 0; device < tutti::device_count(); ++device) devices.emplace_back(device);

  const Parameters together = train(data, devices);
  const Parameters alone = train(data, {0});

  const bool same = together.weights.to_bytes() == alone.weights.to_bytes() &&
                    together.bias.to_bytes() == alone.bias.to_bytes();
  const bool converged = has_converged(together);
  std::cout << devices.size() << " devices: " << (converged ? "converged" : "did not converge")
            << ", weights " << (same ? "equal" : "differ from") << " those of one device bit for bit\n";
  return same && converged ? 0 : 1;
}
