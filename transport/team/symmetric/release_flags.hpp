// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "os/shared_memory.hpp"
#include "transport/team/shared/peer_process.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace tutti::transport::team {

/// Tells which ranks have released symmetric memory: a flag of each, in memory that they share and that
/// outlives their team. Thread-safe.
class ReleaseFlags {
 public:
  /// Returns the size of the memory.
  [[nodiscard]] static std::size_t bytes(std::size_t ranks) noexcept { return ranks * sizeof(Flag); }
  /// `memory` is zero-filled at first; `processes` are by rank, none for this one.
  ReleaseFlags(SharedMemory memory, std::size_t rank, std::vector<PeerProcess> processes) noexcept;

  /// Sets this rank's flag.
  void release() noexcept;
  [[nodiscard]] bool is_released_here() const noexcept { return has_released(rank_); }
  /// Returns the ranks that still use the memory; those whose processes are gone do not.
  [[nodiscard]] std::vector<std::size_t> users() const;
  /// Returns true if there are none.
  [[nodiscard]] bool are_all_released() const noexcept;

 private:
  struct alignas(64) Flag {
    std::atomic<std::uint32_t> is_set{0};
  };
  [[nodiscard]] bool has_released(std::size_t rank) const noexcept;
  [[nodiscard]] bool uses(std::size_t rank) const noexcept;

  const SharedMemory memory_;
  const std::span<Flag> flags_;
  const std::size_t rank_;
  const std::vector<PeerProcess> processes_;
};

}  // namespace tutti::transport::team
