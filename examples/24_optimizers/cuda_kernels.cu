// SPDX-License-Identifier: Apache-2.0
// The updates on GPUs: one kernel for each optimiser.

#include "kernels.hpp"
#include "tutti/cuda_interop.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <string>

namespace optimizers {
namespace {

constexpr unsigned block_size = 256;
constexpr std::int64_t most_blocks = 4096;

template <class Each>
__global__ void step_kernel(const Each each, const Elements elements) {
  const std::int64_t threads = std::int64_t{gridDim.x} * blockDim.x;
  for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements.count; i += threads)
    each(elements, i);
}

}  // namespace

void queue_on_gpu(const Step& step, const tutti::ParameterShard& shard) {
  Elements elements;
  elements.parameters = shard.parameters.data<float>();
  elements.gradients = shard.gradients.data<float>();
  if (shard.state.size() > 0) elements.first_state = shard.state[0].data<float>();
  if (shard.state.size() > 1) elements.second_state = shard.state[1].data<float>();
  elements.count = shard.parameters.numel();
  const tutti::DeviceGuard guard(shard.parameters.device());
  const cudaStream_t stream = tutti::to_cuda(tutti::current_stream());
  const std::int64_t wanted = (elements.count + block_size - 1) / block_size;
  const auto blocks = static_cast<unsigned>(std::min(std::max<std::int64_t>(wanted, 1), most_blocks));
  std::visit([&](const auto& each) { step_kernel<<<blocks, block_size, 0, stream>>>(each, elements); }, step);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    throw tutti::Error(tutti::ErrorCode::device_failure,
                       std::string("optimizer step: ") + cudaGetErrorString(error), static_cast<int>(error));
  }
}

}  // namespace optimizers
