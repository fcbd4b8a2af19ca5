// SPDX-License-Identifier: Apache-2.0
#include "transport/team/live_teams.hpp"

#include "transport/team/team.hpp"

#include <algorithm>

namespace tutti::transport::ranks {

void LiveTeams::add(Team& team) {
  const std::lock_guard lock(mutex_);
  teams_.push_back(&team);
  for (const int device : team.devices()) ++counts_[static_cast<std::size_t>(device)];
}

void LiveTeams::remove(const Team& team) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::erase(teams_, &team) != 0) count_out(team);
}

void LiveTeams::stop_counting(const Team& team) noexcept {
  const std::lock_guard lock(mutex_);
  if (std::ranges::find(teams_, &team) != teams_.end()) count_out(team);
}

void LiveTeams::count_out(const Team& team) noexcept {
  for (const int device : team.devices()) --counts_[static_cast<std::size_t>(device)];
}

Attempt LiveTeams::while_idle(const Team* asker, const std::function<void()>& work) {
  const std::lock_guard lock(mutex_);
  std::vector<Team*> asked;
  for (Team* const team : teams_) {
    if (team == asker || !team->abort_word().is_set()) asked.push_back(team);
  }
  if (std::ranges::any_of(asked, [](const Team* team) { return team->has_captured(); }))
    return Attempt::not_soon;
  // Looks closely at all of them before calls of any have to wait.
  if (!std::ranges::all_of(asked, [](Team* team) { return team->is_idle(); })) return Attempt::not_now;
  std::vector<std::unique_lock<std::mutex>> held;
  for (Team* const team : asked) {
    held.push_back(team->hold_if_idle());
    if (!held.back().owns_lock()) return Attempt::not_now;
  }
  work();
  return Attempt::done;
}

}  // namespace tutti::transport::ranks
