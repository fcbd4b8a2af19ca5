// SPDX-License-Identifier: Apache-2.0
#include "stream_sanitizer/shadow_memory.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace tutti::stream_sanitizer {
namespace {

bool is_known(const Access& access, const VectorClock& clock) noexcept {
  return clock.at(access.line) >= access.time;
}

}  // namespace

ShadowMemory::Cells::const_iterator ShadowMemory::first_behind(std::uintptr_t address) const {
  auto cell = cells_.upper_bound(address);
  if (cell != cells_.begin() && std::prev(cell)->second.end > address) --cell;
  return cell;
}

void ShadowMemory::split(std::uintptr_t address) {
  auto next = cells_.lower_bound(address);
  if (next == cells_.begin()) return;
  const auto cell = std::prev(next);
  if (cell->second.end <= address) return;
  cells_.emplace_hint(next, address, cell->second);
  cell->second.end = address;
}

std::optional<ShadowMemory::Conflict> ShadowMemory::find_conflict(Bytes bytes, bool writes,
                                                                  const VectorClock& clock) const {
  for (auto cell = first_behind(bytes.begin); cell != cells_.end() && cell->first < bytes.end; ++cell) {
    const Bytes both{std::max(bytes.begin, cell->first), std::min(bytes.end, cell->second.end)};
    const auto& [end, write, reads] = cell->second;
    if (write && !is_known(*write, clock)) return Conflict{*write, true, both};
    if (!writes) continue;
    const auto read =
        std::ranges::find_if(reads, [&](const Access& earlier) { return !is_known(earlier, clock); });
    if (read != reads.end()) return Conflict{*read, false, both};
  }
  return std::nullopt;
}

void ShadowMemory::enter(Bytes bytes, bool writes, const Access& access, const VectorClock& clock) {
  if (bytes.begin >= bytes.end) return;
  split(bytes.begin);
  split(bytes.end);
  auto cell = cells_.lower_bound(bytes.begin);
  if (writes) {
    cell = cells_.erase(cell, cells_.lower_bound(bytes.end));
    cells_.emplace_hint(cell, bytes.begin, Cell{bytes.end, access, {}});
    return;
  }
  std::uintptr_t covered = bytes.begin;
  while (covered < bytes.end) {
    if (cell == cells_.end() || cell->first > covered) {  // nobody is known there
      const std::uintptr_t end = cell == cells_.end() ? bytes.end : std::min(bytes.end, cell->first);
      cells_.emplace_hint(cell, covered, Cell{end, std::nullopt, {access}});
      covered = end;
      continue;
    }
    // An access that follows this read also follows those that the read itself follows.
    std::vector<Access>& reads = cell->second.reads;
    std::erase_if(reads, [&](const Access& earlier) { return is_known(earlier, clock); });
    reads.push_back(access);
    covered = cell->second.end;
    ++cell;
  }
}

void ShadowMemory::take_back(Bytes bytes, const OperationPtr& operation) {
  const auto is_it = [&](const Access& access) { return access.operation == operation; };
  for (auto cell = cells_.lower_bound(bytes.begin); cell != cells_.end() && cell->first < bytes.end;) {
    if (cell->second.write && is_it(*cell->second.write)) cell->second.write.reset();
    std::erase_if(cell->second.reads, is_it);
    cell = cell->second.empty() ? cells_.erase(cell) : std::next(cell);
  }
}

void ShadowMemory::forget(Bytes bytes) {
  if (bytes.begin >= bytes.end) return;
  split(bytes.begin);
  split(bytes.end);
  cells_.erase(cells_.lower_bound(bytes.begin), cells_.lower_bound(bytes.end));
}

void ShadowMemory::forget_known(const VectorClock& known, Bytes bytes) {
  split(bytes.begin);
  split(bytes.end);
  const auto is_of_all = [&](const Access& access) { return is_known(access, known); };
  for (auto cell = cells_.lower_bound(bytes.begin); cell != cells_.end() && cell->first < bytes.end;) {
    if (cell->second.write && is_of_all(*cell->second.write)) cell->second.write.reset();
    std::erase_if(cell->second.reads, is_of_all);
    cell = cell->second.empty() ? cells_.erase(cell) : std::next(cell);
  }
}

void ShadowMemory::forget_half() {
  std::vector<std::uint64_t> numbers;
  numbers.reserve(cells_.size());
  const auto latest = [](const Cell& cell) {
    std::uint64_t number = cell.write ? cell.write->operation->number : 0;
    for (const Access& read : cell.reads) number = std::max(number, read.operation->number);
    return number;
  };
  for (const auto& [begin, cell] : cells_) numbers.push_back(latest(cell));
  if (numbers.empty()) return;
  const auto middle = numbers.begin() + static_cast<std::ptrdiff_t>(numbers.size() / 2);
  std::ranges::nth_element(numbers, middle);
  std::erase_if(cells_, [&, oldest = *middle](const auto& entry) { return latest(entry.second) <= oldest; });
}

}  // namespace tutti::stream_sanitizer
