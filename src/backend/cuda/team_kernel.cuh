// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/device_words.cuh"
#include "backend/cuda/fan_out_tile.cuh"
#include "backend/cuda/for_each_tile.cuh"
#include "backend/cuda/preload.cuh"
#include "backend/cuda/team_table.hpp"

#include <cstddef>
#include <cstdint>
#include <cuda/atomic>

#include <cuda_runtime.h>

/// A member's part in a round of a team as one kernel.
///
/// Blocks wait: for other devices, and the last of them to come to the middle speaks for all. So none may
/// keep another from starting, be it of another team of this process. Each multiprocessor has room for two,
/// and a grid has at most one per multiprocessor, and its team's share of all that room. While a block has
/// not started, some multiprocessor holds fewer than two, and so has room for it once other work there is
/// over. (Kernels that were queued, or captured, when there were fewer teams have larger shares.) How many
/// blocks other members' grids have does not matter: blocks of different devices know nothing of one another.
///
/// Bytes put by many threads are visible to whoever reads the flag that is set after them, by
/// happens-before: each thread's stores come before a barrier of its block; after that, the first thread adds
/// to `arrived` with release and acquire at the scope of the device; the block that comes last acquires what
/// all others have released, and its first warp, in step with its first thread, sets the flags behind a
/// release fence at system scope. What a fence orders includes what its thread has observed of others, also
/// across scopes. The reader's side: a thread of each block loads the flag with acquire at system scope,
/// which drops what the multiprocessor has cached; a barrier then lets the block's other threads read.
/// They read with ordinary loads: `__ldg`, or pointers marked `__restrict__`, would allow the cache for data
/// that never changes, which acquire does not drop. That a slot has been read before others are told is the
/// same argument in the other direction: no later store passes a release fence.
namespace tutti::backend::cuda {

/// What the kernel is told besides the table.
struct TeamArguments {
  TeamShape shape;
  std::uint32_t member;
  TeamWindowLayout layout;
  TeamCounters* counters;
  std::uint32_t* abort;
  std::uint32_t* done;  ///< nullptr: none
  std::uint32_t done_value;
  std::uint32_t round;
  std::uint32_t finished;
  std::uint32_t given_count;
  std::uint32_t input_count;
  ReduceArguments reducing;
  bool ends_call;
  bool tells_at_once;  ///< of a low-latency round: how far it has come, in this kernel
};
static_assert(medium_parameter_table + sizeof(TeamArguments) <= 4096, "more parameters than always work");

inline TeamArguments team_arguments(const TeamRound& task, const TeamShape& shape) {
  const TeamRound& last = task.relay != nullptr ? *task.relay : task;
  return {.shape = shape,
          .member = task.member,
          .layout = task.layout,
          .counters = task.counters,
          .abort = word_of(task.abort->state),
          .done = last.done == nullptr ? nullptr : word_of(last.done->value),
          .done_value = last.done_value,
          .round = task.round,
          .finished = last.finished,
          .given_count = task.given_count,
          .input_count = task.reductions.input_count,
          .reducing = reduce_arguments(task.reductions),
          .ends_call = last.ends_call,
          .tells_at_once = last.done != nullptr || last.finished != last.round};
}

inline constexpr std::uint32_t team_threads = team_warps_per_block * warp_lanes;

// The parts of `TeamCounters::arrived`.
inline constexpr std::uint32_t middle_step = 1;
inline constexpr std::uint32_t end_step = 1U << 16U;
static_assert(most_team_blocks < end_step / 2);

/// True once the flag has come to `value`; false once the abort word is seen to be set before, or `gave_up`
/// from the start. That is looked at only after the flag, so that both can be loaded at once.
__device__ inline bool wait_for_flag(std::byte* flag, std::uint32_t value, std::uint32_t* abort,
                                     bool gave_up) {
  const SystemWord word(*reinterpret_cast<std::uint32_t*>(flag));
  for (std::uint32_t polls = 1; !has_reached(word.load(::cuda::memory_order_acquire), value); ++polls) {
    if (gave_up || (is_turn_to_look(polls) && is_aborted(abort))) return false;
  }
  return true;
}

/// A kernel may be launched before the one before it in its stream is over (`LaunchSite::is_dependent`). No
/// kernel here lets the next one in early, so its blocks come in once all of the other's have ended, and take
/// no room from anybody. Nothing of memory may be touched before this returns.
__device__ inline void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  cudaGridDependencySynchronize();
#endif
}

