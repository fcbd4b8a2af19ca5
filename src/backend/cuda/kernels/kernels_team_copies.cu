// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/team_kernel.cuh"

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

namespace {

struct Copies {
  using Entry = FanOutEntry;
  static constexpr bool swaps = false;
  static std::size_t shared_bytes_per_warp(const TeamRound&) { return 0; }
  static __device__ void run(const TableView<Entry>& view, const Entry& entry, std::uint32_t tile,
                             std::uint32_t lane, const TeamArguments& task, const TeamSources& sources) {
    const auto shift_of = [&](const std::byte* place) {
      return reinterpret_cast<std::uintptr_t>(sources(place)) - reinterpret_cast<std::uintptr_t>(place);
    };
    copy_tile(entry, view.pointers, tile, lane,
              {.source = shift_of(view.pointers[entry.source]),
               .target = task.is_direct ? shift_of(view.pointers[entry.first_target]) : 0});
  }
};

}  // namespace

cudaError_t launch_team_copies(LaunchSite where, const TeamRound& task, const TableArgument& table,
                               const TeamShape& shape) {
  return launch_team<Copies>(where, task, table, shape);
}

cudaError_t preload_team_copies() {
  return preload_team<Copies>();
}

bool team_kernels_may_be_dependent() {
  cudaFuncAttributes attributes{};
  const cudaError_t status = cudaFuncGetAttributes(
      &attributes, kernel_address(team_kernel<Copies, ParameterTable<small_parameter_table>>));
  constexpr int first_with_dependent_launch = 90;
  return status == cudaSuccess && attributes.ptxVersion >= first_with_dependent_launch;
}

}  // namespace tutti::backend::cuda
