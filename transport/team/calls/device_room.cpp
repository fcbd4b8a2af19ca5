// SPDX-License-Identifier: Apache-2.0
#include "transport/team/calls/device_room.hpp"

#include <utility>

namespace tutti::transport::team {

DeviceRoom::DeviceRoom(std::uint32_t multiprocessors)
    : room_(std::max(multiprocessors, 1U) * backend::team_blocks_per_multiprocessor),
      largest_(std::clamp(multiprocessors, 1U, backend::most_team_blocks)) {}

void DeviceRoom::add(const void* team, std::function<AreOver()> end_of_announced) {
  const std::lock_guard lock(mutex_);
  wishes_.reserve(shares_.size() + 1);
  shares_.push_back({.team = team, .end_of_announced = std::move(end_of_announced)});
  const std::uint32_t before = count_.fetch_add(1);
  if (!is_enough_for(before) || is_enough_for(before + 1)) return;
  for (Share& share : shares_) {
    if (share.team != team) share.hold(largest_, share.end_of_announced());  // what nobody has counted
  }
}

void DeviceRoom::remove(const void* team) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::erase_if(shares_, [&](const Share& share) { return share.team == team; }) != 0) --count_;
}

void DeviceRoom::note_end(const void* team, AreOver are_over) {
  const std::lock_guard lock(mutex_);
  const auto own = std::ranges::find(shares_, team, &Share::team);
  if (own != shares_.end() && !own->held.empty()) own->held.back().are_over = std::move(are_over);
}

std::uint32_t DeviceRoom::Share::blocks() const noexcept {
  return std::max(captured, held.empty() ? 0 : held.front().blocks);
}

void DeviceRoom::Share::hold(std::uint32_t blocks, AreOver are_over) {
  while (!held.empty() && held.back().blocks <= blocks) held.pop_back();  // over before these are
  held.push_back({.blocks = blocks, .are_over = std::move(are_over)});
}

bool DeviceRoom::Share::would_leave(std::uint32_t kept) const noexcept {
  return !held.empty() && held.front().blocks > std::max(kept, captured);
}

void DeviceRoom::update(const Share& asker) {
  const std::uint32_t kept = parts().kept;
  for (Share& share : shares_) {
    if (share.would_leave(kept) && share.end_of_announced()()) share.held.clear();
  }
  for (std::size_t i = 0; i < shares_.size(); ++i) {
    asked_ = (asked_ + 1) % shares_.size();
    Share& share = shares_[asked_];
    if (&share == &asker || !share.would_leave(kept) || !share.held.front().are_over) continue;
    if (share.held.front().are_over()) share.held.erase(share.held.begin());
    return;
  }
}

DeviceRoom::Parts DeviceRoom::parts() const noexcept {
  const std::uint32_t even = std::max(room_ / (count() + 1), 1U);
  const std::uint32_t uncounted = std::min(uncounted_blocks, even);
  return {.even = even, .kept = std::max(even / 2, uncounted), .uncounted = uncounted};
}

std::uint32_t DeviceRoom::wanted_by(const Share& share) const noexcept {
  constexpr std::uint64_t remembered_calls = 4;  // of each team, so that a burst of all finds them even
  return calls_ - share.last_call <= remembered_calls * shares_.size() ? share.wanted : 0;
}

std::uint32_t DeviceRoom::fair_part(const Share& asker, const Parts& parts) {
  wishes_.clear();
  for (const Share& share : shares_) {
    if (&share != &asker) wishes_.push_back(std::max({parts.kept, share.blocks(), wanted_by(share)}));
  }
  std::ranges::sort(wishes_);
  std::uint32_t left = room_ - std::min(parts.kept, room_);
  auto sharing = static_cast<std::uint32_t>(shares_.size());
  for (const std::uint32_t wish : wishes_) {
    if (wish >= left / sharing) break;  // who wants less leaves the rest to the others
    left -= wish;
    --sharing;
  }
  return left / sharing;
}

std::uint32_t DeviceRoom::part_of(const Share& asker, bool is_captured, std::uint32_t most) {
  const Parts parts = this->parts();
  std::uint32_t taken = 0;
  std::uint32_t taken_or_kept = parts.kept;  // for a team that may come
  for (const Share& share : shares_) {
    if (&share == &asker) continue;
    taken += std::max(share.blocks(), parts.uncounted);
    taken_or_kept += std::max(share.blocks(), parts.kept);
  }
  const std::uint32_t own = std::min(parts.kept, room_ - std::min(taken, room_));
  const std::uint32_t fair = is_captured ? parts.even : fair_part(asker, parts);
  const std::uint32_t beside = std::min(fair, room_ - std::min(taken_or_kept, room_));
  return std::min(most, std::max({own, beside, parts.uncounted, asker.captured}));
}

DeviceRoom::Part DeviceRoom::take_counted(const void* team, bool is_captured, std::uint32_t most) {
  const std::lock_guard lock(mutex_);
  const auto found = std::ranges::find(shares_, team, &Share::team);
  // What has been removed meanwhile waits for nothing.
  if (found == shares_.end()) return {.blocks = std::min(most, uncounted_blocks), .is_counted = false};
  Share& own = *found;
  std::uint32_t blocks = part_of(own, is_captured, most);
  if (blocks < most) {
    update(own);
    blocks = part_of(own, is_captured, most);
  }
  if (is_captured) {
    own.captured = std::max(own.captured, blocks);
  } else {
    own.wanted = most;
    own.last_call = ++calls_;
    own.hold(blocks);
  }
  return {.blocks = blocks, .is_counted = !is_captured};
}

}  // namespace tutti::transport::team
