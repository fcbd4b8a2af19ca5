// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/link_table.hpp"
#include "backend/cuda/kernels/segment_tables.hpp"
#include "backend/cuda/kernels/team_table.hpp"
#include "backend/norm_calls.hpp"
#include "backend/team_links.hpp"
#include "backend/team_round.hpp"

#include <cstddef>
#include <cstdint>

#include <cuda_runtime_api.h>

/// Launches the kernels. Each function enqueues one kernel on `where.stream`, whose device must be current,
/// and returns the launch's status. Empty work launches nothing.
namespace tutti::backend::cuda {

struct LaunchSite {
  cudaStream_t stream = nullptr;
  int multiprocessors = 1;  ///< of the device, or the most that the kernel may hold at a time
  bool is_bounded = false;  ///< the latter: then a grid has no more blocks than that
  /// The launch is a programmatic dependent launch: its cost on the device overlaps the end of the kernel
  /// before. For kernels of teams only.
  bool is_dependent = false;
};

// Kernels are compiled for these capacities; the smaller ones only save time at launch. Up to 4 KiB of
// parameters always work; more needs CUDA 12.1 in toolkit and driver, which allow 32764 bytes.
inline constexpr std::size_t small_parameter_table = 1024;
inline constexpr std::size_t medium_parameter_table = 3840;
#if CUDART_VERSION >= 12010
inline constexpr std::size_t large_parameter_table = 32512;
#else
inline constexpr std::size_t large_parameter_table = medium_parameter_table;
#endif
static_assert(large_parameter_table <= smallest_blob);
inline constexpr int large_parameters_driver = 12010;  ///< the least result of `cudaDriverGetVersion`
inline constexpr int dependent_graphs_driver = 12030;  ///< the same for dependent launches in graphs

/// A segment table, either in host memory (then it travels in the parameters; `blob` is that of a
/// `SegmentTable`) or already in device memory.
struct TableArgument {
  const std::byte* blob = nullptr;
  std::size_t bytes = 0;
  const std::byte* in_memory = nullptr;
};

cudaError_t launch_fan_out(LaunchSite where, const TableArgument& table, const TableShape& shape);
cudaError_t launch_ordered_sum(LaunchSite where, const OrderedReduction& task, const TableArgument& table,
                               const TableShape& shape);
/// Launches any reduction, by somewhat slower kernels; tables in parameters have at most
/// `medium_parameter_table` bytes.
cudaError_t launch_ordered_reduction(LaunchSite where, const OrderedReduction& task,
                                     const TableArgument& table, const TableShape& shape);
cudaError_t launch_convert(LaunchSite where, const Convert& task);
cudaError_t launch_fill(LaunchSite where, const Fill& task);
cudaError_t launch_random_fill(LaunchSite where, const RandomFill& task);
/// These launch one kernel for each `most_norm_pieces` pieces.
cudaError_t launch_square_sums(LaunchSite where, const NormPieces& task, double* sums);
cudaError_t launch_scale(LaunchSite where, const NormPieces& task, const double* factor);
cudaError_t launch_norm_of_sums(LaunchSite where, const NormOfSums& task);
/// Waits until `flag` is not 0, for `longest` nanoseconds at most, and sets `outcome`.
cudaError_t launch_wait(LaunchSite where, std::uint32_t* flag, std::uint64_t longest, std::uint32_t* outcome);
// A part without work is a kernel, too, as others wait for it.
cudaError_t launch_team_copies(LaunchSite where, const TeamRound& task, const TableArgument& table,
                               const TeamShape& shape);
cudaError_t launch_team_swaps(LaunchSite where, const TeamRound& task, const TableArgument& table,
                              const TeamShape& shape);
cudaError_t launch_team_sums(LaunchSite where, const TeamRound& task, const TableArgument& table,
                             const TeamShape& shape);
cudaError_t launch_team_reductions(LaunchSite where, const TeamRound& task, const TableArgument& table,
                                   const TeamShape& shape);
// These are for low-latency rounds. A table in the parameters has at most `medium_parameter_table` bytes.
cudaError_t launch_low_latency_copies(LaunchSite where, const TeamRound& task, const TableArgument& table,
                                      const TeamShape& shape);
cudaError_t launch_low_latency_sums(LaunchSite where, const TeamRound& task, const TableArgument& table,
                                    const TeamShape& shape);
cudaError_t launch_low_latency_reductions(LaunchSite where, const TeamRound& task, const TableArgument& table,
                                          const TeamShape& shape);
/// Makes a captured kernel of a low-latency round let the next kernel's blocks in before its own have ended,
/// if that is launched dependently.
cudaError_t let_next_in(cudaGraphNode_t captured);
/// Launches messages; a table in the parameters has at most `medium_parameter_table` bytes.
cudaError_t launch_links(LaunchSite where, const TeamLinks& task, const TableArgument& argument,
                         const LinkTable& table);

/// Load the machine code of the kernels to the current device. Otherwise it is loaded at each kernel's first
/// launch, which may wait for work in flight: for ever, if that work waits for the launching thread.
cudaError_t preload_fan_out();
cudaError_t preload_ordered_sum();
cudaError_t preload_ordered_reduction();
cudaError_t preload_convert();
cudaError_t preload_fill();
cudaError_t preload_random_fill();
cudaError_t preload_norms();
cudaError_t preload_wait();
cudaError_t preload_team_copies();
cudaError_t preload_team_swaps();
cudaError_t preload_team_sums();
cudaError_t preload_team_reductions();
/// Returns true if the kernels of teams, as the current device has loaded them, wait for the kernel before
/// when launched dependently; they do not if they are made from PTX for older devices.
bool team_kernels_may_be_dependent();
cudaError_t preload_links();
cudaError_t preload_low_latency_copies();
cudaError_t preload_low_latency_sums();
cudaError_t preload_low_latency_reductions();

}  // namespace tutti::backend::cuda
