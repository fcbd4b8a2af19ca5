// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/device_words.cuh"
#include "backend/cuda/kernels/fan_out_tile.cuh"
#include "backend/cuda/kernels/for_each_tile.cuh"
#include "backend/cuda/kernels/preload.cuh"
#include "backend/cuda/kernels/team_part.cuh"
#include "backend/cuda/kernels/team_table.hpp"

#include <cstddef>
#include <cstdint>
#include <cuda/atomic>

#include <cuda_runtime.h>

/// Runs a member's part in a round of a team as one kernel.
///
/// Blocks wait for other devices, and the last of them to reach the middle acts for all. So none may keep
/// another from starting, not even one of another team of this process. Each multiprocessor has room for two,
/// and a grid has at most one per multiprocessor, and its team's share of all that room
/// (`transport::team::DeviceRoom`). While a block has not started, some multiprocessor holds fewer than two,
/// and so has room for it once other work there is over. A grid that lets the team's next grid in early takes
/// at most half of its share, and so does the next one; a third one starts only when the first is over. The
/// sizes of other members' grids do not matter, because blocks of different devices are independent.
///
/// Bytes put by many threads are visible to a reader of the flag that is set after them, by happens-before:
/// each thread's stores come before a barrier of its block; after that, the first thread adds to `arrived`
/// with release and acquire at the scope of the device; the block that comes last acquires what all others
/// have released, and its first warp, in step with its first thread, sets the flags behind a release fence at
/// system scope. What a fence orders includes what its thread has observed of others, also across scopes. On
/// the reader's side, a thread of each block loads the flag with acquire at system scope, which drops what
/// the multiprocessor has cached; a barrier then lets the block's other threads read. They read with ordinary
/// loads: `__ldg`, or pointers marked `__restrict__`, would allow the cache for data that never changes,
/// which acquire does not drop. The same argument in the other direction shows that a slot has been read
/// before others are told: no later store passes a release fence.
///
/// In a direct round nothing is put, and a fence at its end would only wait for stores that concern nobody
/// else. The exposed memory was written by kernels that are over. Its address comes in a line, with the
/// number of the round, which is stored behind a release fence and loaded with acquire. So does a second one.
/// (Further addresses are in the slot, behind a fence.) No fence is needed to ensure that memory has been
/// read before others are told: a thread has stored results made of what it has read, so the reads are over,
/// before it comes to a barrier. A member that writes to exposed memory has fences at its end, as where
/// something is put, and so has one that sets a flag for the host. In a round that swaps, the marks on the
/// first addresses tell all blocks whether it does. Counting in memory of the device
/// (`TeamCounters::done`) orders nothing.
///
/// A member that gives up while others may still write to its memory withdraws the addresses that it has
/// exposed. A kernel that has begun to write has everything it needs, and is soon over: the member waits for
/// it, but not for ever.
namespace tutti::backend::cuda {

// The parts of `TeamCounters::arrived`.
inline constexpr std::uint32_t middle_step = 1;
inline constexpr std::uint32_t end_step = 1U << 16U;
static_assert(most_team_blocks < end_step / 2);

/// Waits for the kernel before in the stream: a kernel may be launched before that is over
/// (`LaunchSite::is_dependent`), once all of its blocks have ended, or let the next in. Before this returns,
/// parameters may be read, but no memory.
__device__ inline void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}
/// Lets the next kernel of the stream in. Called by all blocks after `wait_for_kernel_before`, so that no
/// more than two kernels of a stream are there at once. The next one's blocks take room while this one's
/// still have theirs: see `TeamGrid::fits_twice`.
__device__ inline void let_next_kernel_in() {
#if __CUDA_ARCH__ >= 900
  cudaTriggerProgrammaticLaunchCompletion();
#endif
}

