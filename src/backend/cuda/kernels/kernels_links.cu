// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/cuda/kernels/link_lines.cuh"
#include "backend/cuda/kernels/link_table.hpp"
#include "backend/cuda/kernels/link_view.cuh"
#include "backend/cuda/kernels/team_kernel.cuh"

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <cuda_runtime.h>

/// Sends and receives a member's messages as one kernel: some of its blocks process the lanes of lines
/// (`link_lines.cuh`), the others the lanes of slots below.
///
/// A block processes its lanes at once. All its threads move a piece together; in between, a thread for each
/// part of each lane checks whether the next piece of that part can move. So nothing waits for one part
/// alone, or for another lane. (If shared memory has no room for the states of all, some lanes come after
/// others, on all members in the same order.) A block that waits keeps its place on the device, so this goes
/// on only because all blocks of all members' grids run at once: they are no more than rounds have
/// (`team_kernel.cuh`; `team_part.cuh` says why bytes are visible to those who see the flags).
namespace tutti::backend::cuda {
namespace {

static_assert(medium_parameter_table + sizeof(LinkArguments) <= 4096, "more parameters than always work");

/// The state of one part in one lane; only the thread that has the part changes it.
struct LinkState {
  LinkCursor cursor;
  std::uint32_t can_move;
};

/// By all threads of the block, between two barriers.
__device__ void copy_link_piece(std::byte* target, const std::byte* source, std::uint64_t bytes) {
  constexpr std::uint32_t unroll = 8;
  const std::uintptr_t both =
      reinterpret_cast<std::uintptr_t>(target) | reinterpret_cast<std::uintptr_t>(source);
  std::uint64_t done = 0;
  if (both % sizeof(uint4) == 0) {
    auto* const to = reinterpret_cast<uint4*>(target);
    const auto* const from = reinterpret_cast<const uint4*>(source);
    const std::uint64_t count = bytes / sizeof(uint4);
    for (std::uint64_t i = threadIdx.x; i < count; i += unroll * blockDim.x) {
      uint4 values[unroll];
#pragma unroll
      for (std::uint32_t u = 0; u < unroll; ++u) {
        if (i + u * blockDim.x < count) values[u] = __ldcs(from + i + u * blockDim.x);
      }
#pragma unroll
      for (std::uint32_t u = 0; u < unroll; ++u) {
        if (i + u * blockDim.x < count) __stcs(to + i + u * blockDim.x, values[u]);
      }
    }
    done = count * sizeof(uint4);
  } else if (both % sizeof(std::uint32_t) == 0) {
    auto* const to = reinterpret_cast<std::uint32_t*>(target);
    const auto* const from = reinterpret_cast<const std::uint32_t*>(source);
    const std::uint64_t count = bytes / sizeof(std::uint32_t);
    for (std::uint64_t i = threadIdx.x; i < count; i += blockDim.x) to[i] = from[i];
    done = count * sizeof(std::uint32_t);
  }
  for (std::uint64_t i = done + threadIdx.x; i < bytes; i += blockDim.x) target[i] = source[i];
}

/// One lane whose pieces go through slots, or directly to the receiver's memory, processed by a block.
struct LinkLane : LinkView {
  using LinkView::message;
  [[nodiscard]] __device__ const LinkMessage& message(const LinkPart& part, const LinkCursor& cursor) const {
    return message(part, cursor.message);
  }
  /// Goes past messages that have no more pieces in the lane.
  __device__ void settle(const LinkPart& part, LinkCursor& cursor) const {
    while (cursor.message < part.message_count) {
      const std::uint64_t bytes = message(part, cursor).bytes;
      if (!task.layout.goes_in_lines(bytes) && cursor.piece < task.layout.link_pieces(bytes)) return;
      cursor.next_message(lane);
    }
  }
  /// Returns the flag in which the sender publishes how many pieces of the lane it has put.
  [[nodiscard]] __device__ std::byte* ready_flag(std::uint32_t sender, std::uint32_t receiver) const {
    return window(receiver) + task.layout.link_ready_offset(sender, lane);
  }
  [[nodiscard]] __device__ std::byte* invitation_to(std::uint32_t sender, std::uint32_t receiver) const {
    return window(sender) + task.layout.link_invitation_offset(receiver, lane);
  }
  /// Returns the word by which the sender says that it has taken the invitation to a lane's piece of this
  /// number, from 1.
  [[nodiscard]] __device__ SystemWord taken_mark(std::uint32_t sender, std::uint32_t receiver) const {
    return SystemWord(*reinterpret_cast<std::uint32_t*>(invitation_to(sender, receiver) + sizeof(TeamLine)));
  }
  /// Comes to know where the message goes, as the receiver says. By the thread that has the part; false: not
  /// yet.
  [[nodiscard]] __device__ bool locate(const LinkPart& part, LinkCursor& cursor) const {
    if (cursor.is_located != 0) return true;
    const LinkMessage& whole = message(part, cursor);
    if (whole.bytes > task.direct_from) {
      if (part.is_sent == 0) {
        store_line_release(invitation_to(part.peer, task.member),
                           {reinterpret_cast<std::uint64_t>(whole.invited_to), invitation_for(whole)});
        cursor.target = whole.invited_to;
      } else {
        // Before it has taken all pieces the receiver may wait for another message, which looks like this
        // one.
        const SystemWord taken(*reinterpret_cast<std::uint32_t*>(taken_flag(task.member, part.peer)));
        if (taken.load(::cuda::memory_order_acquire) != cursor.count) return false;
        std::byte* const place = invitation_to(task.member, part.peer);
        const TeamLine invitation = load_line_acquire(place);
        if (invitation.round != invitation_for(whole)) return false;
        store_line(place, {0, 0});  // the next one comes when this message's flag has been seen
        taken_mark(task.member, part.peer).store(cursor.count + 1, ::cuda::memory_order_relaxed);
        cursor.target = reinterpret_cast<std::byte*>(invitation.data);
      }
    }
    cursor.is_located = 1;
    return true;
  }
  [[nodiscard]] __device__ bool can_move(const LinkPart& part, LinkCursor& cursor) const {
    if (!locate(part, cursor)) return false;
    std::byte* const place =
        part.is_sent != 0 ? taken_flag(task.member, part.peer) : ready_flag(part.peer, task.member);
    const std::uint32_t needed =
        part.is_sent != 0 ? cursor.count + 1 - TeamWindowLayout::link_slots : cursor.count + 1;
    const SystemWord flag(*reinterpret_cast<std::uint32_t*>(place));
    if (!has_reached(flag.load(::cuda::memory_order_acquire), needed)) return false;
    if (part.is_sent != 0) return true;
    const LinkLabel& label = label_of(task.member, part.peer, cursor);
    const LinkMessage& whole = message(part, cursor);
    return label.bytes == whole.bytes && label.dtype == whole.dtype &&
           (label.piece_bytes == 0) == (cursor.is_direct() || whole.bytes == 0);
  }
  /// Returns the label of the next piece from member `from` to member `to`.
  [[nodiscard]] __device__ LinkLabel& label_of(std::uint32_t to, std::uint32_t from,
                                               const LinkCursor& cursor) const {
    return *reinterpret_cast<LinkLabel*>(window(to) +
                                         task.layout.link_label_offset(from, lane, cursor.count));
  }
  /// By all threads of the block.
  __device__ void move(const LinkPart& part, const LinkCursor& cursor) const {
    const LinkMessage& whole = message(part, cursor);
    const std::uint64_t offset = cursor.offset(task.layout, whole);
    const std::uint64_t bytes = cursor.bytes(task.layout, whole);
    if (part.is_sent != 0) {
      std::byte* const slot =
          window(part.peer) + task.layout.link_slot_offset(task.member, lane, cursor.count);
      copy_link_piece(cursor.is_direct() ? cursor.target + offset : slot, whole.address + offset, bytes);
    } else if (!cursor.is_direct()) {
      copy_link_piece(whole.address + offset,
                      window(task.member) + task.layout.link_slot_offset(part.peer, lane, cursor.count),
                      bytes);
    }
  }
  /// By the thread that has the part, after a barrier: what has been moved, or read, comes before the flag.
  __device__ void tell(const LinkPart& part, LinkCursor& cursor) const {
    if (part.is_sent != 0) {
      const LinkMessage& whole = message(part, cursor);
      label_of(part.peer, task.member, cursor) = {
          .bytes = whole.bytes,
          .dtype = whole.dtype,
          .piece_bytes =
              cursor.is_direct() ? 0 : static_cast<std::uint32_t>(cursor.bytes(task.layout, whole))};
    }
    cursor.advance(task.layout, lane);
    ::cuda::atomic_thread_fence(::cuda::memory_order_release, ::cuda::thread_scope_system);
    TeamPart::set(part.is_sent != 0 ? ready_flag(task.member, part.peer) : taken_flag(part.peer, task.member),
                  cursor.count);
    settle(part, cursor);
  }
  /// By the thread that has the part, once the team has been ended, in all of them before `wait_for_writers`:
  /// nobody begins to write where it has been invited any more, and who does not write says so.
  __device__ void take_back(const LinkPart& part, const LinkCursor& cursor) const {
    if (cursor.message == part.message_count || !cursor.is_direct()) return;
    if (part.is_sent == 0) return store_line(invitation_to(part.peer, task.member), {0, 0});
    ::cuda::atomic_thread_fence(::cuda::memory_order_release, ::cuda::thread_scope_system);
    TeamPart::set(ready_flag(task.member, part.peer), cursor.count + 1);
  }
  /// Waits for senders that have begun to write, but not for ever; and for others, which may be about to
  /// begin, for a moment.
  __device__ void wait_for_writers(const LinkPart& part, const LinkCursor& cursor) const {
    if (part.is_sent != 0 || cursor.message == part.message_count || !cursor.is_direct()) return;
    constexpr std::uint64_t moment = 20'000'000;    // nanoseconds
    constexpr std::uint64_t longest_of_a_byte = 5;  // nanoseconds, of all lanes together
    const std::uint64_t longest = moment + longest_of_a_byte * message(part, cursor).bytes;
    ::cuda::atomic_thread_fence(::cuda::memory_order_release, ::cuda::thread_scope_system);
    const SystemWord flag(*reinterpret_cast<std::uint32_t*>(ready_flag(part.peer, task.member)));
    const SystemWord mark = taken_mark(part.peer, task.member);
    const std::uint64_t begin = nanoseconds();
    while (!has_reached(flag.load(::cuda::memory_order_acquire), cursor.count + 1)) {
      const std::uint64_t waited = nanoseconds() - begin;
      const bool has_begun = mark.load(::cuda::memory_order_relaxed) == cursor.count + 1;
      if (waited > (has_begun ? longest : moment)) return;
    }
  }
};

/// Lanes that a block does all at once: `count` of them, `step` apart.
struct LinkLanes {
  const LinkArguments& task;
  const std::byte* table;
  std::uint32_t first;
  std::uint32_t step;
  std::uint32_t count;

