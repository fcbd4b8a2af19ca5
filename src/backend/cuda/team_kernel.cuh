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
///
/// In a direct round nothing is put, and a fence would only wait for stores that are nobody else's business.
/// The memory that is given was written by kernels that are over. Its address comes in a line, with the
/// number of the round, which readers load with acquire: no fence is needed. (Further addresses lie in the
/// slot, behind a fence.) That memory has been read before others are told needs no fence: a thread has
/// stored what it has made of what it has read, so the reads are over, before it comes to a barrier. Who
/// writes to what others gave has fences at its end, as where something is put; and so has who sets a flag
/// for the host. What is counted in memory of the device (`TeamCounters::done`) orders nothing.
///
/// A member that gives up while others may still come to write to its memory takes back what it gave them. A
/// kernel that has begun to write has everything it needs, and is soon over: that is waited for, if not for
/// ever.
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
  std::uint32_t most_given;
  std::uint32_t input_count;
  std::uint32_t output_count;
  ReduceArguments reducing;
  bool is_direct;
  bool ends_call;
  bool counts_done;    ///< in `counters`
  bool tells_at_once;  ///< of a low-latency round: to everyone how far it has come, in this kernel
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
          .most_given = task.layout.most_given(),
          .input_count = task.reductions.input_count,
          .output_count = task.reductions.output_count,
          .reducing = reduce_arguments(task.reductions),
          .is_direct = task.is_direct,
          .ends_call = last.ends_call,
          .counts_done = last.counts_done,
          .tells_at_once = last.finished != last.round};
}

inline constexpr std::uint32_t team_threads = team_warps_per_block * warp_lanes;

// The parts of `TeamCounters::arrived`.
inline constexpr std::uint32_t middle_step = 1;
inline constexpr std::uint32_t end_step = 1U << 16U;
static_assert(most_team_blocks < end_step / 2);