/// Called by the first warp of each block after a barrier of the block: true in the block that comes last,
/// which then sees what all have done.
__device__ inline bool is_last_block(std::uint32_t* arrived, std::uint32_t step) {
  if (gridDim.x == 1) return true;
  std::uint32_t before = 0;
  if (threadIdx.x == 0) before = DeviceWord(*arrived).fetch_add(step, ::cuda::memory_order_acq_rel);
  before = __shfl_sync(~0U, before, 0);
  __syncwarp();
  return before / step % (end_step / 2) == gridDim.x - 1;
}

/// What `TeamCounters` says at the beginning of a kernel, read at once.
struct TeamState {
  std::uint64_t rounds;
  bool gave_up;  ///< the same for all threads but in a kernel some of whose blocks have given up
};
__device__ inline TeamState load_state(const TeamCounters* counters) {
  static_assert(offsetof(TeamCounters, gave_up) == offsetof(TeamCounters, rounds) + sizeof(std::uint64_t));
  const ulonglong2 words = __ldcg(reinterpret_cast<const ulonglong2*>(&counters->rounds));
  return {words.x, static_cast<std::uint32_t>(words.y) != 0};
}
/// All kernels of the team that come later do nothing.
__device__ inline void give_up(TeamCounters* counters) {
  DeviceWord(counters->gave_up).store(1, ::cuda::memory_order_relaxed);
}

/// The part, as it is in this kernel's run.
struct TeamPart {
  const TeamArguments& task;
  const std::byte* table;
  std::uint32_t base;  ///< rounds of the calls before, modulo 2^32

  [[nodiscard]] __device__ std::byte* window(std::uint32_t member) const {
    return reinterpret_cast<std::byte* const*>(table)[member];
  }
  [[nodiscard]] __device__ std::uint32_t round() const { return base + task.round; }

  /// Threads of one block share the work.
  __device__ void give(std::uint64_t shift) const {
    const auto* const readers = reinterpret_cast<const std::uint32_t*>(table + task.shape.readers_offset);
    const auto* const given = reinterpret_cast<const std::uint64_t*>(table + task.shape.given_offset());
    const std::uint64_t at = task.layout.slots_offset() + shift + task.layout.given_offset(task.member);
    for (std::uint32_t i = threadIdx.x; i < task.shape.reader_count * task.given_count; i += blockDim.x) {
      auto* const slot = reinterpret_cast<std::uint64_t*>(window(readers[i / task.given_count]) + at);
      slot[i % task.given_count] = given[i];
    }
  }
  /// By one warp: waits until all readers have finished. The result is the same for all its threads.
  [[nodiscard]] __device__ bool wait_for_readers() const {
    const auto* const readers = reinterpret_cast<const std::uint32_t*>(table + task.shape.readers_offset);
    bool gave_up = false;
    for (std::uint32_t i = threadIdx.x; i < task.shape.reader_count; i += warp_lanes) {
      std::byte* const flag = window(task.member) + task.layout.finished_offset(readers[i]);
      gave_up |= !wait_for_flag(flag, round(), task.abort, gave_up);
    }
    return __all_sync(~0U, !gave_up);
  }

