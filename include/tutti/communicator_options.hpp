// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/collectives.hpp"
#include "tutti/device.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace tutti {

/// Options of a new communicator. A member is each rank's own choice unless it says that it must be the same
/// on all ranks.
struct CommunicatorOptions {
  /// Devices that this rank contributes, 1 to 16, without repetition; each becomes a member. Empty: the
  /// calling thread's current device (on GPUs, CUDA's). Calls of a communicator leave the current device as
  /// it was.
  std::vector<Device> devices{};
  /// Longest wait for a rank that gives no sign of life, because its process has been stopped (by SIGSTOP, a
  /// debugger, a paused container) or its host is unreachable. It counts from the last sign, but not from
  /// before the wait. A process that has ended is noticed at once. It also bounds each step of making a
  /// communicator, if the exchange supports it (`Exchange::limit_waits`). More than 0; more than a year
  /// counts as a year.
  std::chrono::milliseconds timeout{60'000};
  /// Longest wait of a call for ranks that are alive but late, because of an evaluation, a checkpoint or a
  /// first batch, and for anything else, before all ranks give up; a second longer if a GPU does not report
  /// its progress. It counts from when the call is made or from when the call before it is complete on this
  /// rank, whichever is later. So other work that this rank's streams do in between counts too. More than 0;
  /// more than a year counts as a year. Empty: `TUTTI_PATIENCE` in seconds; if that is unset, 10 minutes, or
  /// `timeout` if that is longer. A `PatienceGuard` overrides it for some calls.
  std::optional<std::chrono::milliseconds> patience{};
  /// Size of the window through which a member gives its data to the others, the same on all ranks, 512 KiB
  /// to 1 GiB. It lies on the member's device if all devices can access each other's memory, else on every
  /// host. On GPUs, low-latency messages take up to five times as much in addition, at most 35 MiB, or 9 MiB
  /// if NVLink does not join all members or one has a compute capability below 9.0. Messages between two
  /// members take up to as much again, and on GPUs their lines up to as much once more.
  std::size_t window_bytes = std::size_t{8} << 20U;
  /// Transport of the data, the same on all ranks. Automatic: the one that `TUTTI_TRANSPORT` names, or the
  /// best available one. If a named transport is unavailable, the constructor throws Error(unsupported): p2p
  /// needs access between the devices of all pairs of members.
  TransportKind transport = TransportKind::automatic;
  /// Determinism of sums, the same on all ranks. Bitwise: NCCL, which adds in its own order, carries no sums.
  Determinism determinism = Determinism::fastest;
  /// Bound on the multiprocessors that each kernel of a call may hold at a time, at least 1, the same on all
  /// ranks. It works as `CollectiveOptions::multiprocessors` does, except that NCCL is told of it between
  /// hosts and if NCCL is named. A batch with large messages takes at least 2.
  std::optional<int> multiprocessors{};
  /// Lets other ranks open memory of the program's own when a call first uses it, as if it were registered
  /// (`tutti/registered_memory.hpp`), instead of copying from and to it. A rank may choose for itself. Memory
  /// by pieces (`cuMemMap`) may be freed and mapped anew at any time; other ranks may keep the pieces until
  /// the communicator ends. CUDA does not define what becomes of a block from `cudaMalloc` that is freed
  /// while others have it open: only where blocks live as long as the communicators that use them is this
  /// safe. An address that is used again is noticed. Memory of pools and managed memory are copied, and on
  /// GPUs pieces of a process with several members. Empty: what `TUTTI_OPEN_FOREIGN_MEMORY` says, or not.
  std::optional<bool> opens_foreign_memory{};
};

}  // namespace tutti