__device__ inline std::uint64_t nanoseconds() {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

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
/// which then sees what all have done, if that `is_ordered`.
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

  /// By one warp, in the round `number` of all that the team has made.
  __device__ void give(std::uint64_t shift, std::uint64_t number) const {
    const auto* const readers = reinterpret_cast<const std::uint32_t*>(table + task.shape.readers_offset);
    const auto* const given = reinterpret_cast<const std::uint64_t*>(table + task.shape.given_offset());
    const std::uint32_t count = task.given_count;
    if (count > 1) {
      const std::uint64_t at = task.layout.slots_offset() + shift + task.layout.given_offset(task.member);
      for (std::uint32_t i = threadIdx.x; i < task.shape.reader_count * count; i += warp_lanes)
        reinterpret_cast<std::uint64_t*>(window(readers[i / count]) + at)[i % count] = given[i];
      __syncwarp();
      ::cuda::atomic_thread_fence(::cuda::memory_order_release, ::cuda::thread_scope_system);
    }
    for (std::uint32_t i = threadIdx.x; i < task.shape.reader_count; i += warp_lanes) {
      store_line(window(readers[i]) + task.layout.given_line_offset(task.member, round()),
                 {given[i * count], number});
    }
  }
  /// By one warp of a member that has given up, if others may write to its memory.
  __device__ void take_back() const {
    constexpr std::uint64_t longest = 100'000'000;  // nanoseconds
    if (task.given_count == 0 || task.output_count == 1) return;
    const auto* const readers = reinterpret_cast<const std::uint32_t*>(table + task.shape.readers_offset);
    const std::uint32_t lane = threadIdx.x % warp_lanes;
    for (std::uint32_t i = lane; i < task.shape.reader_count; i += warp_lanes)
      store_line(window(readers[i]) + task.layout.given_line_offset(task.member, round()), {0, 0});
    fence();
    const std::uint64_t begin = nanoseconds();
    for (std::uint32_t i = lane; i < task.shape.reader_count; i += warp_lanes) {
      const SystemWord flag(
          *reinterpret_cast<std::uint32_t*>(window(task.member) + task.layout.finished_offset(readers[i])));
      while (!has_reached(flag.load(::cuda::memory_order_acquire), round()) &&
             nanoseconds() - begin < longest) {
      }
    }
    __syncwarp();
  }
  /// The first address that a source gives in the round `number`, once it has come; nullptr if the abort word
  /// is set before, or `gave_up`.
  [[nodiscard]] __device__ const std::byte* wait_for_given(std::uint32_t source, std::uint64_t number,
                                                           bool gave_up) const {
    const std::byte* const place = window(task.member) + task.layout.given_line_offset(source, round());
    TeamLine line = load_line_first(place);
    for (std::uint32_t polls = 1; line.round != number; ++polls) {
      if (gave_up || (is_turn_to_look(polls) && is_aborted(task.abort))) return nullptr;
      line = load_line_first(place);
    }
    return reinterpret_cast<const std::byte*>(line.data);
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
  /// Whether others look at what this part has written.
  [[nodiscard]] __device__ bool writes_for_others() const { return !task.is_direct || task.output_count > 1; }
  /// Whether what the blocks have done comes before what the last of them tells.
  [[nodiscard]] __device__ bool is_end_ordered() const { return writes_for_others() || task.done != nullptr; }
  /// By one warp, from what is told first on: the part is over when those have read to whom memory was given.
  __device__ void end(std::uint32_t begin, bool tells_everyone = true) const {
    if (writes_for_others()) fence();
    if (tells_everyone) tell(begin, everyone_told());
    if (task.given_count != 0 && !wait_for_readers()) {
      take_back();
      if (threadIdx.x == 0) give_up(task.counters);
      return;
    }
    if (task.done != nullptr) {
      if (task.is_direct) fence();
      tell(everyone_told(), all_told());
    }
    if (task.counts_done && threadIdx.x == 0)
      DeviceWord(*done_word()).store(task.done_value, ::cuda::memory_order_relaxed);
    close();
  }
  static __device__ void fence() {
    ::cuda::atomic_thread_fence(::cuda::memory_order_release, ::cuda::thread_scope_system);
  }
  /// By one warp, behind a fence if there is something to order.
  __device__ void tell(std::uint32_t begin, std::uint32_t end) const {
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
  [[nodiscard]] __device__ std::uint32_t* done_word() const {
    static_assert(offsetof(TeamCounters, parts_done) % sizeof(std::uint64_t) == 0 &&
                  offsetof(TeamCounters, done) == offsetof(TeamCounters, parts_done) + sizeof(std::uint32_t));
    return reinterpret_cast<std::uint32_t*>(&task.counters->parts_done) + 1;
  }
  /// By the first thread of each block at its end, where blocks do not end in common: what they add makes one
  /// step of `done` from `before` to the value that is asked for, once the last has added. None waits for the
  /// result.
  __device__ void count_done(std::uint32_t before) const {
    std::uint64_t share = 1;
    if (blockIdx.x == 0) {
      share = static_cast<std::uint64_t>(task.done_value - before) << 32U;
      share -= gridDim.x - 1;
    }
    using DoneWord = ::cuda::atomic_ref<std::uint64_t, ::cuda::thread_scope_device>;
    static_cast<void>(DoneWord(*reinterpret_cast<std::uint64_t*>(&task.counters->parts_done))
                          .fetch_add(share, ::cuda::memory_order_relaxed));
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

/// Whether everyone has finished the round whose slots or inboxes a round uses again.
class TeamRoom {
 public:
  /// Looks at the flags of the first members. Each lane has one of them.
  __device__ explicit TeamRoom(const TeamArguments& task, std::byte* own_window, bool is_needed)
      : task_(task), own_window_(own_window) {
    const std::uint32_t lane = threadIdx.x % warp_lanes;
    if (is_needed && is_other(lane)) seen_ = flag_of(lane).load(::cuda::memory_order_acquire);
  }

  /// By one warp: waits for it. The result, false if the abort word is set before, or `gave_up`, is the same
  /// for all its threads.
  __device__ bool wait(std::uint32_t round, bool gave_up) const {
    const std::uint32_t wanted = round - TeamWindowLayout::slot_count;
    for (std::uint32_t other = threadIdx.x % warp_lanes; other < task_.layout.members; other += warp_lanes) {
      if (!is_other(other) || (other < warp_lanes && has_reached(seen_, wanted))) continue;
      gave_up |=
          !wait_for_flag(own_window_ + task_.layout.finished_offset(other), wanted, task_.abort, gave_up);
    }
    const bool is_room = __all_sync(~0U, !gave_up);
    __syncwarp();  // what one lane has seen orders what all of them write
    return is_room;
  }

 private:
  /// The member's own earlier kernels are over.
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

/// So many members' first addresses are kept at hand.
inline constexpr std::uint32_t most_at_hand = warp_lanes;

/// Where places are in this kernel's run.
struct TeamSources {
  const TeamPart& part;
  std::uint64_t shift;              ///< of the round's slots
  const std::byte* const* at_hand;  ///< by member: the first address it gives, if it is a source of the round

  [[nodiscard]] __device__ const std::byte* operator()(const std::byte* place) const {
    const auto bits = reinterpret_cast<std::uintptr_t>(place);
    if (SourcePlace::is_in_slot(bits)) return place + shift;
    if (SourcePlace::is_own(bits)) return reinterpret_cast<const std::byte*>(SourcePlace::address(bits));
    const auto number = static_cast<std::uint32_t>(SourcePlace::number(bits));
    return given(number) + SourcePlace::offset(bits);
  }

 private:
  [[nodiscard]] __device__ const std::byte* given(std::uint32_t number) const {
    const std::uint32_t member = number / part.task.most_given;
    const bool is_first = number % part.task.most_given == 0;
    if (is_first && member < most_at_hand) return at_hand[member];
    // It lies in the own window. Its address is found anew each time: registers are scarce.
    const std::byte* const own = part.window(part.task.member);
    if (is_first) {
      const TeamLine line = load_line(own + part.task.layout.given_line_offset(member, part.round()));
      return reinterpret_cast<const std::byte*>(line.data);
    }
    return reinterpret_cast<const std::byte* const*>(own + part.task.layout.slots_offset() + shift)[number];
  }
};

/// `Gets::run(view, entry, tile, lane, task, sources)` does the second half's work for one tile.
template <class Gets, class Table>
__global__ void __launch_bounds__(team_threads, team_blocks_per_multiprocessor)
    team_kernel(const __grid_constant__ Table table, const __grid_constant__ TeamArguments task) {
  wait_for_kernel_before();
  const TeamShape& shape = task.shape;
  const bool puts = shape.puts.tile_count != 0;
  const bool gives = task.given_count != 0 && blockIdx.x == 0;
  const bool has_second_half = shape.source_count != 0 || shape.gets.tile_count != 0;
  const bool is_first_warp = threadIdx.x < warp_lanes;
  const TeamState state = load_state(task.counters);
  const TeamPart part{task, table.data(), static_cast<std::uint32_t>(state.rounds)};
  std::byte* const own = part.window(task.member);
  const TeamRoom room(task, own, is_first_warp && (puts || gives));
  bool gave_up = state.gave_up;
  const std::uint64_t shift = task.layout.slot_shift(part.round());
  const auto end_first_half = [&] {
    if (!has_second_half) {
      part.end(gives ? part.readers_told() : 0);
    } else if (!gives && shape.reader_count != 0) {
      part.fence();
      part.tell(0, part.readers_told());
    }
  };

  if (puts) {
    if (is_first_warp) gave_up = !room.wait(part.round(), gave_up);
    if (block_gives_up(gave_up, task.counters)) return;
    for_each_tile<FanOutEntry>(part.table + shape.puts_offset, shape.puts,
                               [&](const auto& view, const auto& entry, auto tile, auto lane) {
                                 copy_tile(entry, view.pointers, tile, lane, {.target = shift});
                               });
    __syncthreads();
    if (is_first_warp && is_last_block(&task.counters->arrived, middle_step)) end_first_half();
  } else if (is_first_warp && blockIdx.x == 0) {
    // Nothing to put: whatever the readers wait for, the stream has done before.
    if (gives) {
      gave_up = !room.wait(part.round(), gave_up);
      if (gave_up && threadIdx.x == 0) give_up(task.counters);
      if (!gave_up) part.give(shift, state.rounds + task.round);
    }
    if (!gave_up) end_first_half();
  }
  if (!has_second_half) return;

  // The last threads wait, as the first may still be telling.
  __shared__ const std::byte* at_hand[most_at_hand];
  const auto* const sources =
      reinterpret_cast<const std::uint32_t*>(part.table + shape.readers_offset) + shape.reader_count;
  for (std::uint32_t i = blockDim.x - 1 - threadIdx.x; i < shape.source_count; i += blockDim.x) {
    const std::uint32_t source = sources[i];
    if (task.is_direct) {
      const std::byte* const given = part.wait_for_given(source, state.rounds + task.round, gave_up);
      gave_up |= given == nullptr;
      if (source < most_at_hand) at_hand[source] = given;
    } else {
      gave_up |= !wait_for_flag(own + task.layout.ready_offset(source), part.round(), task.abort, gave_up);
    }
  }
  if (block_gives_up(gave_up, task.counters)) {
    if (is_first_warp) part.take_back();
    return;
  }
  const TeamSources where{part, shift, at_hand};
  for_each_tile<typename Gets::Entry>(part.table + shape.gets_offset, shape.gets,
                                      [&](const auto& view, const auto& entry, auto tile, auto lane) {
                                        Gets::run(view, entry, tile, lane, task, where);
                                      });
  __syncthreads();
  if (is_first_warp && is_last_block(&task.counters->arrived, end_step, part.is_end_ordered()))
    part.end(part.readers_told());
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
