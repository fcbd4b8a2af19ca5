// SPDX-License-Identifier: Apache-2.0
#include "transport/team/symmetric/release_flags.hpp"

#include <new>
#include <utility>

namespace tutti::transport::team {

ReleaseFlags::ReleaseFlags(SharedMemory memory, std::size_t rank, std::vector<PeerProcess> processes) noexcept
    : memory_(std::move(memory)),
      flags_(std::launder(reinterpret_cast<Flag*>(memory_.data())), processes.size()),
      rank_(rank),
      processes_(std::move(processes)) {}

void ReleaseFlags::release() noexcept {
  flags_[rank_].is_set.store(1, std::memory_order_release);
}

bool ReleaseFlags::has_released(std::size_t rank) const noexcept {
  return flags_[rank].is_set.load(std::memory_order_acquire) != 0;
}

bool ReleaseFlags::uses(std::size_t rank) const noexcept {
  return !has_released(rank) && !processes_[rank].is_gone();
}

std::vector<std::size_t> ReleaseFlags::users() const {
  std::vector<std::size_t> ranks;
  for (std::size_t rank = 0; rank < flags_.size(); ++rank) {
    if (uses(rank)) ranks.push_back(rank);
  }
  return ranks;
}

bool ReleaseFlags::are_all_released() const noexcept {
  for (std::size_t rank = 0; rank < flags_.size(); ++rank) {
    if (uses(rank)) return false;
  }
  return true;
}

}  // namespace tutti::transport::team
