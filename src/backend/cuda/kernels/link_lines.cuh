// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/kernels/device_words.cuh"
#include "backend/cuda/kernels/kernel_table.cuh"
#include "backend/cuda/kernels/link_view.cuh"
#include "backend/cuda/kernels/team_kernel.cuh"

#include <cstddef>
#include <cstdint>
#include <cuda/atomic>

#include <cuda_runtime.h>

/// Sends and receives messages in lines. A warp processes all parts of its lanes at once and waits for none
/// of them alone.
///
/// A message that does not go in lines has a piece without bytes in the first lane: this keeps the order of
/// all messages, and a message that meets a different one never completes.
///
/// Lines need no order: a thread that reads a piece's mark in a line has read the bytes that came with it.
/// The receiver publishes that it has taken a piece when all its threads have read their lines.
namespace tutti::backend::cuda {

/// The state of one part in one lane, common to a warp's threads.
struct LineState {
  std::uint32_t message;  ///< of the part, the next with a piece in the lane; all of them: none is left
  std::uint32_t piece;    ///< of that message, the lane's next
  std::uint32_t count;    ///< pieces of the lane before, of all tasks
  std::uint32_t taken;    ///< of what is sent: how many of them had been taken when it was last looked at
};

/// Loads up to 8 bytes, of which the last ones may be missing.
__device__ inline std::uint64_t load_word(const std::byte* source, std::uint64_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(source);
  if (bytes >= sizeof(std::uint64_t)) {
    if (address % sizeof(std::uint64_t) == 0) return *reinterpret_cast<const std::uint64_t*>(source);
    if (address % sizeof(std::uint32_t) == 0) {
      const auto* const halves = reinterpret_cast<const std::uint32_t*>(source);
      return halves[0] | std::uint64_t{halves[1]} << 32U;
    }
  }
  std::uint64_t word = 0;
#pragma unroll
  for (std::uint32_t i = 0; i < sizeof word; ++i) {
    if (i < bytes) word |= std::to_integer<std::uint64_t>(source[i]) << i * 8;
  }
  return word;
}
__device__ inline void store_word(std::uint64_t word, std::byte* target, std::uint64_t bytes) {
  const auto address = reinterpret_cast<std::uintptr_t>(target);
  if (bytes >= sizeof word) {
    if (address % sizeof word == 0) {
      *reinterpret_cast<std::uint64_t*>(target) = word;
      return;
    }
    if (address % sizeof(std::uint32_t) == 0) {
      auto* const halves = reinterpret_cast<std::uint32_t*>(target);
      halves[0] = static_cast<std::uint32_t>(word);
      halves[1] = static_cast<std::uint32_t>(word >> 32U);
      return;
    }
  }
#pragma unroll
  for (std::uint32_t i = 0; i < sizeof word; ++i) {
    if (i < bytes) target[i] = static_cast<std::byte>(word >> i * 8);
  }
}

/// A message's piece in the lane, and a thread's words of it: every 32nd.
class LinePiece {
 public:
  static constexpr std::uint32_t most_words =
      TeamWindowLayout::largest_line_piece / TeamWindowLayout::smallest_line_piece;
  static_assert(TeamWindowLayout::smallest_line_piece == warp_lanes * sizeof(TeamLine::data));

  __device__ LinePiece(const TeamWindowLayout& layout, const LinkMessage& message, std::uint32_t piece) {
    const std::uint64_t in_lines = layout.line_bytes(message.bytes);
    const std::uint64_t piece_bytes = layout.line_piece_bytes(in_lines);
    const std::uint64_t begin = piece * piece_bytes;
    const std::uint64_t left = in_lines - begin;
    bytes_ = left < piece_bytes ? left : piece_bytes;
    address_ = message.address + begin;
  }

  __device__ void load() {
    for_each_word([&](std::uint32_t u, std::uint32_t word) {
      words_[u] = load_word(address_ + word * sizeof(std::uint64_t), left_from(word));
    });
  }
  __device__ void store() const {
    for_each_word([&](std::uint32_t u, std::uint32_t word) {
      store_word(words_[u], address_ + word * sizeof(std::uint64_t), left_from(word));
    });
  }
  __device__ void put(std::byte* lines, std::uint64_t mark) const {
    for_each_word([&](std::uint32_t u, std::uint32_t word) {
      store_line(lines + word * sizeof(TeamLine), {words_[u], mark});
    });
  }
  /// Loads the piece by all threads of the warp. Returns true if all lines are there.
  [[nodiscard]] __device__ bool get(const std::byte* lines, std::uint64_t mark) {
    bool is_there = true;
    for_each_word([&](std::uint32_t u, std::uint32_t word) {
      const TeamLine line = load_line(lines + word * sizeof(TeamLine));
      words_[u] = line.data;
      is_there &= line.round == mark;
    });
    return __all_sync(~0U, is_there ? 1 : 0) != 0;
  }

 private:
  /// Calls the function for each word; a piece without bytes has a line, too.
  template <class Function>
  __device__ void for_each_word(Function&& function) const {
#pragma unroll
    for (std::uint32_t u = 0; u < most_words; ++u) {
      const std::uint32_t word = u * warp_lanes + threadIdx.x % warp_lanes;
      if (word * sizeof(std::uint64_t) < bytes_ || word == 0) function(u, word);
    }
  }
  [[nodiscard]] __device__ std::uint64_t left_from(std::uint32_t word) const {
    return bytes_ - word * sizeof(std::uint64_t);
  }

