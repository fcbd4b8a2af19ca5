// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/symmetric_view.hpp"

#include <cstddef>
#include <cstdint>
#include <cstring>

#if defined(__CUDACC__)
#include <cuda/atomic>
#endif
#if !defined(__CUDA_ARCH__)
#include <chrono>
#include <thread>
#endif

/// Lets kernels of the program's own synchronise and exchange data between the members of a communicator, in
/// symmetric memory (`tutti/symmetric.hpp`). For `.cu` files (nvcc or clang, compute capability 7.0 and
/// later) and for the host functions that are kernels of virtual devices. Includes nothing of the library but
/// the view.
///
/// # Blocks
/// All threads of a block call these functions together, with the same arguments; a wait returns the same to
/// all of them. Any blocks of a grid may do so, one or all, independently. (In a host function, the calling
/// thread is the block.) Blocks that wait for other members' must be running at the same time: a grid needs
/// no more blocks than fit on its device beside what else runs there, and where several members belong to one
/// process, launches must not wait for kernels to end.
///
/// # Memory model
/// Signals and barriers are stored with release and waited for with acquire, both at the scope of the system.
/// What the threads of a block have written or read before `signal` or `barrier`, in the memory of any
/// member, comes before all that the threads of a block do that has waited for it by `wait` or `barrier`. So
/// ordinary stores and loads are enough between them. Not allowed are loads that assume constant data
/// (`__ldg`, `const` pointers marked `__restrict__`) of what other members write during the kernel.
///
/// # Waits
/// A wait ends when what it waits for has come, when the communicator ends by whatever fault or on whatever
/// rank, or when the view's patience is over; it never hangs. Unless it returns `WaitStatus::done`, nothing
/// is known of other members' data. The kernel then returns early; the host learns of the end of the
/// communicator by `Communicator::check`. After `timed_out` the communicator goes on: a program that cannot
/// calls `Communicator::abort`, which ends the waits of all other ranks.
namespace tutti::device {

namespace detail {

// One block's threads, and the calling thread's place among them.

TUTTI_HOST_DEVICE inline std::uint32_t thread_of_block() noexcept {
#if defined(__CUDA_ARCH__)
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
#else
  return 0;
#endif
}
TUTTI_HOST_DEVICE inline std::uint32_t threads_of_block() noexcept {
#if defined(__CUDA_ARCH__)
  return blockDim.x * blockDim.y * blockDim.z;
#else
  return 1;
#endif
}
TUTTI_HOST_DEVICE inline void synchronize_block() noexcept {
#if defined(__CUDA_ARCH__)
  __syncthreads();
#endif
}
/// Returns whether it is true of any thread of the block, which all threads call.
TUTTI_HOST_DEVICE inline bool any_of_block(bool is_true) noexcept {
#if defined(__CUDA_ARCH__)
  return __syncthreads_or(is_true ? 1 : 0) != 0;
#else
  return is_true;
#endif
}

// Words that devices share.

template <class Word>
[[nodiscard]] TUTTI_HOST_DEVICE inline Word load_acquire(const Word* word) noexcept {
#if defined(__CUDA_ARCH__)
  return ::cuda::atomic_ref<Word, ::cuda::thread_scope_system>(*const_cast<Word*>(word))
      .load(::cuda::memory_order_acquire);
#else
  return __atomic_load_n(word, __ATOMIC_ACQUIRE);
#endif
}
template <class Word>
TUTTI_HOST_DEVICE inline void store_release(Word* word, Word value) noexcept {
#if defined(__CUDA_ARCH__)
  ::cuda::atomic_ref<Word, ::cuda::thread_scope_system>(*word).store(value, ::cuda::memory_order_release);
#else
  __atomic_store_n(word, value, __ATOMIC_RELEASE);
#endif
}
template <class Word>
TUTTI_HOST_DEVICE inline void add_release(Word* word, Word value) noexcept {
#if defined(__CUDA_ARCH__)
  ::cuda::atomic_ref<Word, ::cuda::thread_scope_system>(*word).fetch_add(value, ::cuda::memory_order_release);
#else
  __atomic_fetch_add(word, value, __ATOMIC_RELEASE);
#endif
}

[[nodiscard]] TUTTI_HOST_DEVICE inline std::uint64_t nanoseconds() noexcept {
#if defined(__CUDA_ARCH__)
  std::uint64_t now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
#else
  return static_cast<std::uint64_t>(
      std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count());
#endif
}

/// Rests between polls, the longer the more there have been. Returns whether it is time to look at the clock
/// and the abort word: the latter is in the host's memory, and many threads may wait.
TUTTI_HOST_DEVICE inline bool rest(std::uint32_t polls) noexcept {
#if defined(__CUDA_ARCH__)
  constexpr std::uint32_t polls_at_once = 256;
  constexpr std::uint32_t polls_per_look = 512;
  if (polls > polls_at_once) __nanosleep(polls < 16 * polls_at_once ? 32 : 256);
  return polls % polls_per_look == 0;
#else
  constexpr std::uint32_t polls_at_once = 64;
  if (polls < polls_at_once) {
    std::this_thread::yield();
  } else {
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  return true;
#endif
}

/// Returns whether a counter has come to `value`; both are less than half of their range apart.
template <class Word>
[[nodiscard]] TUTTI_HOST_DEVICE constexpr bool has_reached(Word counter, Word value) noexcept {
  return static_cast<Word>(counter - value) < Word{1} << (8 * sizeof(Word) - 1);
}

/// Waits until the counter has come to `value`. For one thread.
template <class Word>
[[nodiscard]] TUTTI_HOST_DEVICE inline WaitStatus wait_for_counter(const SymmetricView& view,
                                                                   const Word* counter, Word value) noexcept {
  if (has_reached(load_acquire(counter), value)) return WaitStatus::done;
  const std::uint64_t begin = nanoseconds();
  for (std::uint32_t polls = 1; !has_reached(load_acquire(counter), value); ++polls) {
    if (!rest(polls)) continue;
    if (load_acquire(view.abort) != 0) return WaitStatus::ended;
    if (nanoseconds() - begin > view.patience) return WaitStatus::timed_out;
  }
  return WaitStatus::done;
}

/// Returns the status of all threads of the block together, and orders what they do next behind their waits.
[[nodiscard]] TUTTI_HOST_DEVICE inline WaitStatus status_of_block(WaitStatus of_thread) noexcept {
  const bool has_ended = any_of_block(of_thread == WaitStatus::ended);
  const bool has_timed_out = any_of_block(of_thread == WaitStatus::timed_out);
  if (has_ended) return WaitStatus::ended;
  return has_timed_out ? WaitStatus::timed_out : WaitStatus::done;
}

template <class Word>
[[nodiscard]] TUTTI_HOST_DEVICE inline Word* word_at(const SymmetricView& view, std::uint32_t member,
                                                     std::uint64_t offset) noexcept {
  return reinterpret_cast<Word*>(view.peers[member] + offset);
}

/// Copies whole elements by all threads of the block.
template <class Element>
TUTTI_HOST_DEVICE inline void copy_by_block(std::byte* target, const std::byte* source,
                                            std::uint64_t bytes) noexcept {
  auto* const to = reinterpret_cast<Element*>(target);
  const auto* const from = reinterpret_cast<const Element*>(source);
  const std::uint64_t count = bytes / sizeof(Element);
  for (std::uint64_t i = thread_of_block(); i < count; i += threads_of_block()) to[i] = from[i];
}

}  // namespace detail

/// Returns the data of a member, as the calling device addresses it; that of the member itself, too. Reads
/// and writes there go over the link between the devices.
template <class T = std::byte>
[[nodiscard]] TUTTI_HOST_DEVICE inline T* peer_data(const SymmetricView& view,
                                                    std::uint32_t member) noexcept {
  return reinterpret_cast<T*>(view.peers[member]);
}
/// Returns the calling member's own data.
template <class T = std::byte>
[[nodiscard]] TUTTI_HOST_DEVICE inline T* own_data(const SymmetricView& view) noexcept {
  return peer_data<T>(view, view.member);
}

/// Waits until all members have called it for the same `channel`, less than `barrier_channels`, as often as
/// this one; afterwards all that they have written before is visible. Each channel is for one block of each
/// member at a time, in stream order; different channels are independent. A barrier that has not returned
/// `done` counts as passed by this member: others may still pass it. Cost: one word written to each other
/// member.
[[nodiscard]] TUTTI_HOST_DEVICE inline WaitStatus barrier(const SymmetricView& view,
                                                          std::uint32_t channel) noexcept {
  std::uint32_t* const passed =
      detail::word_at<std::uint32_t>(view, view.member, view.passed_offset(channel));
  const std::uint32_t number = detail::load_acquire(passed) + 1;
  detail::synchronize_block();  // all threads have the number, and have done what comes before
  for (std::uint32_t member = detail::thread_of_block(); member < view.member_count;
       member += detail::threads_of_block()) {
    detail::store_release(
        detail::word_at<std::uint32_t>(view, member, view.arrived_offset(channel, view.member)), number);
  }
  if (detail::thread_of_block() == 0) detail::store_release(passed, number);
  auto status = WaitStatus::done;
  for (std::uint32_t member = detail::thread_of_block(); member < view.member_count;
       member += detail::threads_of_block()) {
    if (status != WaitStatus::done) break;
    status = detail::wait_for_counter(
        view, detail::word_at<std::uint32_t>(view, view.member, view.arrived_offset(channel, member)),
        number);
  }
  return detail::status_of_block(status);
}
/// Works as the above, on the channel of the calling block's number (`blockIdx.x`; in host functions: 0), so
/// that blocks wait for those of the same number.
[[nodiscard]] TUTTI_HOST_DEVICE inline WaitStatus barrier(const SymmetricView& view) noexcept {
#if defined(__CUDA_ARCH__)
  return barrier(view, blockIdx.x);
#else
  return barrier(view, 0);
#endif
}

/// Copies `bytes` bytes from `source` to the data of a member, from `offset` bytes on. The member may read
/// them once it has waited for a signal that follows. Fastest if both addresses are multiples of 16.
TUTTI_HOST_DEVICE inline void put(const SymmetricView& view, std::uint32_t member, std::uint64_t offset,
                                  const void* source, std::uint64_t bytes) noexcept {
  std::byte* const target = view.peers[member] + offset;
  const auto* const from = static_cast<const std::byte*>(source);
#if defined(__CUDA_ARCH__)
  const std::uint64_t places =
      reinterpret_cast<std::uintptr_t>(target) | reinterpret_cast<std::uintptr_t>(from);
  const std::uint64_t unit = places % sizeof(uint4) == 0           ? sizeof(uint4)
                             : places % sizeof(std::uint32_t) == 0 ? sizeof(std::uint32_t)
                                                                   : 1;
  const std::uint64_t whole = bytes / unit * unit;
  if (unit == sizeof(uint4)) {
    detail::copy_by_block<uint4>(target, from, whole);
  } else if (unit == sizeof(std::uint32_t)) {
    detail::copy_by_block<std::uint32_t>(target, from, whole);
  } else {
    detail::copy_by_block<std::byte>(target, from, whole);
  }
  detail::copy_by_block<std::byte>(target + whole, from + whole, bytes - whole);
#else
  if (bytes != 0) std::memcpy(target, from, bytes);
#endif
}

/// Says how a signal changes its word.
enum class SignalOperation : std::uint32_t { set, add };

/// Sets signal `index`, less than `signal_count`, of a member to `value`, or adds to it, behind all that the
/// block has done before. Signals are words of 64 bits, 0 at first.
TUTTI_HOST_DEVICE inline void signal(const SymmetricView& view, std::uint32_t member, std::uint32_t index,
                                     std::uint64_t value,
                                     SignalOperation operation = SignalOperation::set) noexcept {
  detail::synchronize_block();
  if (detail::thread_of_block() != 0) return;
  std::uint64_t* const word = detail::word_at<std::uint64_t>(view, member, view.signal_offset(index));
  if (operation == SignalOperation::set) {
    detail::store_release(word, value);
  } else {
    detail::add_release(word, value);
  }
}

/// Copies like `put`, then signals.
TUTTI_HOST_DEVICE inline void put_signal(const SymmetricView& view, std::uint32_t member,
                                         std::uint64_t offset, const void* source, std::uint64_t bytes,
                                         std::uint32_t index, std::uint64_t value,
                                         SignalOperation operation = SignalOperation::set) noexcept {
  put(view, member, offset, source, bytes);
  signal(view, member, index, value, operation);
}

/// Waits until this member's own signal `index` is `value` or more (modulo 2^64, less than 2^63 apart):
/// afterwards, what the signal follows is visible. Signals that count up need not be reset between kernels.
[[nodiscard]] TUTTI_HOST_DEVICE inline WaitStatus wait(const SymmetricView& view, std::uint32_t index,
                                                       std::uint64_t value) noexcept {
  auto status = WaitStatus::done;
  if (detail::thread_of_block() == 0) {
    status = detail::wait_for_counter(
        view, detail::word_at<std::uint64_t>(view, view.member, view.signal_offset(index)), value);
  }
  return detail::status_of_block(status);
}

}  // namespace tutti::device
