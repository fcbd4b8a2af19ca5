// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/collectives.hpp"
#include "tutti/device.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <vector>

namespace tutti {

/// What a communicator is made with. Unless a member says that it is the same on all ranks, it is each rank's
/// own.
struct CommunicatorOptions {
  /// The devices this process brings in, 1 to 16, each once; each is a member. Empty: the calling thread's
  /// current device, on GPUs CUDA's. No call of a communicator's leaves another device current than it found.
  std::vector<Device> devices{};
  /// How long a call waits for a rank that gives no sign of life: its process has been stopped (by SIGSTOP, a
  /// debugger, a container that was paused), or its host is not heard of. It counts from the last sign, but
  /// not from before the wait. A process that is gone is noticed at once. Each step of making a communicator
  /// waits so long for whatever does not come, if its exchange knows how to (`Exchange::limit_waits`). More
  /// than 0; more than a year is a year.
  std::chrono::milliseconds timeout{60'000};
  /// How long a call waits for ranks that are late though they live, because of an evaluation, a checkpoint
  /// or a first batch, and for whatever else, before all ranks give up; a second more where a GPU does not
  /// say how far it has come. It counts from when the call is made, or from when the call before it has been
  /// completed here, whichever is later: so other work that this rank's streams do in between counts too.
  /// More than 0; more than a year is a year. Nothing: as many seconds as `TUTTI_PATIENCE` says; else 10
  /// minutes, or `timeout` if that is longer. A `PatienceGuard` gives calls a patience of their own.
  std::optional<std::chrono::milliseconds> patience{};
  /// Memory through which a member gives its data to the others, the same on all ranks, 512 KiB to 1 GiB: on
  /// its device, if all devices reach one another's memory, else on every host. On GPUs, low-latency messages
  /// take up to five times as much again: 35 MiB at most, and 9 MiB where NVLink does not join all members or
  /// one is of a compute capability below 9.0. Messages between two members take up to as much again, and on
  /// GPUs their lines up to as much once more.
  std::size_t window_bytes = std::size_t{8} << 20U;
  /// How data travels; the same on all ranks. Automatic: as `TUTTI_TRANSPORT` says, or the best there is. One
  /// that is named and cannot be had is Error(unsupported): p2p takes access between the devices of all pairs
  /// of members.
  TransportKind transport = TransportKind::automatic;
  /// Bitwise: NCCL, which adds in an order of its own, carries no sums. The same on all ranks.
  Determinism determinism = Determinism::fastest;
  /// How many multiprocessors each kernel of a call may hold at a time, at least 1, the same on all ranks; as
  /// for `CollectiveOptions::multiprocessors`, but that between hosts, and where NCCL is named, NCCL is told.
  /// A batch with large messages takes 2 at least.
  std::optional<int> multiprocessors{};
};

}  // namespace tutti
