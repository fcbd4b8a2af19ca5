// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/team_round.hpp"
#include "os/shared_flag.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cuda/atomic>

#include <cuda_runtime.h>

/// Accesses to words in memory that kernels share.
namespace tutti::backend::cuda {

/// A word shared between devices and with the host.
using SystemWord = ::cuda::atomic_ref<std::uint32_t, ::cuda::thread_scope_system>;
/// A word that holds a `RoundNumber`.
using RoundWord = ::cuda::atomic_ref<std::uint64_t, ::cuda::thread_scope_system>;
/// A word shared between the blocks of one device.
using DeviceWord = ::cuda::atomic_ref<std::uint32_t, ::cuda::thread_scope_device>;

inline std::uint32_t* word_of(const std::atomic<std::uint32_t>& value) {
  return const_cast<std::uint32_t*>(reinterpret_cast<const std::uint32_t*>(&value));
}

/// Returns true if a thread that has polled `polls` times in vain should check whether its team has been
/// aborted. The abort word is in the host's memory, and thousands of warps of many devices may wait. If all
/// checked at once, a check would take longer than the wait it is part of; the checking warp would be late
/// itself, and those who wait for its bytes would check as well: a team would not recover from call to call.
/// So warps take turns: within 2^12 polls, a few milliseconds, all have checked.
__device__ inline bool is_turn_to_look(std::uint32_t polls) {
  constexpr std::uint32_t polls_per_turn = 64;
  constexpr std::uint32_t turns = 64;
  if (polls % polls_per_turn != 0) return false;
  // The turns differ between the warps of a block, and between blocks.
  const std::uint32_t turn = blockIdx.x + 5 * (threadIdx.x / warpSize);
  return (polls / polls_per_turn + turn) % turns == 0;
}
__device__ inline bool is_aborted(std::uint32_t* abort) {
  return SystemWord(*abort).load(::cuda::memory_order_relaxed) != AbortWord::running;
}

/// The words that a waiting thread checks, and the one in which it notes its wait.
struct TeamWait {
  std::uint32_t* abort;
  std::uint32_t* waits;  ///< of the member's `TeamRecord`; nullptr: it says nothing
};

/// A wait of a thread. A wait of some milliseconds is noted in the record until it is over; a short one costs
/// nothing.
class LongWait {
 public:
  __device__ explicit LongWait(const TeamWait& wait) : wait_(wait) {}
  LongWait(const LongWait&) = delete;
  LongWait& operator=(const LongWait&) = delete;
  __device__ ~LongWait() {
    if (looks_ > 1) add(-1);
  }
  /// Checks whether the team has been aborted, when it is time: returns true if it has. Otherwise the second
  /// check notes the wait, a whole cycle of turns after the first, if this one of the threads that wait
  /// together is to.
  __device__ bool is_aborted(bool notes = true) {
    if (cuda::is_aborted(wait_.abort)) return true;
    if (notes && wait_.waits != nullptr && looks_++ == 1) add(1);
    return false;
  }

 private:
  __device__ void add(std::int32_t more) const {
    static_cast<void>(
        DeviceWord(*wait_.waits).fetch_add(static_cast<std::uint32_t>(more), ::cuda::memory_order_relaxed));
  }

  const TeamWait& wait_;
  std::uint32_t looks_ = 0;
};

// A thread that reads the number of a round in a line has read the data that came with it.
#if CUDART_VERSION >= 12030
#define TUTTI_STORE_LINE(ORDER) \
  "{ .reg .b128 line; mov.b128 line, {%1, %2}; st." ORDER ".sys.global.b128 [%0], line; }"
#define TUTTI_LOAD_LINE(ORDER) \
  "{ .reg .b128 line; ld." ORDER ".sys.global.b128 line, [%2]; mov.b128 {%0, %1}, line; }"
#else
// Older toolkits cannot promise a single access, but compile to the same instructions.
#define TUTTI_STORE_LINE(ORDER) "st." ORDER ".sys.global.v2.b64 [%0], {%1, %2};"
#define TUTTI_LOAD_LINE(ORDER) "ld." ORDER ".sys.global.v2.b64 {%0, %1}, [%2];"
#endif

__device__ inline void store_line(std::byte* place, const TeamLine& line) {
  asm volatile(TUTTI_STORE_LINE("relaxed")::"l"(place), "l"(line.data), "l"(line.round) : "memory");
}
/// Stores a line with release: a thread that loads it by `load_line_acquire` sees what this thread has
/// written or observed before, including the work of earlier kernels of its stream.
__device__ inline void store_line_release(std::byte* place, const TeamLine& line) {
  asm volatile(TUTTI_STORE_LINE("release")::"l"(place), "l"(line.data), "l"(line.round) : "memory");
}
__device__ inline TeamLine load_line(const std::byte* place) {
  TeamLine line;
  asm volatile(TUTTI_LOAD_LINE("relaxed") : "=l"(line.data), "=l"(line.round) : "l"(place) : "memory");
  return line;
}
/// Loads a line with acquire: what the thread reads after this is as it was when the line was written, or
/// newer.
__device__ inline TeamLine load_line_acquire(const std::byte* place) {
  TeamLine line;
  asm volatile(TUTTI_LOAD_LINE("acquire") : "=l"(line.data), "=l"(line.round) : "l"(place) : "memory");
  return line;
}

#undef TUTTI_STORE_LINE
#undef TUTTI_LOAD_LINE

static_assert(offsetof(SharedFlag, value) == 0, "kernels reach a flag's value by the flag's address");

}  // namespace tutti::backend::cuda