/// Returns true in the block that comes last, which then sees what all have done, if that `is_ordered`.
/// Called by the first warp of each block after a barrier of the block.
__device__ inline bool is_last_block(std::uint32_t* arrived, std::uint32_t step, bool is_ordered = true) {
  if (gridDim.x == 1) return true;
  std::uint32_t before = 0;
  if (threadIdx.x == 0) {
    const DeviceWord word(*arrived);
    before = is_ordered ? word.fetch_add(step, ::cuda::memory_order_acq_rel)
                        : word.fetch_add(step, ::cuda::memory_order_relaxed);
  }
  before = __shfl_sync(~0U, before, 0);
  __syncwarp();
  return before / step % (end_step / 2) == gridDim.x - 1;
}

/// Stops the block if any of its threads gave up, and with it all later kernels of the team. Other blocks may
/// run on, but no flag is set: that is for the last block to arrive, and this block never arrives.
__device__ inline bool block_gives_up(bool gave_up, TeamCounters* counters) {
  if (__syncthreads_or(gave_up ? 1 : 0) == 0) return false;
  if (threadIdx.x == 0) give_up(counters);
  return true;
}

/// Checks that all members have finished the round whose slots or inboxes a round reuses.
class SlotCredit {
 public:
  /// Loads the flags of the first members, one by each lane.
  __device__ explicit SlotCredit(const TeamArguments& task, std::byte* own_window, bool is_needed)
      : task_(task), own_window_(own_window) {
    const std::uint32_t lane = threadIdx.x % warp_lanes;
    if (is_needed && is_other(lane)) seen_ = flag_of(lane).load(::cuda::memory_order_acquire);
  }

  /// Waits for the members, by one warp. The result, false if the abort word is set before, or `gave_up`, is
  /// the same for all its threads. Calls `must_do_before` if it may have to wait.
  template <class Work>
  __device__ bool wait(std::uint32_t round, bool gave_up, const Work& must_do_before) const {
    const std::uint32_t wanted = round - TeamWindowLayout::slot_count;
    const bool is_seen = !is_other(threadIdx.x % warp_lanes) || has_reached(seen_, wanted);
    if (__all_sync(~0U, is_seen && !gave_up) && task_.layout.members <= warp_lanes) {
      __syncwarp();  // what one lane has seen orders what all of them write
      return true;
    }
    must_do_before();
    for (std::uint32_t other = threadIdx.x % warp_lanes; other < task_.layout.members; other += warp_lanes) {
      if (!is_other(other) || (other < warp_lanes && has_reached(seen_, wanted))) continue;
      gave_up |=
          !wait_for_flag(own_window_ + task_.layout.finished_offset(other), wanted, wait_of(task_), gave_up);
    }
    const bool is_room = __all_sync(~0U, !gave_up);
    __syncwarp();  // what one lane has seen orders what all of them write
    return is_room;
  }
  __device__ bool wait(std::uint32_t round, bool gave_up) const {
    return wait(round, gave_up, [] {});
  }

 private:
  /// Returns true for other members: the member's own earlier kernels are over.
  [[nodiscard]] __device__ bool is_other(std::uint32_t member) const {
    return member < task_.layout.members && member != task_.member;
  }
  [[nodiscard]] __device__ SystemWord flag_of(std::uint32_t member) const {
    return SystemWord(*reinterpret_cast<std::uint32_t*>(own_window_ + task_.layout.finished_offset(member)));
  }

  const TeamArguments& task_;
  std::byte* own_window_;
  std::uint32_t seen_ = 0;
};

/// The number of members whose first addresses are kept at hand, in shared memory.
inline constexpr std::uint32_t most_at_hand = warp_lanes;

/// Finds places in this kernel's run.
struct TeamSources {
  const TeamPart& part;
  std::uint64_t shift;          ///< of the round's slots
  const FirstExposed* at_hand;  ///< by member, of sources of the round

