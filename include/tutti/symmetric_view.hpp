// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/detail/host_device.hpp"

#include <cstddef>
#include <cstdint>

/// The view of symmetric memory that kernels get as an argument. Includes nothing else of the library.
namespace tutti {

/// Says how a wait in a kernel has ended.
enum class WaitStatus : std::uint32_t {
  done,      ///< what was waited for has come
  ended,     ///< the communicator has ended: `Communicator::check` throws the reason
  timed_out  ///< the patience of the view was over before
};

/// One local member's view of symmetric memory (`SymmetricMemory::view`): plain data, to be passed to a
/// kernel by value, which `tutti/device.cuh` has functions for. Valid until the memory is released. The
/// layout of the words behind the data is the library's own, and may change.
struct SymmetricView {
  static constexpr std::uint32_t barrier_channels = 256;  ///< of `device::barrier`, numbered from 0
  static constexpr std::uint32_t signal_count = 256;      ///< of each member, numbered from 0

  std::byte* const* peers = nullptr;     ///< by member: its data, as this member's device addresses it
  const std::uint32_t* abort = nullptr;  ///< not 0 once the communicator has ended
  std::uint64_t bytes = 0;               ///< of each member's data
  std::uint64_t patience = 0;            ///< nanoseconds that a wait lasts at most
  std::uint32_t member = 0;              ///< this member
  std::uint32_t member_count = 0;

  // The offsets of words from a member's data. Behind these the member's `peers` are kept.
  /// Returns the offset of the word in which member `from` counts its arrivals at barriers of the channel.
  [[nodiscard]] TUTTI_HOST_DEVICE constexpr std::uint64_t arrived_offset(std::uint32_t channel,
                                                                         std::uint32_t from) const noexcept {
    return words_offset() + (std::uint64_t{channel} * (member_count + 1) + from) * sizeof(std::uint32_t);
  }
  /// Returns the offset of the word in which the member counts its own barriers of the channel.
  [[nodiscard]] TUTTI_HOST_DEVICE constexpr std::uint64_t passed_offset(
      std::uint32_t channel) const noexcept {
    return arrived_offset(channel, member_count);
  }
  [[nodiscard]] TUTTI_HOST_DEVICE constexpr std::uint64_t signal_offset(std::uint32_t index) const noexcept {
    return aligned(arrived_offset(barrier_channels, 0)) + std::uint64_t{index} * sizeof(std::uint64_t);
  }
  [[nodiscard]] TUTTI_HOST_DEVICE constexpr std::uint64_t peers_offset() const noexcept {
    return signal_offset(signal_count);
  }
  /// Returns the bytes of each member's data and words.
  [[nodiscard]] TUTTI_HOST_DEVICE constexpr std::uint64_t all_bytes() const noexcept {
    return peers_offset() + std::uint64_t{member_count} * sizeof(std::byte*);
  }
  [[nodiscard]] TUTTI_HOST_DEVICE constexpr std::uint64_t words_offset() const noexcept {
    return aligned(bytes);
  }

 private:
  [[nodiscard]] TUTTI_HOST_DEVICE static constexpr std::uint64_t aligned(std::uint64_t offset) noexcept {
    return (offset + 127) / 128 * 128;
  }
};

}  // namespace tutti
