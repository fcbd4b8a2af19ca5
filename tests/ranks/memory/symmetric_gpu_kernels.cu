// SPDX-License-Identifier: Apache-2.0
#include "ranks/memory/symmetric_gpu_kernels.hpp"
#include "ranks/memory/symmetric_kernels.cuh"
#include "tutti/cuda_interop.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"

#include <string>

#include <cuda_runtime.h>

namespace tutti::test {
namespace {

constexpr unsigned exchange_blocks = 8;
constexpr unsigned threads = 256;

template <class Kernel>
__global__ void run(SymmetricView view, std::int32_t* status, Kernel kernel) {
  const WaitStatus end = kernel(view, Place{blockIdx.x, gridDim.x, threadIdx.x, blockDim.x});
  if (threadIdx.x == 0 && end != WaitStatus::done) *status = static_cast<std::int32_t>(end);
}

template <class Kernel>
void launch(const SymmetricView& view, const Stream& stream, std::int32_t* status, const Kernel& kernel,
            unsigned blocks) {
  const DeviceGuard guard{Device(stream.device())};
  run<<<blocks, threads, 0, to_cuda(stream)>>>(view, status, kernel);
  if (const cudaError_t error = cudaGetLastError(); error != cudaSuccess) {
    throw Error(ErrorCode::device_failure, std::string("symmetric kernel: ") + cudaGetErrorString(error),
                static_cast<int>(error));
  }
}

}  // namespace

void launch_on_gpu(const SymmetricView& view, const Stream& stream, std::int32_t* status,
                   const ExchangeKernel& kernel) {
  launch(view, stream, status, kernel, exchange_blocks);
}
void launch_on_gpu(const SymmetricView& view, const Stream& stream, std::int32_t* status,
                   const RingKernel& kernel) {
  launch(view, stream, status, kernel, 1);
}
void launch_on_gpu(const SymmetricView& view, const Stream& stream, std::int32_t* status,
                   const SignalsKernel& kernel) {
  launch(view, stream, status, kernel, 1);
}
void launch_on_gpu(const SymmetricView& view, const Stream& stream, std::int32_t* status,
                   const BarrierKernel& kernel) {
  launch(view, stream, status, kernel, 1);
}
void launch_on_gpu(const SymmetricView& view, const Stream& stream, std::int32_t* status,
                   const WaitKernel& kernel) {
  launch(view, stream, status, kernel, 1);
}

}  // namespace tutti::test
