// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.cuh"

#include <cstddef>
#include <cstdint>

/// What the kernels do, for a block.
namespace tutti::test {

/// A block among those of its grid, and a thread in it.
struct Place {
  std::uint32_t block;
  std::uint32_t blocks;
  std::uint32_t thread;
  std::uint32_t threads;
};

TUTTI_HOST_DEVICE inline void synchronize() {
#if defined(__CUDA_ARCH__)
  __syncthreads();
#endif
}

TUTTI_HOST_DEVICE constexpr std::int32_t exchanged_number(std::int64_t member, std::int64_t i, int round) {
  return static_cast<std::int32_t>((member + 1) * (i % 1000 + 1) + round);
}

struct ExchangeKernel {
  std::int32_t* sums;
  std::int64_t per_member;
  int rounds;

  TUTTI_HOST_DEVICE WaitStatus operator()(const SymmetricView& view, const Place& place) const {
    const std::int64_t share = (per_member + place.blocks - 1) / place.blocks;
    const std::int64_t begin = share * place.block;
    const std::int64_t end = begin + share < per_member ? begin + share : per_member;
    for (int round = 0; round < rounds; ++round) {
      for (std::uint32_t member = 0; member < view.member_count; ++member) {
        auto* const target = device::peer_data<std::int32_t>(view, member) + view.member * per_member;
        for (std::int64_t i = begin + place.thread; i < end; i += place.threads)
          target[i] = exchanged_number(view.member, i, round);
      }
      if (const WaitStatus status = device::barrier(view, place.block); status != WaitStatus::done)
        return status;
      // Another thread's elements, as what it has seen must be seen by all.
      for (std::int64_t i = begin + (place.threads - 1 - place.thread); i < end; i += place.threads) {
        for (std::uint32_t member = 0; member < view.member_count; ++member)
          sums[i] += device::own_data<std::int32_t>(view)[member * per_member + i];
      }
      if (const WaitStatus status = device::barrier(view, place.block); status != WaitStatus::done)
        return status;
    }
    return WaitStatus::done;
  }
};

struct RingKernel {
  std::int32_t* kept;
  std::int64_t count;
  int laps;
  std::uint64_t begin;

  TUTTI_HOST_DEVICE WaitStatus operator()(const SymmetricView& view, const Place& place) const {
    const bool is_first = view.member == 0;
    const std::uint32_t next = (view.member + 1) % view.member_count;
    for (int lap = 1; lap <= laps; ++lap) {
      const std::uint64_t awaited = begin + static_cast<std::uint64_t>(is_first ? lap - 1 : lap);
      if (const WaitStatus status = device::wait(view, 0, awaited); status != WaitStatus::done) return status;
      const bool has_begun = !is_first || lap > 1;
      for (std::int64_t i = place.thread; i < count; i += place.threads)
        kept[i] = (has_begun ? device::own_data<std::int32_t>(view)[i] : 0) + 1;
      synchronize();
      device::put_signal(view, next, 0, kept, static_cast<std::uint64_t>(count) * sizeof(std::int32_t), 0,
                         begin + static_cast<std::uint64_t>(lap));
    }
    return is_first ? device::wait(view, 0, begin + static_cast<std::uint64_t>(laps)) : WaitStatus::done;
  }
};

struct SignalsKernel {
  std::uint32_t index;
  std::uint64_t times;

  TUTTI_HOST_DEVICE WaitStatus operator()(const SymmetricView& view, const Place&) const {
    for (std::uint64_t time = 1; time <= times; ++time) {
      for (std::uint32_t member = 0; member < view.member_count; ++member)
        device::signal(view, member, index, 1, device::SignalOperation::add);
      if (const WaitStatus status = device::wait(view, index, time * view.member_count);
          status != WaitStatus::done)
        return status;
    }
    return WaitStatus::done;
  }
};

struct BarrierKernel {
  std::uint32_t channel;
  TUTTI_HOST_DEVICE WaitStatus operator()(const SymmetricView& view, const Place&) const {
    return device::barrier(view, channel);
  }
};

struct WaitKernel {
  std::uint32_t index;
  TUTTI_HOST_DEVICE WaitStatus operator()(const SymmetricView& view, const Place&) const {
    return device::wait(view, index, 1);
  }
};

}  // namespace tutti::test