  [[nodiscard]] __device__ const std::byte* operator()(const std::byte* place) const {
    const auto bits = reinterpret_cast<std::uintptr_t>(place);
    if (SourcePlace::is_in_slot(bits)) return place + shift;
    if (SourcePlace::is_own(bits)) return reinterpret_cast<const std::byte*>(SourcePlace::address(bits));
    return exposed(bits) + SourcePlace::offset(bits);
  }
  /// Returns the address, as the other member tells it, that a place in exposed memory refers to.
  [[nodiscard]] __device__ const std::byte* exposed(std::uintptr_t place) const {
    const auto number = static_cast<std::uint32_t>(SourcePlace::number(place));
    const std::uint32_t member = number / part.task.most_exposed;
    const std::uint32_t index = number % part.task.most_exposed;
    const bool is_in_line = index < TeamWindowLayout::exposed_lines;
    if (is_in_line && member < most_at_hand)
      return index == 0 ? at_hand[member].first : at_hand[member].second;
    // The address is in the own window. It is computed anew each time, as registers are scarce.
    if (is_in_line) {
      const TeamLine line = load_line(part.exposed_line(part.task.member, member, index));
      return reinterpret_cast<const std::byte*>(line.data);
    }
    const std::byte* const own = part.window(part.task.member);
    return reinterpret_cast<const std::byte* const*>(own + part.task.layout.slots_offset() + shift)[number];
  }
};

/// `Gets::run(view, entry, tile, lane, task, sources)` does the second half's work for one tile.
/// `Gets::swaps` tells that it is for rounds that swap.
template <class Gets, class Table>
__global__ void __launch_bounds__(team_threads, team_blocks_per_multiprocessor)
    team_kernel(const __grid_constant__ Table table, const __grid_constant__ TeamArguments task) {
  wait_for_kernel_before();
  const TeamShape& shape = task.shape;
  const bool puts = shape.puts.tile_count != 0;
  const bool exposes = task.exposed_count != 0 && blockIdx.x == 0;
  const bool has_second_half = shape.source_count != 0 || shape.gets.tile_count != 0;
  const std::uint32_t warp = threadIdx.x / warp_lanes;
  const bool is_first_warp = warp == 0;
  // The fence lets readers of the lines of `expose` see what the kernels before have written. While the first
  // warp is in it, another one, if there is one, finds out whether there is room.
  if (exposes && is_first_warp) TeamPart::fence();
  const bool checks_credit = blockDim.x > warp_lanes ? warp == 1 : is_first_warp;
  const TeamState state = load_state(task.counters);
  TeamPart part{task, table.data(), state.rounds};
  std::byte* const own = part.window(task.member);
  const SlotCredit credit(task, own, checks_credit && (puts || exposes));
  bool gave_up = state.gave_up;
  if (blockIdx.x == 0 && threadIdx.x == 0 && !gave_up) part.note_call();
  const std::uint64_t shift = task.layout.slot_shift(part.round());
  const auto end_first_half = [&] {
    if (!has_second_half) {
      part.end(exposes ? part.readers_told() : 0);
    } else if (!exposes && shape.reader_count != 0) {
      part.fence();
      part.tell(0, part.readers_told());
    }
  };

  if (puts) {
    if (checks_credit) gave_up = !credit.wait(part.round(), gave_up);
    if (block_gives_up(gave_up, task.counters)) return;
    for_each_tile<FanOutEntry>(part.table + shape.puts_offset, shape.puts,
                               [&](const auto& view, const auto& entry, auto tile, auto lane) {
                                 copy_tile(entry, view.pointers, tile, lane, {.target = shift});
                               });
    __syncthreads();
    if (is_first_warp && is_last_block(&task.counters->arrived, middle_step)) end_first_half();
  } else if (blockIdx.x == 0) {
    // Nothing is put: whatever the readers wait for, the stream has done before.
    if (exposes) {
      if (checks_credit) gave_up = !credit.wait(part.round(), gave_up);
      gave_up = __syncthreads_or(gave_up ? 1 : 0) != 0;
      if (gave_up && threadIdx.x == 0) give_up(task.counters);
    }
    if (is_first_warp && !gave_up) {
      if (exposes) part.expose(shift);
      end_first_half();
    }
  }
  if (!has_second_half) return;

  // The last threads wait, as the first may still be publishing.
  __shared__ FirstExposed at_hand[most_at_hand];
  bool are_some_in_place = false;
  const auto* const sources =
      reinterpret_cast<const std::uint32_t*>(part.table + shape.readers_offset) + shape.reader_count;
  for (std::uint32_t i = blockDim.x - 1 - threadIdx.x; i < shape.source_count; i += blockDim.x) {
    const std::uint32_t source = sources[i];
    if (task.is_direct) {
      const FirstExposed exposed = part.wait_for_exposed(source, gave_up);
      gave_up |= exposed.first == nullptr;
      if constexpr (Gets::swaps) {
        are_some_in_place |=
            ExposedAddress::are_some_in_place(reinterpret_cast<std::uintptr_t>(exposed.first));
      }
      if (source < most_at_hand) at_hand[source] = exposed;
    } else {
      std::byte* const flag = own + task.layout.ready_offset(source, part.round());
      gave_up |= !wait_for_round(flag, part.number(), wait_of(task), gave_up);
    }
  }
  if (block_gives_up(gave_up, task.counters)) {
    if (is_first_warp && !state.gave_up) part.withdraw();  // otherwise nothing is exposed
    return;
  }
  if constexpr (Gets::swaps) part.writes_where_marked = __syncthreads_or(are_some_in_place ? 1 : 0) != 0;
  const TeamSources where{part, shift, at_hand};
  for_each_tile<typename Gets::Entry>(part.table + shape.gets_offset, shape.gets,
                                      [&](const auto& view, const auto& entry, auto tile, auto lane) {
                                        Gets::run(view, entry, tile, lane, task, where);
                                      });
  __syncthreads();
  if (is_first_warp && is_last_block(&task.counters->arrived, end_step, part.is_end_ordered()))
    part.end(part.readers_told());
}