  // What it tells, one after another: the readers, everyone, its own rank.
  [[nodiscard]] __device__ std::uint32_t readers_told() const { return task.shape.reader_count; }
  [[nodiscard]] __device__ std::uint32_t everyone_told() const {
    return task.shape.reader_count + task.layout.members;
  }
  [[nodiscard]] __device__ std::uint32_t all_told() const {
    return everyone_told() + (task.done != nullptr ? 1 : 0);
  }
  /// By one warp, from what is told first on: the part is over when those have read to whom memory was given.
  __device__ void end(std::uint32_t begin) const {
    if (task.given_count == 0) {
      tell(begin, all_told());
    } else {
      tell(begin, everyone_told());
      if (!wait_for_readers()) {
        if (threadIdx.x == 0) give_up(task.counters);
        return;
      }
      tell(everyone_told(), all_told());
    }
    close();
  }
  /// By one warp.
  __device__ void tell(std::uint32_t begin, std::uint32_t end) const {
    ::cuda::atomic_thread_fence(::cuda::memory_order_release, ::cuda::thread_scope_system);
    const auto* const readers = reinterpret_cast<const std::uint32_t*>(table + task.shape.readers_offset);
    for (std::uint32_t i = begin + threadIdx.x; i < end; i += warp_lanes) {
      std::byte* flag = nullptr;
      std::uint32_t value = round();
      if (i < task.shape.reader_count) {
        flag = window(readers[i]) + task.layout.ready_offset(task.member);
      } else if (const std::uint32_t other = i - task.shape.reader_count; other < task.layout.members) {
        flag = window(other) + task.layout.finished_offset(task.member);
        value = base + task.finished;
        if (TeamWindowLayout::is_milestone(round() - 1, value))
          set(window(other) + task.layout.ready_offset(task.member), value);
      } else {
        flag = reinterpret_cast<std::byte*>(task.done);
        value = task.done_value;
      }
      set(flag, value);
    }
  }
  /// By one warp, as the kernel begins: what all kernels before have done. Nothing needs to be fenced: they
  /// are over.
  __device__ void tell_before() const {
    const std::uint32_t value = round() - 1;
    for (std::uint32_t other = threadIdx.x; other < task.layout.members; other += warp_lanes)
      set(window(other) + task.layout.finished_offset(task.member), value);
  }
  /// Whether this kernel tells everyone how far it has come. Otherwise the next one does.
  [[nodiscard]] __device__ bool tells_at_once() const {
    return task.tells_at_once || TeamWindowLayout::is_milestone(round() - 1, base + task.finished);
  }
  static __device__ void set(std::byte* flag, std::uint32_t value) {
    SystemWord(*reinterpret_cast<std::uint32_t*>(flag)).store(value, ::cuda::memory_order_relaxed);
  }
  /// By the first thread of each block, when all of the block have read the counters: true in the block that
  /// comes last, which may then write them. What it has counted is looked at when it is needed. Threads have
  /// read what they have used, so nothing else is ordered by this.
  [[nodiscard]] __device__ bool has_begun_last() const {
    if (gridDim.x == 1) return true;
    return DeviceWord(task.counters->arrived).fetch_add(1, ::cuda::memory_order_relaxed) == gridDim.x - 1;
  }
  /// For the next kernel.
  __device__ void close() const {
    if (threadIdx.x != 0) return;
    task.counters->arrived = 0;
    if (task.ends_call) task.counters->rounds += task.finished;
  }
};

/// `gave_up`, of any thread of the block: it stops, and so do all kernels of the team that come later. Blocks
/// that have not given up may run on, but the last to arrive never comes, and nobody is told anything.
__device__ inline bool block_gives_up(bool gave_up, TeamCounters* counters) {
  if (__syncthreads_or(gave_up ? 1 : 0) == 0) return false;
  if (threadIdx.x == 0) give_up(counters);
  return true;
}

/// Where places are in this kernel's run.
struct TeamSources {
  const TeamPart& part;
  std::uint64_t shift;  ///< of the round's slots

