// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/device_words.cuh"
#include "backend/cuda/kernels/kernel_table.cuh"
#include "backend/cuda/kernels/team_table.hpp"

#include <cstddef>
#include <cstdint>
#include <cuda/atomic>

#include <cuda_runtime.h>

/// Contains the arguments of a team's kernel, and what a member's part in a round does: it waits for flags
/// and sets them, exposes memory and withdraws it. (`team_kernel.cuh` says what this orders.)
namespace tutti::backend::cuda {

/// The kernel's arguments besides the table. The first access to 64 bytes of them waits for memory, so those
/// that a kernel needs before it sends anything come first, among others that it reads while the kernel
/// before may still run.
struct TeamArguments {
  TeamCounters* counters;
  std::uint64_t call;  ///< as in `TeamRecord`, including the mark of its rounds
  std::uint32_t* abort;
  std::uint32_t round;
  std::uint32_t finished;
  std::uint32_t member;
  bool is_direct;
  bool writes_exposed;
  bool ends_call;
  bool notes_call;     ///< in the record that `counters` has
  bool notes_waits;    ///< in the record that `counters` has: the call is captured
  bool counts_done;    ///< in `counters`
  bool tells_at_once;  ///< in a low-latency round: this kernel publishes to all how far it has come
  bool lets_next_in;   ///< in a low-latency round, by `let_next_in`
  TeamWindowLayout layout;
  TeamShape shape;
  std::uint32_t* done;  ///< nullptr: none
  std::uint32_t done_value;
  std::uint32_t exposed_count;
  std::uint32_t most_exposed;
  std::uint32_t input_count;
  std::uint32_t output_count;
  ReduceArguments reducing;
};
static_assert(medium_parameter_table + sizeof(TeamArguments) <= 4096, "more parameters than always work");
static_assert(offsetof(TeamArguments, layout) == 48 && small_parameter_table % 64 == 0 &&
                  medium_parameter_table % 64 == 0,
              "what comes before the layout ends with its 64 bytes: parameters begin at 0x210");

inline TeamArguments team_arguments(const TeamRound& task, const TeamShape& shape) {
  const TeamRound& last = task.relay != nullptr ? *task.relay : task;
  return {.counters = task.counters,
          .call = TeamRecord::number_of(task.call, task.is_captured),
          .abort = word_of(task.abort->state),
          .round = task.round,
          .finished = last.finished,
          .member = task.member,
          .is_direct = task.is_direct,
          .writes_exposed = task.writes_exposed,
          .ends_call = last.ends_call,
          .notes_call = task.record != nullptr,
          .notes_waits = task.is_captured && task.record != nullptr,
          .counts_done = last.counts_done,
          .tells_at_once = last.finished != last.round,
          .lets_next_in = false,
          .layout = task.layout,
          .shape = shape,
          .done = last.done == nullptr ? nullptr : word_of(last.done->value),
          .done_value = last.done_value,
          .exposed_count = task.exposed_count,
          .most_exposed = task.layout.most_exposed(),
          .input_count = task.reductions.input_count,
          .output_count = task.reductions.output_count,
          .reducing = reduce_arguments(task.reductions)};
}

inline constexpr std::uint32_t team_threads = team_warps_per_block * warp_lanes;

__device__ inline std::uint64_t nanoseconds() {
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now));
  return now;
}

__device__ inline TeamWait wait_of(const TeamArguments& task) {
  std::uint32_t* const waits = reinterpret_cast<std::uint32_t*>(&task.counters->record.waits);
  return {task.abort, task.notes_waits ? waits : nullptr};
}

/// Returns true once the flag has reached `value`; false if the abort word is set before, or `gave_up` from
/// the start. The abort word is checked only after the flag, so that both can be loaded at once.
__device__ inline bool wait_for_flag(std::byte* flag, std::uint32_t value, const TeamWait& team,
                                     bool gave_up) {
  const SystemWord word(*reinterpret_cast<std::uint32_t*>(flag));
  LongWait wait(team);
  for (std::uint32_t polls = 1; !has_reached(word.load(::cuda::memory_order_acquire), value); ++polls) {
    if (gave_up || (is_turn_to_look(polls) && wait.is_aborted())) return false;
  }
  return true;
}

