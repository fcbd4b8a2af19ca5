// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/low_latency_tile.cuh"
#include "backend/cuda/team_kernel.cuh"

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

/// A member's part in a low-latency round as one kernel. Its warps depend on no other: each puts its tiles,
/// then waits for the lines of those it reads, and last for those of a relay's round. Each of these waits for
/// what comes earlier in other members' warps.
///
/// That a line of an inbox has been read before its place is written anew is what `finished` flags are for,
/// as with slots. Sums whose own inputs are what is put may have them as outputs: tiles of both are alike, so
/// the lane that overwrites a chunk is the one that has put it. So it is with copies to what is put, whose
/// segments are alike. What a relay's copy overwrites, if it is put
/// at all, has been put before, too, in whichever warp: the sum that comes back could not be made without it.
///
/// To set a flag of another device, and to order it behind what was done before, takes as long as to send a
/// small message. So a kernel leaves it to the next one of its member to say how far it has come: nobody
/// looks at that before eight rounds later, and whoever does waits for rounds that come before its own. It
/// says so itself if the member leaves out the rounds that follow, and at milestones; then, and if a flag is
/// set for the host, its end is in common, and as in `team_kernel.cuh`. Otherwise blocks end each for itself,
/// and what is counted of them is counted without a wait. For the same reason, all that a warp loads before
/// it puts its first tile it loads at once.
namespace tutti::backend::cuda {

/// `Gets::run<Lines>(view, entry, tile, lane, task, wait, relay)` does the second half's work for one tile;
/// false if it gave up waiting.
template <class Lines, class Gets, class Table>
__global__ void __launch_bounds__(team_threads, team_blocks_per_multiprocessor)
    low_latency_kernel(const __grid_constant__ Table table, const __grid_constant__ TeamArguments task) {
  wait_for_kernel_before();
  const TeamShape& shape = task.shape;
  const bool hands_on = shape.relay_puts.tile_count != 0;
  const bool puts = shape.puts.tile_count != 0 || hands_on;
  const TeamState state = load_state(task.counters);
  const FirstPut<Lines> first_put(table.data() + shape.puts_offset, shape.puts);
  const TeamPart part{task, table.data(), static_cast<std::uint32_t>(state.rounds)};
  const TeamRoom room(task, part.window(task.member), puts);
  // All threads of the block have read the counters when one of them says so.
  bool gave_up = __syncthreads_or(state.gave_up ? 1 : 0) != 0;
  const bool tells_everyone = part.tells_at_once();
  const bool ends_in_common = tells_everyone || task.done != nullptr;
  std::uint32_t done_before = 0;
  if (task.counts_done && blockIdx.x == 0 && threadIdx.x == 0) done_before = __ldcg(part.done_word());
  bool is_last = false;
  if (!ends_in_common && threadIdx.x == 0) is_last = part.has_begun_last();
  if (!gave_up && blockIdx.x == 0 && threadIdx.x < warp_lanes) part.tell_before();

  const auto lines_of = [&](std::uint32_t round) {
    return RoundLines{task.layout.inbox_shift(part.base + round), state.rounds + round};
  };
  const LineWait wait{lines_of(task.round), task.abort};
  const Relay relay{view_of<FanOutEntry>(part.table + shape.relay_puts_offset, shape.relay_puts),
                    lines_of(task.round + 1), hands_on};

  if (puts) {
    gave_up = !room.wait(part.round() + (hands_on ? 1 : 0), gave_up);
    if (!gave_up) {
      first_put.put(wait.lines);
      for_each_tile<FanOutEntry>(
          part.table + shape.puts_offset, shape.puts,
          [&](const auto& view, const auto& entry, auto tile, auto lane) {
            put_lines<Lines>(entry, view.pointers, tile, lane, wait.lines);
          },
          1);
    }
  }
  for_each_tile<typename Gets::Entry>(part.table + shape.gets_offset, shape.gets,
                                      [&](const auto& view, const auto& entry, auto tile, auto lane) {
                                        if (!gave_up)
                                          gave_up = !Gets::template run<Lines>(view, entry, tile, lane, task,
                                                                               wait, relay);
                                      });
  for_each_tile<FanOutEntry>(part.table + shape.relay_gets_offset, shape.relay_gets,
                             [&](const auto& view, const auto& entry, auto tile, auto lane) {
                               const LineWait relayed{relay.lines, task.abort};
                               if (!gave_up)
                                 gave_up = !copy_lines<Lines>(entry, view.pointers, tile, lane, relayed);
                             });

  if (ends_in_common) {
    if (block_gives_up(gave_up, task.counters)) return;
    if (threadIdx.x < warp_lanes && is_last_block(&task.counters->arrived, end_step))
      part.end(part.readers_told(), tells_everyone);
    return;
  }
  if (task.counts_done) {
    if (block_gives_up(gave_up, task.counters)) return;
  } else if (gave_up) {
    give_up(task.counters);
  }
  if (is_last) part.close();
  if (task.counts_done && threadIdx.x == 0) part.count_done(done_before);
}

template <class Gets>
cudaError_t launch_low_latency(LaunchSite where, const TeamRound& task, const TableArgument& table,
                               const TeamShape& shape) {
  return visit_small_table(table, [&]<class Table>(std::type_identity<Table>, const void* argument) {
    const void* const kernel = task.layout.lines == TeamLines::narrow
                                   ? kernel_address(low_latency_kernel<NarrowLines, Gets, Table>)
                                   : kernel_address(low_latency_kernel<WideLines, Gets, Table>);
    return launch_team_kernel(kernel, where, task, argument, shape);
  });
}

template <class Lines, class Gets>
cudaError_t preload_low_latency_of() {
  return preload_all({kernel_address(low_latency_kernel<Lines, Gets, ParameterTable<small_parameter_table>>),
                      kernel_address(low_latency_kernel<Lines, Gets, ParameterTable<medium_parameter_table>>),
                      kernel_address(low_latency_kernel<Lines, Gets, MemoryTable>)});
}
template <class Gets>
cudaError_t preload_low_latency() {
  const cudaError_t status = preload_low_latency_of<NarrowLines, Gets>();
  return status == cudaSuccess ? preload_low_latency_of<WideLines, Gets>() : status;
}

}  // namespace tutti::backend::cuda
