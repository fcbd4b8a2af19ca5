// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels.hpp"
#include "backend/cuda/low_latency_kernel.cuh"
#include "backend/cuda/summed_types.cuh"

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

namespace {

template <class T>
struct Sums {
  using Entry = SumEntry;
  template <class Lines>
  static __device__ bool run(const TableView<Entry>& view, const Entry& entry, std::uint32_t tile,
                             std::uint32_t lane, const TeamArguments& task, const LineWait& wait,
                             const Relay& relay) {
    const auto number = static_cast<std::uint32_t>(&entry - view.entries);
    return sum_lines<Lines, T>(entry, number, view.pointers, task.input_count, tile, lane, wait, relay);
  }
};

}  // namespace

cudaError_t launch_low_latency_sums(LaunchSite where, const TeamRound& task, const TableArgument& table,
                                    const TeamShape& shape) {
  return visit_summed(task.sums.dtype,
                      [&]<class T>() { return launch_low_latency<Sums<T>>(where, task, table, shape); });
}

cudaError_t preload_low_latency_sums() {
  for (const DType dtype : all_dtypes) {
    const cudaError_t status = visit_summed(dtype, [&]<class T>() { return preload_low_latency<Sums<T>>(); });
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace tutti::backend::cuda
