// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/team_kernel.cuh"

#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

namespace tutti::backend::cuda {

namespace {

/// The copies of a round that swaps.
struct Swaps {
  using Entry = FanOutEntry;
  static constexpr bool swaps = true;
  static std::size_t shared_bytes_per_warp(const TeamRound&) { return 0; }
  static __device__ void run(const TableView<Entry>& view, const Entry& entry, std::uint32_t tile,
                             std::uint32_t lane, const TeamArguments&, const TeamSources& sources) {
    const auto pointer = [&](std::uint32_t index) {
      return reinterpret_cast<std::uintptr_t>(view.pointers[index]);
    };
    const std::uint64_t source = pointer(entry.source);
    const std::uint64_t target = pointer(entry.first_target);
    const std::uint64_t exposed = SourcePlace::is_own(source) ? target : source;
    const std::uint64_t told =
        entry.swap == Swap::never ? 0 : reinterpret_cast<std::uintptr_t>(sources.exposed(exposed));
    const auto address = [&](std::uint64_t place) {
      if (SourcePlace::is_own(place)) return SourcePlace::address(place);
      return ExposedAddress::address(told) + SourcePlace::offset(place);
    };
    if (ExposedAddress::is_in_place(told)) {
      const SwapPlaces swapped = SwapPlaces::of(source, target, pointer(entry.first_target + 1));
      swap_tile(entry, reinterpret_cast<const std::byte*>(address(swapped.given)),
                reinterpret_cast<std::byte*>(address(swapped.exposed)),
                reinterpret_cast<std::byte*>(address(swapped.taken)), tile, lane);
      return;
    }
    if (entry.swap == Swap::of_both_in_place) return;
    copy_tile(entry, view.pointers, tile, lane,
              {.source = address(source) - source, .target = address(target) - target});
  }
};

}  // namespace

cudaError_t launch_team_swaps(LaunchSite where, const TeamRound& task, const TableArgument& table,
                              const TeamShape& shape) {
  return launch_team<Swaps>(where, task, table, shape);
}

cudaError_t preload_team_swaps() {
  return preload_team<Swaps>();
}

}  // namespace tutti::backend::cuda
