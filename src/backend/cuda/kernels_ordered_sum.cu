#include "backend/cuda/kernels.hpp"
#include "backend/cuda/ordered_sum_tile.cuh"
#include "backend/cuda/preload.cuh"

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

namespace {

constexpr int blocks_per_multiprocessor =
    3;  // 24 warps; each thread gets the registers for eight vectors in flight

struct SumCounts {
  std::uint32_t inputs;
  std::uint32_t outputs;
};

template <class T, class Table>
__global__ void __launch_bounds__(threads_per_block, blocks_per_multiprocessor)
    ordered_sum_kernel(const __grid_constant__ Table table, const __grid_constant__ TableShape shape,
                       const SumCounts counts) {
  const auto view = view_of<SumEntry>(table.data(), shape);
  const std::uint32_t lane = threadIdx.x % warp_lanes;
  const std::uint32_t warp = (blockIdx.x * blockDim.x + threadIdx.x) / warp_lanes;
  const std::uint32_t warps = gridDim.x * blockDim.x / warp_lanes;
  for (std::uint64_t tile = warp; tile < shape.tile_count; tile += warps) {
    const auto number = static_cast<std::uint32_t>(tile);
    sum_tile<T>(find_entry(view.entries, shape.segment_count, number), view.pointers, counts.inputs,
                counts.outputs, number, shape.tile_bytes, lane);
  }
}

/// Calls `visitor.operator()<T>()` with the component type of `dtype`'s sums: the types `summed_as` returns,
/// no others, so that no kernel is compiled twice.
template <class Visitor>
cudaError_t visit_summed(DType dtype, Visitor&& visitor) {
  switch (summed_as(dtype)) {
    case DType::float16:
      return visitor.template operator()<Float16>();
    case DType::bfloat16:
      return visitor.template operator()<BFloat16>();
    case DType::float32:
      return visitor.template operator()<float>();
    case DType::float64:
      return visitor.template operator()<double>();
    case DType::uint8:
      return visitor.template operator()<std::uint8_t>();
    case DType::int16:
      return visitor.template operator()<std::int16_t>();
    case DType::int32:
      return visitor.template operator()<std::int32_t>();
    case DType::int64:
      return visitor.template operator()<std::int64_t>();
    case DType::boolean:
      return visitor.template operator()<bool>();
    case DType::float8_e4m3:
      return visitor.template operator()<Float8E4M3>();
    case DType::float8_e5m2:
      return visitor.template operator()<Float8E5M2>();
    default:
      return cudaErrorInvalidValue;
  }
}

}  // namespace

cudaError_t launch_ordered_sum(LaunchSite where, const OrderedSum& task, const TableArgument& table,
                               const TableShape& shape) {
  if (shape.tile_count == 0) return cudaSuccess;
  const TileLaunch launch = launch_for(shape.tile_count, where.multiprocessors, blocks_per_multiprocessor);
  SumCounts counts{task.input_count, task.output_count};
  return visit_summed(task.dtype, [&]<class T>() {
    return visit_table(table, [&]<class Table>(std::type_identity<Table>, const void* argument) {
      void* arguments[] = {const_cast<void*>(argument), const_cast<TableShape*>(&shape), &counts};
      return cudaLaunchKernel(kernel_address(ordered_sum_kernel<T, Table>), launch.grid, launch.block,
                              arguments, 0, where.stream);
    });
  });
}

cudaError_t preload_ordered_sum() {
  for (const DType dtype : all_dtypes) {
    const cudaError_t status = visit_summed(dtype, [&]<class T>() {
      return preload_all({kernel_address(ordered_sum_kernel<T, ParameterTable<small_parameter_table>>),
                          kernel_address(ordered_sum_kernel<T, ParameterTable<medium_parameter_table>>),
                          kernel_address(ordered_sum_kernel<T, ParameterTable<large_parameter_table>>),
                          kernel_address(ordered_sum_kernel<T, MemoryTable>)});
    });
    if (status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

}  // namespace tutti::backend::cuda
