// SPDX-License-Identifier: Apache-2.0
#include "transport/team/team_exchange.hpp"

#include "transport/team/shared/mailbox_chunks.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace tutti::transport::team {

TeamExchange::TeamExchange(Team& team, std::uint64_t sequence)
    : team_(team),
      sequence_(sequence),
      kind_(Mailbox::all),
      ranks_(team.membership().rank_count()),
      // Only exchanges among all ranks use these mailboxes, so all are at the same position.
      starts_(ranks_.size(), team.state().mailbox(team.membership().rank(), Mailbox::all).written.load()),
      position_(static_cast<int>(team.membership().rank())) {
  std::iota(ranks_.begin(), ranks_.end(), std::size_t{0});
}

TeamExchange::TeamExchange(Team& team, std::uint64_t sequence, std::vector<std::size_t> ranks,
                           std::vector<std::uint64_t> starts)
    : team_(team),
      sequence_(sequence),
      kind_(Mailbox::part),
      ranks_(std::move(ranks)),
      starts_(std::move(starts)),
      position_(static_cast<int>(std::ranges::find(ranks_, team.membership().rank()) - ranks_.begin())) {}

std::uint64_t TeamExchange::part_start(const Team& team) {
  return team.state().mailbox(team.membership().rank(), Mailbox::part).written.load();
}

void TeamExchange::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  for_each_mailbox_chunk(mine, [&](std::span<const std::byte> chunk, std::size_t offset) {
    exchange_chunk(chunk, all, offset, mine.size());
  });
}

std::vector<std::size_t> TeamExchange::missing(std::atomic<std::uint64_t> Mailbox::*count,
                                               std::uint64_t chunks) const {
  std::vector<std::size_t> ranks;
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if ((team_.state().mailbox(ranks_[i], kind_).*count).load() < starts_[i] + chunks)
      ranks.push_back(ranks_[i]);
  }
  return ranks;
}

void TeamExchange::exchange_chunk(std::span<const std::byte> mine, std::span<std::byte> all,
                                  std::size_t offset, std::size_t stride) {
  const auto everyone = [&](std::atomic<std::uint64_t> Mailbox::*count, std::uint64_t chunks) {
    team_.waiting().wait_for_ranks(
        sequence_, [&] { return missing(count, chunks); }, limit_);
  };
  Mailbox& own = team_.state().mailbox(team_.membership().rank(), kind_);
  everyone(&Mailbox::read, chunks_);
  HostProxy* const host_proxy = team_.host_proxy();
  if (host_proxy != nullptr)
    team_.waiting().wait_for(sequence_, [&] { return host_proxy->has_carried(kind_); });
  std::ranges::copy(mine, own.bytes.begin());
  ++own.written;
  team_.news().announce();
  ++chunks_;
  everyone(&Mailbox::written, chunks_);
  for (std::size_t i = 0; i < ranks_.size(); ++i) {
    if (!mine.empty())
      std::memcpy(all.data() + i * stride + offset, team_.state().mailbox(ranks_[i], kind_).bytes.data(),
                  mine.size());
  }
  ++own.read;
  team_.news().announce();
}

void TeamExchange::arrive() {
  Mailbox& own = team_.state().mailbox(team_.membership().rank(), kind_);
  ++own.written;
  ++own.read;
  ++chunks_;
  team_.news().announce();
}

std::vector<std::size_t> TeamExchange::not_arrived() const {
  return missing(&Mailbox::written, chunks_ + 1);
}

std::unique_ptr<Network> TeamExchange::network() {
  if (team_.host_proxy() == nullptr) return nullptr;
  const std::vector<int> ranks(ranks_.begin(), ranks_.end());
  return team_.host_proxy()->network().part(ranks, *this);
}

}  // namespace tutti::transport::team
