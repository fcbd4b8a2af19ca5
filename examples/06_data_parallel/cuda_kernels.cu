// SPDX-License-Identifier: Apache-2.0
// The kernels for GPUs: ordinary CUDA kernels on tutti's streams and tensors.

#include "kernels.hpp"
#include "linear_model.hpp"
#include "tutti/cuda_interop.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"

#include <string>

namespace {

/// One thread per parameter: the weights, then the bias.
__global__ void linear_gradients(const float* weights, const float* bias, const float* inputs,
                                 const float* targets, std::int64_t samples, std::int64_t features,
                                 std::int64_t* weight_sums, std::int64_t* bias_sum) {
  const std::int64_t parameter = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (parameter > features) return;
  const std::int64_t sum =
      linear_model::gradient_of(parameter, inputs, targets, samples, weights, *bias, features);
  (parameter == features ? *bias_sum : weight_sums[parameter]) = sum;
}

__global__ void step_parameters(float* parameters, const std::int64_t* gradients, std::int64_t count,
                                std::int64_t samples, float rate) {
  const std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) parameters[i] = linear_model::stepped(parameters[i], gradients[i], samples, rate);
}

constexpr unsigned block_size = 128;

unsigned blocks_for(std::int64_t threads) {
  return static_cast<unsigned>((threads + block_size - 1) / block_size);
}

void check_launch(const char* kernel) {
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    throw tutti::Error(tutti::ErrorCode::device_failure,
                       std::string(kernel) + ": " + cudaGetErrorString(error), static_cast<int>(error));
  }
}

class CudaKernels final : public Kernels {
 public:
  void compute_gradients(const tutti::Tensor& weights, const tutti::Tensor& bias, const tutti::Tensor& inputs,
                         const tutti::Tensor& targets, const tutti::Tensor& weight_gradients,
                         const tutti::Tensor& bias_gradient) const override {
    const tutti::DeviceGuard guard(weights.device());
    const cudaStream_t stream = tutti::to_cuda(tutti::current_stream());
    linear_gradients<<<blocks_for(inputs.size(1) + 1), block_size, 0, stream>>>(
        weights.data<float>(), bias.data<float>(), inputs.data<float>(), targets.data<float>(),
        inputs.size(0), inputs.size(1), weight_gradients.data<std::int64_t>(),
        bias_gradient.data<std::int64_t>());
    check_launch("linear_gradients");
  }

  void step(const tutti::Tensor& parameters, const tutti::Tensor& gradients, std::int64_t samples,
            float rate) const override {
    const tutti::DeviceGuard guard(parameters.device());
    const cudaStream_t stream = tutti::to_cuda(tutti::current_stream());
    step_parameters<<<blocks_for(parameters.numel()), block_size, 0, stream>>>(
        parameters.data<float>(), gradients.data<std::int64_t>(), parameters.numel(), samples, rate);
    check_launch("step_parameters");
  }
};

}  // namespace

const Kernels& cuda_kernels() {
  static const CudaKernels kernels;
  return kernels;
}
