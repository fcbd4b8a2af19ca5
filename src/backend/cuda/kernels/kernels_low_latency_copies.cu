// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/low_latency_kernel.cuh"

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

namespace {

struct Copies {
  using Entry = FanOutEntry;
  template <class Lines>
  static __device__ Get find(const TableView<Entry>& view, const Entry& entry, std::uint32_t tile,
                             std::uint32_t lane, const TeamArguments&) {
    return get_of<Lines>(entry, view.pointers, tile, lane);
  }
  template <class Lines>
  static __device__ bool run(const TableView<Entry>& view, const Get& get, const TeamArguments&,
                             const LineWait& wait, const Relay&) {
    return copy_lines<Lines>(view.pointers, get, wait);
  }
};

}  // namespace

cudaError_t launch_low_latency_copies(LaunchSite where, const TeamRound& task, const TableArgument& table,
                                      const TeamShape& shape) {
  return launch_low_latency<Copies>(where, task, table, shape);
}

cudaError_t let_next_in(cudaGraphNode_t captured) {
  cudaKernelNodeParams node{};
  const cudaError_t status = cudaGraphKernelNodeGetParams(captured, &node);
  if (status != cudaSuccess) return status;
  // The table is the first, as in `launch_team_kernel`.
  TeamArguments task = *static_cast<const TeamArguments*>(node.kernelParams[1]);
  task.lets_next_in = true;
  void* parameters[] = {node.kernelParams[0], &task};
  node.kernelParams = parameters;
  return cudaGraphKernelNodeSetParams(captured, &node);
}

cudaError_t preload_low_latency_copies() {
  return preload_low_latency<Copies>();
}

}  // namespace tutti::backend::cuda