  std::byte* address_;
  std::uint64_t bytes_;
  std::uint64_t words_[most_words] = {};
};

/// Processes one lane of lines, by a warp.
struct LineLane : LinkView {
  [[nodiscard]] __device__ LineState start(const LinkPart& link) const {
    LineState state{.message = 0,
                    .piece = first_piece(),
                    .count = count(link),
                    .taken = link.is_sent != 0 ? taken_from(link) : 0};
    settle(link, state);
    return state;
  }
  /// Moves the next piece. Returns false if there is no room for it, or it has not come.
  [[nodiscard]] __device__ bool move(const LinkPart& link, LineState& state) const {
    if (!(link.is_sent != 0 ? send(link, state) : receive(link, state))) return false;
    ++state.count;
    state.piece += task.layout.line_lanes;
    settle(link, state);
    return true;
  }

 private:
  [[nodiscard]] __device__ std::uint32_t first_piece() const { return lane - task.layout.link_lanes; }
  /// Skips messages that have no more pieces in the lane.
  __device__ void settle(const LinkPart& link, LineState& state) const {
    while (state.message < link.message_count) {
      const std::uint64_t bytes = task.layout.line_bytes(message(link, state.message).bytes);
      if (state.piece < task.layout.line_pieces(bytes)) return;
      ++state.message;
      state.piece = first_piece();
    }
  }
  [[nodiscard]] __device__ std::uint32_t taken_from(const LinkPart& link) const {
    const SystemWord flag(*reinterpret_cast<std::uint32_t*>(taken_flag(task.member, link.peer)));
    return flag.load(::cuda::memory_order_acquire);
  }
  /// Returns the lines of the next piece from member `from` to member `to`.
  [[nodiscard]] __device__ std::byte* lines(std::uint32_t to, std::uint32_t from, std::uint32_t count) const {
    return window(to) + task.layout.link_lines_offset(from, lane, count);
  }
  /// Sends the next piece. Returns false if there is no room yet.
  [[nodiscard]] __device__ bool send(const LinkPart& link, LineState& state) const {
    const std::uint32_t needed = state.count + 1 - TeamWindowLayout::link_slots;
    if (!has_reached(state.taken, needed)) {
      state.taken = taken_from(link);
      if (!__all_sync(~0U, has_reached(state.taken, needed) ? 1 : 0)) return false;
    }
    const LinkMessage& whole = message(link, state.message);
    LinePiece piece(task.layout, whole, state.piece);
    piece.load();
    piece.put(lines(link.peer, task.member, state.count), line_mark(whole, state.count + 1));
    return true;
  }
  /// Receives the next piece. Returns false if it has not come yet.
  [[nodiscard]] __device__ bool receive(const LinkPart& link, const LineState& state) const {
    const LinkMessage& whole = message(link, state.message);
    LinePiece piece(task.layout, whole, state.piece);
    if (!piece.get(lines(task.member, link.peer, state.count), line_mark(whole, state.count + 1)))
      return false;
    if (threadIdx.x % warp_lanes == 0) TeamPart::set(taken_flag(link.peer, task.member), state.count + 1);
    piece.store();
    return true;
  }
};

/// The lanes that a warp processes all at once: `count` of them, `step` apart.
struct LineLanes {
  const LinkArguments& task;
  const std::byte* table;
  std::uint32_t first;
  std::uint32_t step;
  std::uint32_t count;

  /// Processes all messages. Returns false once the team has been ended. `states` is the warp's own memory,
  /// one for each part in each lane.
  [[nodiscard]] __device__ bool run(LineState* states) const {
    const std::uint32_t thread = threadIdx.x % warp_lanes;
    const std::uint32_t parts = task.part_count;
    const bool gave_up = load_state(task.counters).gave_up;
    for (std::uint32_t i = thread; i < count * parts; i += warp_lanes)
      states[i] = lane(i / parts).start(lane(0).part(i % parts));
    if (__any_sync(~0U, gave_up ? 1 : 0) != 0) return false;
    __syncwarp();
    for (std::uint32_t polls = 1;;) {
      bool is_open = false;
      bool moves = false;
      for (std::uint32_t i = 0, l = 0; l < count; ++l) {
        const LineLane at = lane(l);
        for (std::uint32_t p = 0; p < parts; ++p, ++i) {
          LineState state = states[i];
          const LinkPart& link = at.part(p);
          if (state.message == link.message_count) continue;
          is_open = true;
          if (!at.move(link, state)) continue;
          moves = true;
          __syncwarp();
          if (thread == 0) states[i] = state;
          __syncwarp();
        }
      }
      if (!is_open) break;
      if (moves) continue;
      if (is_turn_to_look(polls) && __any_sync(~0U, is_aborted(task.abort) ? 1 : 0) != 0) return false;
      ++polls;
    }
    for (std::uint32_t i = thread; i < count * parts; i += warp_lanes)
      lane(i / parts).count(lane(0).part(i % parts)) = states[i].count;
    __syncwarp();  // before other lanes use the states
    return true;
  }

 private:
  [[nodiscard]] __device__ LineLane lane(std::uint32_t index) const {
    return {task, table, first + index * step};
  }
};

}  // namespace tutti::backend::cuda