/// Waits like `wait_for_flag`, for a flag that has the number of a round and the mark of its call.
__device__ inline bool wait_for_round(std::byte* flag, std::uint64_t round, const TeamWait& team,
                                      bool gave_up) {
  const RoundWord word(*reinterpret_cast<std::uint64_t*>(flag + offsetof(SharedFlag, round)));
  LongWait wait(team);
  for (std::uint32_t polls = 1; !RoundNumber::has_come(word.load(::cuda::memory_order_acquire), round);
       ++polls) {
    if (gave_up || (is_turn_to_look(polls) && wait.is_aborted())) return false;
  }
  return true;
}

/// The contents of `TeamCounters` at the beginning of a kernel, read at once.
struct TeamState {
  std::uint64_t rounds;
  bool gave_up;  ///< the same for all threads, except in a kernel some of whose blocks have given up
};
__device__ inline TeamState load_state(const TeamCounters* counters) {
  static_assert(offsetof(TeamCounters, gave_up) == offsetof(TeamCounters, rounds) + sizeof(std::uint64_t));
  const ulonglong2 words = __ldcg(reinterpret_cast<const ulonglong2*>(&counters->rounds));
  return {words.x, static_cast<std::uint32_t>(words.y) != 0};
}
/// Makes all later kernels of the team do nothing.
__device__ inline void give_up(TeamCounters* counters) {
  DeviceWord(counters->gave_up).store(1, ::cuda::memory_order_relaxed);
}

/// The first addresses that a member exposes; the second is valid if there is one.
struct FirstExposed {
  const std::byte* first;
  const std::byte* second;
};

/// The part in this kernel's run.
struct TeamPart {
  const TeamArguments& task;
  const std::byte* table;
  std::uint64_t rounds;              ///< of the calls before
  bool writes_where_marked = false;  ///< in a round that swaps: this member writes to memory that is in place

  [[nodiscard]] __device__ std::byte* window(std::uint32_t member) const {
    return reinterpret_cast<std::byte* const*>(table)[member];
  }
  /// Returns the rounds of the calls before, modulo 2^32.
  [[nodiscard]] __device__ std::uint32_t base() const { return static_cast<std::uint32_t>(rounds); }
  [[nodiscard]] __device__ std::uint32_t round() const { return base() + task.round; }
  /// Returns the number of this round in lines and flags.
  [[nodiscard]] __device__ std::uint64_t number() const { return number_of(task.round); }
  [[nodiscard]] __device__ std::uint64_t number_of(std::uint32_t round_of_call) const {
    return rounds + (TeamRecord::mark_in(task.call) + round_of_call);
  }

