// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/low_latency_tile.cuh"
#include "backend/cuda/kernels/team_kernel.cuh"

#include <cstdint>
#include <type_traits>

#include <cuda_runtime.h>

/// Runs a member's part in a low-latency round as one kernel. Its warps do not depend on one another: each
/// puts its tiles, then waits for the lines of those it reads, and last for those of a relay's round. Each of
/// these waits for what comes earlier in other members' warps.
///
/// `finished` flags ensure, as with slots, that a line of an inbox has been read before its place is written
/// again. A sum may overwrite its own input, although that is put as well: both have the same tiles, so the
/// lane that overwrites a chunk has put it before. The same holds for a copy that overwrites what is put,
/// because both have the same segments. A relay's copy may overwrite bytes that another warp puts: they have
/// been put before, because the sum that arrives was made of them.
///
/// Setting a flag of another device, and ordering it after earlier work, takes as long as sending a small
/// message. So a kernel leaves it to its member's next kernel to publish its progress: the others read that
/// eight rounds later at the earliest. A kernel publishes its progress itself at milestones, and if the
/// member leaves out the rounds that follow; then, and if a flag is set for the host, its blocks end in
/// common, as in `team_kernel.cuh`. Otherwise each block ends by itself, and is counted without a wait.
/// To save time before the first tile is put, a warp issues all loads for it at once, reads the kernel's
/// parameters while the kernel before may still run, and leaves work that nobody waits for until after that
/// tile, unless the tile has to wait.
namespace tutti::backend::cuda {

/// The first tile of a warp in the second half.
template <class Lines, class Gets>
class FirstGet {
 public:
  using Entry = typename Gets::Entry;
  __device__ FirstGet(const std::byte* table, const TableShape& shape)
      : view_(view_of<Entry>(table, shape)) {}
  __device__ void find(const TableShape& shape, const TeamArguments& task) {
    const std::uint32_t tile = first_tile();
    exists_ = tile < shape.tile_count;
    if (!exists_) return;
    get_ = Gets::template find<Lines>(view_, find_entry(view_.entries, shape, tile), tile,
                                      threadIdx.x % warp_lanes, task);
  }
  [[nodiscard]] __device__ bool run(const TeamArguments& task, const LineWait& wait,
                                    const Relay& relay) const {
    return !exists_ || Gets::template run<Lines>(view_, get_, task, wait, relay);
  }

 private:
  TableView<Entry> view_;
  bool exists_ = false;
  Get get_{};
};

/// `Gets::find<Lines>(view, entry, tile, lane, task)` finds what the second half needs for one tile, with
/// which `Gets::run<Lines>(view, get, task, wait, relay)` does its work; false if it gave up waiting.
template <class Lines, class Gets, class Table>
__global__ void __launch_bounds__(team_threads, team_blocks_per_multiprocessor)
    low_latency_kernel(const __grid_constant__ Table table, const __grid_constant__ TeamArguments task) {
  const TeamShape& shape = task.shape;
  const bool hands_on = shape.relay_puts.tile_count != 0;
  const bool puts = shape.puts.tile_count != 0 || hands_on;
  FirstPut<Lines> first_put(table.data() + shape.puts_offset, shape.puts);
  FirstGet<Lines, Gets> first_get(table.data() + shape.gets_offset, shape.gets);
  const auto find_first = [&] {
    first_put.find(shape.puts);
    first_get.find(shape.gets, task);
  };
  if constexpr (!Table::is_in_memory) find_first();
  wait_for_kernel_before();
  if constexpr (Table::is_in_memory) find_first();

  const TeamState state = load_state(task.counters);
  first_put.load();
  const TeamPart part{task, table.data(), state.rounds};
  const SlotCredit credit(task, part.window(task.member), puts);
  bool gave_up = state.gave_up;
  const auto lines_of = [&](std::uint32_t round) {
    return RoundLines{task.layout.inbox_shift(part.base() + round), part.number_of(round)};
  };
  const LineWait wait{lines_of(task.round), wait_of(task)};
  const Relay relay{view_of<FanOutEntry>(part.table + shape.relay_puts_offset, shape.relay_puts),
                    lines_of(task.round + 1), hands_on};

  bool is_to_tell = blockIdx.x == 0 && threadIdx.x < warp_lanes;
  const auto tell_before = [&] {
    if (is_to_tell && !gave_up) {
      part.tell_before();
      if (threadIdx.x == 0) part.note_call();
    }
    is_to_tell = false;
  };
  if (puts) {
    gave_up = !credit.wait(part.round() + (hands_on ? 1 : 0), gave_up, tell_before);
    if (!gave_up) first_put.put(wait.lines);
  }
  if (task.lets_next_in) let_next_kernel_in();
  // One thread publishes after all threads of the block have read the counters.
  gave_up = __syncthreads_or(gave_up ? 1 : 0) != 0;
  const bool tells_everyone = part.tells_at_once();
  const bool ends_in_common = tells_everyone || task.done != nullptr;
  std::uint32_t done_before = 0;
  if (task.counts_done && blockIdx.x == 0 && threadIdx.x == 0) done_before = __ldcg(part.done_word());
  bool is_last = false;
  if (!ends_in_common && threadIdx.x == 0) is_last = part.has_begun_last();
  tell_before();
  if (!gave_up && puts) {
    for_each_tile<FanOutEntry>(
        part.table + shape.puts_offset, shape.puts,
        [&](const auto& view, const auto& entry, auto tile, auto lane) {
          put_lines<Lines>(entry, view.pointers, tile, lane, wait.lines);
        },
        1);
  }
  if (is_last) part.close();
  if (!gave_up) gave_up = !first_get.run(task, wait, relay);
  for_each_tile<typename Gets::Entry>(
      part.table + shape.gets_offset, shape.gets,
      [&](const auto& view, const auto& entry, auto tile, auto lane) {
        const Get get = Gets::template find<Lines>(view, entry, tile, lane, task);
        if (!gave_up) gave_up = !Gets::template run<Lines>(view, get, task, wait, relay);
      },
      1);
  for_each_tile<FanOutEntry>(part.table + shape.relay_gets_offset, shape.relay_gets,
                             [&](const auto& view, const auto& entry, auto tile, auto lane) {
                               const LineWait relayed{relay.lines, wait_of(task)};
                               const Get get = get_of<Lines>(entry, view.pointers, tile, lane);
                               if (!gave_up) gave_up = !copy_lines<Lines>(view.pointers, get, relayed);
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
