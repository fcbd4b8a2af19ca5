#include "transport/ranks/left_memory.hpp"

#include <iterator>

namespace tutti::transport::ranks {

bool RemainingRanks::are_gone() const noexcept {
  for (std::size_t rank = 0; rank < boards_.size(); ++rank) {
    if (boards_[rank].state.load() < RankBoard::left && !processes_[rank].is_gone()) return false;
  }
  return true;
}

LeftMemory::LeftMemory(Runtime& runtime) : runtime_(runtime) {
  for (int device = 0; device < runtime_.device_count(); ++device)
    runtime_.allocator(device).add_observer(*this);
}

LeftMemory::~LeftMemory() {
  for (int device = 0; device < runtime_.device_count(); ++device)
    runtime_.allocator(device).remove_observer(*this);
}

void LeftMemory::hold(const std::byte* segment, const Ranks& ranks) {
  const std::lock_guard lock(mutex_);
  held_.emplace(segment, ranks);
}

void LeftMemory::take(int device, CachingAllocator::Extent memory, const Ranks& ranks) {
  hold(memory.address, ranks);
  runtime_.allocator(device).free_when_let_go(memory);
}

void LeftMemory::sweep(std::span<const int> devices) {
  {
    const std::lock_guard lock(mutex_);
    if (held_.empty()) return;
    // Also of segments that are in use or cached, which nobody asks about: their ranks are what takes memory.
    std::erase_if(held_, [](const auto& held) { return held.second->are_gone(); });
  }
  for (const int device : devices) runtime_.allocator(device).free_let_go();
}

SegmentObserver::Hold LeftMemory::hold_on(const std::byte* address) noexcept {
  const std::lock_guard lock(mutex_);
  const auto [first, last] = held_.equal_range(address);
  for (auto held = first; held != last;)
    held = held->second->are_gone() ? held_.erase(held) : std::next(held);
  return held_.contains(address) ? Hold::lasting : Hold::none;
}

}  // namespace tutti::transport::ranks