  /// False once the team has been ended. `states`: one for each part in each lane.
  [[nodiscard]] __device__ bool run(LinkState* states) const {
    const std::uint32_t all = count * task.part_count;
    for_own([&](std::uint32_t i) {
      const LinkLane lane = lane_of(i);
      const LinkPart& part = part_of(i);
      states[i].cursor = {.piece = lane.lane, .message = 0, .count = lane.count(part)};
      lane.settle(part, states[i].cursor);
    });
    for (std::uint32_t polls = 1;;) {
      bool is_open = false;
      bool moves = false;
      for_own([&](std::uint32_t i) {
        LinkState& state = states[i];
        const LinkPart& part = part_of(i);
        const bool is_left = state.cursor.message < part.message_count;
        const bool can = is_left && lane_of(i).can_move(part, state.cursor);
        state.can_move = can ? 1 : 0;
        is_open |= is_left;
        moves |= can;
      });
      if (__syncthreads_or(is_open ? 1 : 0) == 0) break;
      if (__syncthreads_or(moves ? 1 : 0) == 0) {
        const bool is_ended = threadIdx.x == 0 && is_turn_to_look(polls) && is_aborted(task.abort);
        ++polls;
        if (__syncthreads_or(is_ended ? 1 : 0) != 0) {
          for_own([&](std::uint32_t i) { lane_of(i).take_back(part_of(i), states[i].cursor); });
          for_own([&](std::uint32_t i) { lane_of(i).wait_for_writers(part_of(i), states[i].cursor); });
          return false;
        }
        continue;
      }
      for (std::uint32_t i = 0; i < all; ++i) {
        if (states[i].can_move != 0) lane_of(i).move(part_of(i), states[i].cursor);
      }
      __syncthreads();
      for_own([&](std::uint32_t i) {
        if (states[i].can_move != 0) lane_of(i).tell(part_of(i), states[i].cursor);
      });
    }
    for_own([&](std::uint32_t i) { lane_of(i).count(part_of(i)) = states[i].cursor.count; });
    __syncthreads();  // before other lanes use the states
    return true;
  }

