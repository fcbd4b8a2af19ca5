// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shared/membership.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::team {

Membership::Membership(std::size_t rank, std::span<const Rank> ranks, std::vector<int> devices)
    : rank_(rank), devices_(std::move(devices)) {
  for (std::size_t next = 0; next < ranks.size(); ++next) {
    first_members_.push_back(rank_of_member_.size());
    rank_of_member_.insert(rank_of_member_.end(), ranks[next].member_count, next);
    auto host = std::ranges::find(hosts_, ranks[next].host, &Host::name);
    if (host == hosts_.end()) host = hosts_.insert(hosts_.end(), {.name = ranks[next].host, .ranks = {}});
    host->ranks.push_back(next);
    host_of_rank_.push_back(static_cast<std::size_t>(host - hosts_.begin()));
  }
  first_members_.push_back(rank_of_member_.size());
  for (std::size_t other = 0; other < ranks.size(); ++other) {
    shares_process_.push_back(other != rank && ranks[rank].process != 0 &&
                              ranks[other].process == ranks[rank].process && is_on_this_host(other));
  }
}

bool Membership::shares_process_with_any() const noexcept {
  return std::ranges::find(shares_process_, true) != shares_process_.end();
}

bool Membership::is_in_one_process() const noexcept {
  return static_cast<std::size_t>(std::ranges::count(shares_process_, true)) + 1 == rank_count();
}

std::size_t Membership::most_members_of_a_rank() const noexcept {
  std::size_t most = 0;
  for (std::size_t rank = 0; rank < rank_count(); ++rank) most = std::max(most, member_count(rank));
  return most;
}

std::string Membership::hosts_in_words(std::string_view network) const {
  if (!spans_hosts()) return {};
  std::string text = fmt::format("{} hosts:", hosts_.size());
  for (const Host& host : hosts_) {
    text += fmt::format("{} '{}' (ranks {})", &host == &hosts_.front() ? "" : ",", host.name,
                        fmt::join(host.ranks, ", "));
  }
  return text + fmt::format("; between them what the hosts share is copied by {}", network);
}

}  // namespace tutti::transport::team
