// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/symmetric.hpp"
#include "tutti/tensor.hpp"

#include <chrono>
#include <cstdint>

/// Kernels of a program that use symmetric memory, of the same text for virtual devices and for GPUs. Each is
/// queued on the current stream of a local member's device, and writes how it has ended, a `WaitStatus`, to
/// the first element of `status` (int32, on that device).
namespace tutti::test {

/// A launch by a local member.
struct SymmetricLaunch {
  const SymmetricMemory& memory;
  int local = 0;
  Tensor status;
  std::chrono::milliseconds patience;
};

/// In each of `rounds` rounds, by several blocks, all members write `per_member` numbers (int32) to all
/// members, at `member * per_member`, and, behind a barrier, add what all have written to `sums`.
void launch_exchange(const SymmetricLaunch& launch, const Tensor& sums, std::int64_t per_member, int rounds);
/// Returns what each launch adds to element `i` of `sums`.
[[nodiscard]] std::int32_t exchanged_sum(int members, std::int64_t i, int rounds);

/// `laps` times, passes `count` numbers (int32) around the ring of members by `put_signal` and `wait`; each
/// member adds one to all on the way. Member 0 ends with what has arrived last in its data: all are `laps`
/// times the number of members. `kept` has as many numbers, 0 at first. Signals count on from `begin`.
void launch_ring(const SymmetricLaunch& launch, const Tensor& kept, std::int64_t count, int laps,
                 std::uint64_t begin = 0);

/// Adds one to the signal `index` of all members, and waits until all have, `times` times in all.
void launch_signals(const SymmetricLaunch& launch, std::uint32_t index, std::uint64_t times);

/// Waits for a barrier, or for a signal that nobody sends.
void launch_barrier(const SymmetricLaunch& launch, std::uint32_t channel);
void launch_wait(const SymmetricLaunch& launch, std::uint32_t index);

}  // namespace tutti::test