  [[nodiscard]] __device__ const std::byte* operator()(const std::byte* place) const {
    const auto bits = reinterpret_cast<std::uintptr_t>(place);
    if (SourcePlace::is_in_slot(bits)) return place + shift;
    if (SourcePlace::is_own(bits)) return reinterpret_cast<const std::byte*>(SourcePlace::address(bits));
    // What others give lies in the own slot. Its address is found anew each time: registers are scarce.
    const std::byte* const slot = part.window(part.task.member) + part.task.layout.slots_offset() + shift;
    return reinterpret_cast<const std::byte* const*>(slot)[SourcePlace::number(bits)] +
           SourcePlace::offset(bits);
  }
};

/// `Gets::run(view, entry, tile, lane, task, sources)` does the second half's work for one tile.
template <class Gets, class Table>
__global__ void __launch_bounds__(team_threads, team_blocks_per_multiprocessor)
    team_kernel(const __grid_constant__ Table table, const __grid_constant__ TeamArguments task) {
  wait_for_kernel_before();
  const TeamShape& shape = task.shape;
  const TeamState state = load_state(task.counters);
  const TeamPart part{task, table.data(), static_cast<std::uint32_t>(state.rounds)};
  bool gave_up = state.gave_up;
  std::byte* const own = part.window(task.member);
  const std::uint64_t shift = task.layout.slot_shift(part.round());
  const bool has_second_half = shape.source_count != 0 || shape.gets.tile_count != 0;
  const bool is_first_warp = threadIdx.x < warp_lanes;
  const auto end_first_half = [&] {
    if (has_second_half) {
      part.tell(0, part.readers_told());
    } else {
      part.end(0);
    }
  };

  const bool puts = shape.puts.tile_count != 0;
  const bool gives = task.given_count != 0 && blockIdx.x == 0;
  if (puts || gives) {
    for (std::uint32_t other = threadIdx.x; other < task.layout.members; other += blockDim.x) {
      if (other == task.member) continue;  // its earlier kernels are over
      gave_up |= !wait_for_flag(own + task.layout.finished_offset(other),
                                part.round() - TeamWindowLayout::slot_count, task.abort, gave_up);
    }
    if (block_gives_up(gave_up, task.counters)) return;
    if (puts) {
      for_each_tile<FanOutEntry>(part.table + shape.puts_offset, shape.puts,
                                 [&](const auto& view, const auto& entry, auto tile, auto lane) {
                                   copy_tile(entry, view.pointers, tile, lane, {.target = shift});
                                 });
    } else {
      part.give(shift);
    }
    __syncthreads();
    if (is_first_warp && (gives || is_last_block(&task.counters->arrived, middle_step))) end_first_half();
  } else if (is_first_warp && blockIdx.x == 0 && !gave_up) {
    // Nothing to put: whatever the readers wait for, the stream has done before.
    end_first_half();
  }
  if (!has_second_half) return;

  // The last threads wait, as the first may still be telling.
  const auto* const sources =
      reinterpret_cast<const std::uint32_t*>(part.table + shape.readers_offset) + shape.reader_count;
  for (std::uint32_t i = blockDim.x - 1 - threadIdx.x; i < shape.source_count; i += blockDim.x) {
    gave_up |= !wait_for_flag(own + task.layout.ready_offset(sources[i]), part.round(), task.abort, gave_up);
  }
  if (block_gives_up(gave_up, task.counters)) return;
  const TeamSources where{part, shift};
  for_each_tile<typename Gets::Entry>(part.table + shape.gets_offset, shape.gets,
                                      [&](const auto& view, const auto& entry, auto tile, auto lane) {
                                        Gets::run(view, entry, tile, lane, task, where);
                                      });
  __syncthreads();
  if (is_first_warp && is_last_block(&task.counters->arrived, end_step)) part.end(part.readers_told());
}

/// Launches a kernel of a team, which takes a table as `visit_table` finds it, and `TeamArguments`.
inline cudaError_t launch_team_kernel(const void* kernel, LaunchSite where, const TeamRound& task,
                                      const void* table, const TeamShape& shape,
                                      std::size_t shared_bytes_per_warp = 0) {
  const TeamGrid grid = grid_for(shape, where.multiprocessors, task.teams_on_device);
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
