// SPDX-License-Identifier: Apache-2.0
// The kernels for virtual devices: functions that run on a stream's own thread, on memory they have named.

#include "kernels.hpp"
#include "linear_model.hpp"
#include "tutti/virtual_devices.hpp"

#include <array>

namespace {

using tutti::virtual_devices::Access;

Access all_of(const tutti::Tensor& tensor) {
  return {tensor.data(), tensor.nbytes()};
}

class VirtualKernels final : public Kernels {
 public:
  void compute_gradients(const tutti::Tensor& weights, const tutti::Tensor& bias, const tutti::Tensor& inputs,
                         const tutti::Tensor& targets, const tutti::Tensor& weight_gradients,
                         const tutti::Tensor& bias_gradient) const override {
    const std::array accesses{all_of(weights),          all_of(bias),         all_of(inputs), all_of(targets),
                              all_of(weight_gradients), all_of(bias_gradient)};
    const std::int64_t samples = inputs.size(0);
    const std::int64_t features = inputs.size(1);
    tutti::virtual_devices::launch(
        tutti::current_stream(weights.device().index()), "linear_gradients", accesses, [=](auto memory) {
          const auto* w = static_cast<const float*>(memory[0]);
          const auto* b = static_cast<const float*>(memory[1]);
          const auto* x = static_cast<const float*>(memory[2]);
          const auto* y = static_cast<const float*>(memory[3]);
          auto* weight_sums = static_cast<std::int64_t*>(memory[4]);
          auto* bias_sum = static_cast<std::int64_t*>(memory[5]);
          for (std::int64_t feature = 0; feature < features; ++feature) {
            weight_sums[feature] = linear_model::gradient_of(feature, x, y, samples, w, *b, features);
          }
          *bias_sum = linear_model::gradient_of(features, x, y, samples, w, *b, features);
        });
  }

  void step(const tutti::Tensor& parameters, const tutti::Tensor& gradients, std::int64_t samples,
            float rate) const override {
    const std::array accesses{all_of(parameters), all_of(gradients)};
    tutti::virtual_devices::launch(tutti::current_stream(parameters.device().index()), "step", accesses,
                                   [=, count = parameters.numel()](auto memory) {
                                     auto* values = static_cast<float*>(memory[0]);
                                     const auto* sums = static_cast<const std::int64_t*>(memory[1]);
                                     for (std::int64_t i = 0; i < count; ++i) {
                                       values[i] = linear_model::stepped(values[i], sums[i], samples, rate);
                                     }
                                   });
  }
};

}  // namespace

const Kernels& virtual_kernels() {
  static const VirtualKernels kernels;
  return kernels;
}
