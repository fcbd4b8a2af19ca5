// SPDX-License-Identifier: Apache-2.0
#include "stream_sanitizer/memory_lives.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tutti::stream_sanitizer {

OperationPtr MemoryLives::close_gaps(Bytes bytes) {
  OperationPtr latest;
  auto gap = gaps_.upper_bound(bytes.begin);
  if (gap != gaps_.begin() && std::prev(gap)->second.end > bytes.begin) --gap;
  while (gap != gaps_.end() && gap->first < bytes.end) {
    const auto [begin, whole] = *gap;
    if (latest == nullptr || whole.release->number > latest->number) latest = whole.release;
    gap = gaps_.erase(gap);
    if (begin < bytes.begin) gaps_.emplace(begin, Gap{bytes.begin, whole.release});
    if (whole.end > bytes.end) gap = gaps_.emplace(bytes.end, Gap{whole.end, whole.release}).first;
  }
  return latest;
}

void MemoryLives::taken(Bytes bytes, std::uint64_t number) {
  lives_.insert_or_assign(bytes.begin, Life{bytes.end, number, close_gaps(bytes)});
}

void MemoryLives::given_back(Bytes bytes, OperationPtr release) {
  lives_.erase(bytes.begin);
  close_gaps(bytes);
  gaps_.emplace(bytes.begin, Gap{bytes.end, std::move(release)});
}

void MemoryLives::forget(Bytes bytes) {
  close_gaps(bytes);
  lives_.erase(lives_.lower_bound(bytes.begin), lives_.lower_bound(bytes.end));
}

void MemoryLives::clear() noexcept {
  lives_.clear();
  gaps_.clear();
}

MemoryLives::Freed MemoryLives::freed(Bytes bytes) const {
  auto gap = gaps_.upper_bound(bytes.begin);
  if (gap != gaps_.begin() && std::prev(gap)->second.end > bytes.begin) --gap;
  if (gap == gaps_.end() || gap->first >= bytes.end) return {};
  return {gap->second.release, {std::max(bytes.begin, gap->first), std::min(bytes.end, gap->second.end)}};
}

OperationPtr MemoryLives::release_since(std::uintptr_t address, std::uint64_t number) const {
  const auto behind = lives_.upper_bound(address);
  if (behind == lives_.begin()) return nullptr;
  const Life& life = std::prev(behind)->second;
  return life.end > address && life.since > number ? life.release_before : nullptr;
}

}  // namespace tutti::stream_sanitizer