/// Launches a kernel of a team, which takes a table as from `visit_table`, and `TeamArguments`.
inline cudaError_t launch_team_kernel(const void* kernel, LaunchSite where, const TeamRound& task,
                                      const void* table, const TeamShape& shape,
                                      std::size_t shared_bytes_per_warp = 0) {
  const TeamGrid grid = grid_for(shape, where.multiprocessors, task.most_multiprocessors);
  TeamArguments arguments_beside = team_arguments(task, shape);
  void* arguments[] = {const_cast<void*>(table), &arguments_beside};
  cudaLaunchAttribute dependent{};
  dependent.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  dependent.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t configuration{};
  configuration.gridDim = dim3(grid.blocks);
  configuration.blockDim = dim3(grid.warps * warp_lanes);
  configuration.dynamicSmemBytes = shared_bytes_per_warp * grid.warps;
  configuration.stream = where.stream;
  configuration.attrs = &dependent;
  configuration.numAttrs = where.is_dependent ? 1 : 0;
  return cudaLaunchKernelExC(&configuration, kernel, arguments);
}

/// Launches `team_kernel<Gets, Table>` with the kind of table that fits.
template <class Gets>
cudaError_t launch_team(LaunchSite where, const TeamRound& task, const TableArgument& table,
                        const TeamShape& shape) {
  return visit_table(table, [&]<class Table>(std::type_identity<Table>, const void* argument) {
    return launch_team_kernel(kernel_address(team_kernel<Gets, Table>), where, task, argument, shape,
                              Gets::shared_bytes_per_warp(task));
  });
}

template <class Gets>
cudaError_t preload_team() {
  return preload_all({kernel_address(team_kernel<Gets, ParameterTable<small_parameter_table>>),
                      kernel_address(team_kernel<Gets, ParameterTable<medium_parameter_table>>),
                      kernel_address(team_kernel<Gets, ParameterTable<large_parameter_table>>),
                      kernel_address(team_kernel<Gets, MemoryTable>)});
}

}  // namespace tutti::backend::cuda
