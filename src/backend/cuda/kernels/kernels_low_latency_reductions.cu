// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/low_latency_reductions.cuh"
#include "backend/cuda/kernels/summed_types.cuh"

#include <cuda_runtime.h>

namespace tutti::backend::cuda {
namespace {

/// Calls `visitor.operator()<Lines>()`.
template <class Visitor>
cudaError_t visit_lines(TeamLines lines, const Visitor& visitor) {
  return lines == TeamLines::narrow ? visitor.template operator()<NarrowLines>()
                                    : visitor.template operator()<WideLines>();
}

}  // namespace

cudaError_t launch_low_latency_reductions(LaunchSite where, const TeamRound& task, const TableArgument& table,
                                          const TeamShape& shape) {
  return visit_reduced(task.reductions.dtype, [&]<class T>() {
    return visit_reduction_table(table, [&]<class Table>(std::type_identity<Table>, const void* argument) {
      return visit_lines(task.layout.lines, [&]<class Lines>() {
        return launch_team_kernel(
            kernel_address(low_latency_kernel<Lines, LowLatencyReductions<Reducer<T>>, Table>), where, task,
            argument, shape);
      });
    });
  });
}

cudaError_t preload_low_latency_reductions() {
  return preload_reduced([&]<class T>() {
    using Gets = LowLatencyReductions<Reducer<T>>;
    return preload_all(
        {kernel_address(low_latency_kernel<NarrowLines, Gets, ParameterTable<medium_parameter_table>>),
         kernel_address(low_latency_kernel<NarrowLines, Gets, MemoryTable>),
         kernel_address(low_latency_kernel<WideLines, Gets, ParameterTable<medium_parameter_table>>),
         kernel_address(low_latency_kernel<WideLines, Gets, MemoryTable>)});
  });
}

}  // namespace tutti::backend::cuda