  /// Exposes the addresses to the readers. Called by one warp, behind a fence that orders what the kernels
  /// before have written.
  __device__ void expose(std::uint64_t shift) const {
    constexpr std::uint32_t lines = TeamWindowLayout::exposed_lines;
    const auto* const readers = reinterpret_cast<const std::uint32_t*>(table + task.shape.readers_offset);
    const auto* const exposed = reinterpret_cast<const std::uint64_t*>(table + task.shape.exposed_offset());
    const std::uint32_t count = task.exposed_count;
    if (count > lines) {
      const std::uint64_t at = task.layout.slots_offset() + shift + task.layout.exposed_offset(task.member);
      for (std::uint32_t i = threadIdx.x; i < task.shape.reader_count * count; i += warp_lanes)
        reinterpret_cast<std::uint64_t*>(window(readers[i / count]) + at)[i % count] = exposed[i];
      __syncwarp();
      ::cuda::atomic_thread_fence(::cuda::memory_order_release, ::cuda::thread_scope_system);
    }
    for (std::uint32_t i = threadIdx.x; i < task.shape.reader_count * lines; i += warp_lanes) {
      const std::uint32_t index = i % lines;
      if (index >= count) continue;
      const std::uint64_t mark = index == 0 && count > 1 ? TeamWindowLayout::more_are_exposed : 0;
      store_line(exposed_line(readers[i / lines], task.member, index),
                 {exposed[i / lines * count + index], number() | mark});
    }
  }
  /// Withdraws the exposed addresses of a member that has given up, if others may write to its memory. Called
  /// by one warp.
  __device__ void withdraw() const {
    constexpr std::uint64_t longest = 100'000'000;  // nanoseconds
    if (task.exposed_count == 0 || !task.writes_exposed) return;
    const auto* const readers = reinterpret_cast<const std::uint32_t*>(table + task.shape.readers_offset);
    const std::uint32_t lane = threadIdx.x % warp_lanes;
    const auto* const exposed = reinterpret_cast<const std::uint64_t*>(table + task.shape.exposed_offset());
    for (std::uint32_t i = lane; i < task.shape.reader_count; i += warp_lanes) {
      // A kernel that has begun to write may read the addresses again, but not their round.
      for (std::uint32_t index = 0; index < TeamWindowLayout::exposed_lines && index < task.exposed_count;
           ++index)
        store_line(exposed_line(readers[i], task.member, index),
                   {exposed[i * task.exposed_count + index], 0});
    }
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
  /// Returns the line in a member's window for an address that `from` exposes.
  [[nodiscard]] __device__ std::byte* exposed_line(std::uint32_t member, std::uint32_t from,
                                                   std::uint32_t index) const {
    return window(member) + task.layout.exposed_line_offset(from, round(), index);
  }
  /// Waits for the first addresses that a source exposes, and returns them; the first is nullptr if the abort
  /// word is set before, or `gave_up`. Both lines are loaded at once.
  [[nodiscard]] __device__ FirstExposed wait_for_exposed(std::uint32_t source, bool gave_up) const {
    static_assert(TeamWindowLayout::exposed_lines == 2);
    constexpr std::uint64_t more = TeamWindowLayout::more_are_exposed;
    const std::byte* const first_place = exposed_line(task.member, source, 0);
    const std::byte* const second_place = exposed_line(task.member, source, 1);
    const TeamWait team = wait_of(task);
    LongWait wait(team);
    for (std::uint32_t polls = 1;; ++polls) {
      const TeamLine second = load_line(second_place);
      const TeamLine first = load_line_acquire(first_place);
      if ((first.round & ~more) == number() && ((first.round & more) == 0 || second.round == number())) {
        return {reinterpret_cast<const std::byte*>(first.data),
                reinterpret_cast<const std::byte*>(second.data)};
      }
      if (gave_up || (is_turn_to_look(polls) && wait.is_aborted())) return {};
    }
  }
  /// Waits until all readers have finished. The result is the same for all threads of the warp that calls it.
  [[nodiscard]] __device__ bool wait_for_readers() const {
    const auto* const readers = reinterpret_cast<const std::uint32_t*>(table + task.shape.readers_offset);
    bool gave_up = false;
    for (std::uint32_t i = threadIdx.x; i < task.shape.reader_count; i += warp_lanes) {
      std::byte* const flag = window(task.member) + task.layout.taken_offset(readers[i], round());
      gave_up |= !wait_for_round(flag, number(), wait_of(task), gave_up);
    }
    return __all_sync(~0U, !gave_up);
  }

  // Publishing has this order: the readers, all members, its own rank.
  [[nodiscard]] __device__ std::uint32_t readers_told() const { return task.shape.reader_count; }
  [[nodiscard]] __device__ std::uint32_t everyone_told() const {
    return task.shape.reader_count + task.layout.members;
  }
  [[nodiscard]] __device__ std::uint32_t all_told() const {
    return everyone_told() + (task.done != nullptr ? 1 : 0);
  }
  /// Returns true if others read what this part has written.
  [[nodiscard]] __device__ bool writes_for_others() const {
    return !task.is_direct || task.writes_exposed || writes_where_marked;
  }
  /// Returns true if what the blocks have done must be visible before what the last of them publishes.
  [[nodiscard]] __device__ bool is_end_ordered() const { return writes_for_others() || task.done != nullptr; }
  /// Ends the part, by one warp: publishes from `begin` on, once the members to whom memory was exposed have
  /// read.
  __device__ void end(std::uint32_t begin, bool tells_everyone = true) const {
    if (writes_for_others()) fence();
    if (tells_everyone) tell(begin, everyone_told());
    if (task.exposed_count != 0 && !wait_for_readers()) {
      withdraw();
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
  /// Sets the flags from `begin` to `end`, by one warp, behind a fence if there is something to order.
  __device__ void tell(std::uint32_t begin, std::uint32_t end) const {
    const auto* const readers = reinterpret_cast<const std::uint32_t*>(table + task.shape.readers_offset);
    for (std::uint32_t i = begin + threadIdx.x; i < end; i += warp_lanes) {
      if (i < task.shape.reader_count) {
        set_round(window(readers[i]) + task.layout.ready_offset(task.member, round()));
      } else if (const std::uint32_t other = i - task.shape.reader_count; other < task.layout.members) {
        if (task.is_direct) set_round(window(other) + task.layout.taken_offset(task.member, round()));
        set(window(other) + task.layout.finished_offset(task.member), base() + task.finished);
      } else {
        set(reinterpret_cast<std::byte*>(task.done), task.done_value);
      }
    }
  }
  /// Publishes what all kernels before have done, by one warp. No fence is needed: they are over.
  __device__ void tell_before() const {
    const std::uint32_t value = round() - 1;
    for (std::uint32_t other = threadIdx.x; other < task.layout.members; other += warp_lanes)
      set(window(other) + task.layout.finished_offset(task.member), value);
  }
  /// Returns true if this kernel publishes to all members how far it has come; otherwise the next one does.
  [[nodiscard]] __device__ bool tells_at_once() const {
    return task.tells_at_once || TeamWindowLayout::is_milestone(round() - 1, base() + task.finished);
  }
  static __device__ void set(std::byte* flag, std::uint32_t value) {
    SystemWord(*reinterpret_cast<std::uint32_t*>(flag)).store(value, ::cuda::memory_order_relaxed);
  }
  /// Sets the flag to the number of this round.
  __device__ void set_round(std::byte* flag) const {
    RoundWord(*reinterpret_cast<std::uint64_t*>(flag + offsetof(SharedFlag, round)))
        .store(number(), ::cuda::memory_order_relaxed);
  }
  /// Notes which call the member is in. Called by one thread, which waits for nothing.
  __device__ void note_call() const {
    if (!task.notes_call) return;
    TeamRecord::Call& place = task.counters->record.calls[(base() + 1) % TeamRecord::history];
    static_assert(offsetof(TeamRecord::Call, number) == sizeof(std::uint64_t));
    *reinterpret_cast<ulonglong2*>(&place) = {rounds + 1, task.call};
    if (task.notes_waits)
      DeviceWord(*reinterpret_cast<std::uint32_t*>(&task.counters->record.latest_round))
          .store(round(), ::cuda::memory_order_relaxed);
  }
  /// Returns true in the block that comes last, which may then write the counters. Called by the first thread
  /// of each block, when all of the block have read them. Threads have read what they have used, so nothing
  /// else is ordered by this.
  [[nodiscard]] __device__ bool has_begun_last() const {
    if (gridDim.x == 1) return true;
    return DeviceWord(task.counters->arrived).fetch_add(1, ::cuda::memory_order_relaxed) == gridDim.x - 1;
  }
  [[nodiscard]] __device__ std::uint32_t* done_word() const {
    static_assert(offsetof(TeamCounters, parts_done) % sizeof(std::uint64_t) == 0 &&
                  offsetof(TeamCounters, done) == offsetof(TeamCounters, parts_done) + sizeof(std::uint32_t));
    return reinterpret_cast<std::uint32_t*>(&task.counters->parts_done) + 1;
  }
  /// Adds to `done`, by the first thread of each block at its end, where blocks do not end in common: the
  /// sums make one step from `before` to the wanted value once the last has added. Nobody waits for the
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
  /// Resets the counters for the next kernel, when all blocks have read them.
  __device__ void close() const {
    if (threadIdx.x != 0) return;
    task.counters->arrived = 0;
    if (task.ends_call) task.counters->rounds = rounds + task.finished;
  }
};

}  // namespace tutti::backend::cuda
