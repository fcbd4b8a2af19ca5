// SPDX-License-Identifier: Apache-2.0
#include "ranks/memory/symmetric_kernels.hpp"

#include "ranks/memory/symmetric_gpu_kernels.hpp"
#include "ranks/memory/symmetric_kernels.cuh"
#include "tutti/device.hpp"
#include "tutti/virtual_devices.hpp"

#include <array>
#include <span>
#include <vector>

namespace tutti::test {
namespace {

using virtual_devices::Access;

/// The blocks of a grid run one after another: a barrier in one holds up the next.
constexpr std::uint32_t virtual_blocks = 3;

[[nodiscard]] Stream stream_of(const SymmetricLaunch& launch) {
  return current_stream(launch.status.device());
}

/// `make_kernel` is called with the usable address of `operand`.
template <class MakeKernel>
void launch_virtual(const SymmetricLaunch& launch, std::uint32_t blocks, const Tensor& operand,
                    const MakeKernel& make_kernel) {
  std::vector<Access> accesses{{.address = launch.status.data(), .bytes = launch.status.nbytes()}};
  if (operand.defined()) accesses.push_back({.address = operand.data(), .bytes = operand.nbytes()});
  virtual_devices::launch(
      stream_of(launch), "symmetric", launch.memory, accesses,
      [=](const SymmetricView& view, std::span<void* const> addresses) {
        auto* const status = static_cast<std::int32_t*>(addresses[0]);
        const auto kernel = make_kernel(addresses.size() > 1 ? addresses[1] : nullptr);
        for (std::uint32_t block = 0; block < blocks; ++block) {
          const WaitStatus end =
              kernel(view, Place{.block = block, .blocks = blocks, .thread = 0, .threads = 1});
          *status = static_cast<std::int32_t>(end);
          if (end != WaitStatus::done) return;
        }
      },
      launch.patience);
}

template <class MakeKernel>
void launch_any(const SymmetricLaunch& launch, std::uint32_t blocks, const Tensor& operand,
                const MakeKernel& make_kernel) {
  if (backend_kind() == BackendKind::host) return launch_virtual(launch, blocks, operand, make_kernel);
  const Stream stream = stream_of(launch);
  launch.memory.record_stream(stream);
  launch_on_gpu(launch.memory.view(launch.local, launch.patience), stream, launch.status.data<std::int32_t>(),
                make_kernel(operand.defined() ? operand.data() : nullptr));
}

}  // namespace

std::int32_t exchanged_sum(int members, std::int64_t i, int rounds) {
  std::int32_t sum = 0;
  for (int round = 0; round < rounds; ++round) {
    for (int member = 0; member < members; ++member) sum += exchanged_number(member, i, round);
  }
  return sum;
}

void launch_exchange(const SymmetricLaunch& launch, const Tensor& sums, std::int64_t per_member, int rounds) {
  launch_any(launch, virtual_blocks, sums, [=](void* address) {
    return ExchangeKernel{
        .sums = static_cast<std::int32_t*>(address), .per_member = per_member, .rounds = rounds};
  });
}

void launch_ring(const SymmetricLaunch& launch, const Tensor& kept, std::int64_t count, int laps,
                 std::uint64_t begin) {
  launch_any(launch, 1, kept, [=](void* address) {
    return RingKernel{
        .kept = static_cast<std::int32_t*>(address), .count = count, .laps = laps, .begin = begin};
  });
}

void launch_signals(const SymmetricLaunch& launch, std::uint32_t index, std::uint64_t times) {
  launch_any(launch, 1, {}, [=](void*) { return SignalsKernel{.index = index, .times = times}; });
}

void launch_barrier(const SymmetricLaunch& launch, std::uint32_t channel) {
  launch_any(launch, 1, {}, [=](void*) { return BarrierKernel{.channel = channel}; });
}

void launch_wait(const SymmetricLaunch& launch, std::uint32_t index) {
  launch_any(launch, 1, {}, [=](void*) { return WaitKernel{.index = index}; });
}

}  // namespace tutti::test
