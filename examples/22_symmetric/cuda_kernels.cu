// SPDX-License-Identifier: Apache-2.0
// The kernels for GPUs.

#include "fused.cuh"
#include "kernels.hpp"
#include "tutti/cuda_interop.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"

#include <string>

namespace {

// Blocks that wait for those of other members must all run at once: no more than GPUs have multiprocessors.
constexpr unsigned waiting_blocks = 64;
constexpr unsigned threads = 256;

__device__ fused::Place place() {
  return {threadIdx.x, blockDim.x, blockIdx.x, gridDim.x};
}

__global__ void normalise_rows(fused::Shape shape, const float* weights, const float* sums, float* out) {
  fused::normalise(shape, place(), weights, sums, out);
}

__global__ void all_reduce_and_normalise_rows(tutti::SymmetricView view, fused::Shape shape,
                                              const float* weights, std::int32_t* status) {
  const tutti::WaitStatus end = fused::all_reduce_and_normalise(view, shape, place(), weights);
  if (threadIdx.x == 0 && end != tutti::WaitStatus::done) *status = static_cast<std::int32_t>(end);
}

void check_launch(const char* kernel) {
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    throw tutti::Error(tutti::ErrorCode::device_failure,
                       std::string(kernel) + ": " + cudaGetErrorString(error), static_cast<int>(error));
  }
}

class CudaKernels final : public Kernels {
 public:
  void normalise(const tutti::Tensor& weights, const tutti::Tensor& sums,
                 const tutti::Tensor& out) const override {
    const tutti::DeviceGuard guard(sums.device());
    normalise_rows<<<static_cast<unsigned>(sums.size(0)), threads, 0,
                     tutti::to_cuda(tutti::current_stream())>>>(
        {sums.size(0), sums.size(1), epsilon}, weights.data<float>(), sums.data<float>(), out.data<float>());
    check_launch("normalise_rows");
  }

  void all_reduce_and_normalise(const tutti::SymmetricMemory& memory, int local, const tutti::Tensor& weights,
                                const tutti::Tensor& status) const override {
    const tutti::Tensor& own = memory.tensor(local);
    const tutti::DeviceGuard guard(own.device());
    const tutti::Stream stream = tutti::current_stream();
    memory.record_stream(stream);
    all_reduce_and_normalise_rows<<<waiting_blocks, threads, 0, tutti::to_cuda(stream)>>>(
        memory.view(local), {own.size(1), own.size(2), epsilon}, weights.data<float>(),
        status.data<std::int32_t>());
    check_launch("all_reduce_and_normalise_rows");
  }
};

}  // namespace

const Kernels& cuda_kernels() {
  static const CudaKernels kernels;
  return kernels;
}