 private:
  /// Calls the function for the thread's own parts.
  template <class Function>
  __device__ void for_own(Function&& function) const {
    for (std::uint32_t i = threadIdx.x; i < count * task.part_count; i += blockDim.x) function(i);
  }
  [[nodiscard]] __device__ LinkLane lane_of(std::uint32_t i) const {
    return {task, table, first + i / task.part_count * step};
  }
  [[nodiscard]] __device__ const LinkPart& part_of(std::uint32_t i) const {
    return lane_of(i).part(i % task.part_count);
  }
};

/// Calls `run(first, count)` for the lanes of a block or a warp, the `index`-th of `step`, so many at once as
/// there is room for; until it returns false, which is the result.
template <class Run>
__device__ bool for_lanes(std::uint32_t lanes, std::uint32_t index, std::uint32_t step, std::uint32_t at_once,
                          Run&& run) {
  for (std::uint32_t first = index; first < lanes; first += step * at_once) {
    const std::uint32_t left = (lanes - first + step - 1) / step;
    if (!run(first, left < at_once ? left : at_once)) return false;
  }
  return true;
}

template <class Table>
__global__ void __launch_bounds__(team_threads, team_blocks_per_multiprocessor)
    links_kernel(const __grid_constant__ Table table, const __grid_constant__ LinkArguments task) {
  extern __shared__ __align__(16) std::byte link_states[];
  if (blockIdx.x < task.lane_blocks) {
    if (__syncthreads_or(load_state(task.counters).gave_up ? 1 : 0) != 0) return;
    auto* const states = reinterpret_cast<LinkState*>(link_states);
    const bool is_over =
        for_lanes(task.lanes, blockIdx.x, task.lane_blocks, task.lanes_at_once,
                  [&](std::uint32_t first, std::uint32_t count) {
                    return LinkLanes{task, table.data(), first, task.lane_blocks, count}.run(states);
                  });
    if (!is_over && threadIdx.x == 0) give_up(task.counters);
    return;
  }
  const std::uint32_t warp = threadIdx.x / warp_lanes;
  if (warp >= task.line_warps) return;
  auto* const states = reinterpret_cast<LineState*>(link_states) +
                       std::size_t{warp} * task.line_lanes_at_once * task.part_count;
  const std::uint32_t warps = (gridDim.x - task.lane_blocks) * task.line_warps;
  const std::uint32_t index = (blockIdx.x - task.lane_blocks) * task.line_warps + warp;
  const bool is_over = for_lanes(
      task.line_lanes, index, warps, task.line_lanes_at_once, [&](std::uint32_t first, std::uint32_t count) {
        return LineLanes{task, table.data(), task.layout.link_lanes + first, warps, count}.run(states);
      });
  if (!is_over && threadIdx.x % warp_lanes == 0) give_up(task.counters);
}

/// The parameters of a launch that depend on how much there is to do. Blocks of both kinds run at once, so
/// there are at least two where both are needed: one more than the kernel may hold if that is 1.
struct LinkGrid {
  std::uint32_t lane_blocks = 0;
  std::uint32_t line_blocks = 0;
  std::uint32_t threads = 0;
  std::uint32_t line_warps = 0;
  std::uint32_t lanes_at_once = 1;  ///< by a block; all it has, if shared memory has room for their states
  std::uint32_t line_lanes_at_once = 1;  ///< likewise, by a warp
  std::size_t shared_bytes = 0;
};

std::uint32_t shares_of(std::uint32_t whole, std::uint32_t parts) {
  return (whole + parts - 1) / parts;
}

LinkGrid link_grid(const TeamLinks& task, int multiprocessors) {
  constexpr std::size_t most_shared_bytes = std::size_t{48} << 10U;
  const std::uint32_t lanes = task.lanes_used();
  const std::uint32_t line_lanes = task.line_lanes_used();
  const std::uint32_t most = std::max(most_blocks(multiprocessors, task.most_multiprocessors),
                                      lanes != 0 && line_lanes != 0 ? 2U : 1U);
  const auto at_once = [](std::uint32_t wanted, std::size_t bytes_of_each) {
    return static_cast<std::uint32_t>(std::clamp<std::size_t>(most_shared_bytes / bytes_of_each, 1, wanted));
  };
  LinkGrid grid;
  if (lanes != 0) {
    const std::size_t of_lane = task.parts.size() * sizeof(LinkState);
    grid.lane_blocks = std::min(lanes, line_lanes == 0 ? most : (most + 1) / 2);
    grid.lanes_at_once = at_once(shares_of(lanes, grid.lane_blocks), of_lane);
    grid.threads = team_threads;
    grid.shared_bytes = grid.lanes_at_once * of_lane;
  }
  if (line_lanes != 0) {
    const std::uint32_t left = most - grid.lane_blocks;
    const std::uint32_t wanted_warps = std::clamp(
        shares_of(line_lanes, left), std::min(fewest_line_warps, line_lanes), team_warps_per_block);
    const std::size_t of_lane = task.parts.size() * sizeof(LineState);
    grid.line_warps = at_once(wanted_warps, of_lane);
    grid.line_blocks = std::min(shares_of(line_lanes, grid.line_warps), left);
    grid.line_lanes_at_once =
        at_once(shares_of(line_lanes, grid.line_blocks * grid.line_warps), grid.line_warps * of_lane);
    grid.threads = std::max(grid.threads, grid.line_warps * warp_lanes);
    grid.shared_bytes = std::max(grid.shared_bytes, grid.line_lanes_at_once * grid.line_warps * of_lane);
  }
  return grid;
}

}  // namespace

cudaError_t launch_links(LaunchSite where, const TeamLinks& task, const TableArgument& argument,
                         const LinkTable& table) {
  if (task.messages.empty()) return cudaSuccess;
  const LinkGrid grid = link_grid(task, where.multiprocessors);
  LinkArguments beside{.layout = task.layout,
                       .counters = task.counters,
                       .abort = word_of(task.abort->state),
                       .member = task.member,
                       .lanes = task.lanes_used(),
                       .lane_blocks = grid.lane_blocks,
                       .lanes_at_once = grid.lanes_at_once,
                       .line_lanes = task.line_lanes_used(),
                       .line_warps = grid.line_warps,
                       .line_lanes_at_once = grid.line_lanes_at_once,
                       .part_count = static_cast<std::uint32_t>(task.parts.size()),
                       .parts_offset = table.parts_offset,
                       .messages_offset = table.messages_offset,
                       .direct_from = task.direct_from};
  return visit_small_table(argument, [&]<class Table>(std::type_identity<Table>, const void* blob) {
    void* arguments[] = {const_cast<void*>(blob), &beside};
    return cudaLaunchKernel(kernel_address(links_kernel<Table>), dim3(grid.lane_blocks + grid.line_blocks),
                            dim3(grid.threads), arguments, grid.shared_bytes, where.stream);
  });
}

cudaError_t preload_links() {
  return preload_all({kernel_address(links_kernel<ParameterTable<small_parameter_table>>),
                      kernel_address(links_kernel<ParameterTable<medium_parameter_table>>),
                      kernel_address(links_kernel<MemoryTable>)});
}

}  // namespace tutti::backend::cuda
