// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/mesh.hpp"

#include "tutti/error.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace tutti::tcp {

std::uint64_t Mesh::new_number() {
  const std::scoped_lock lock(mutex_);
  return (static_cast<std::uint64_t>(rank()) << 32U) + ++numbers_;
}

void Mesh::begin(std::uint64_t network, std::span<const int> ranks, bool outlives_losses) {
  const std::scoped_lock lock(mutex_);
  Mailbox& box = boxes_[network];
  box.ranks.assign(ranks.begin(), ranks.end());
  box.outlives_losses = outlives_losses;
}

void Mesh::end(std::uint64_t network) noexcept {
  const std::scoped_lock lock(mutex_);
  const auto box = boxes_.find(network);
  if (box == boxes_.end()) return;
  try {
    std::set<int> heard;  // those that may still send to it
    for (const int rank : box->second.ranks) {
      if (tell_of_leaving(rank, network) && box->second.accounts[rank].may_send) heard.insert(rank);
    }
    if (!heard.empty()) ended_[network] = std::move(heard);
  } catch (const std::exception&) {
    // Memory is short. The others hear of it when the process ends.
  }
  boxes_.erase(box);
}

bool Mesh::tell_of_leaving(int rank, std::uint64_t network) {
  const bool has_out = connections_.is_open(rank, Direction::out);
  const bool has_in = connections_.is_open(rank, Direction::in);
  if (has_out) connections_.tell(rank, Direction::out, {.kind = Header::Kind::leave, .network = network});
  if (has_in)
    connections_.tell(rank, Direction::in,
                      {.kind = Header::Kind::leave, .code = has_out ? 1U : 0U, .network = network});
  return has_out || has_in;
}

void Mesh::take_frame(int rank, Direction direction, const Header& header, std::vector<std::byte> body) {
  using Kind = Header::Kind;
  if (header.kind == Kind::leave) return take_leave(rank, header.network, header.code != 0);
  if (ended_.contains(header.network)) return;
  if (direction == Direction::out) {
    const auto box = boxes_.find(header.network);
    if (header.kind == Kind::count && box != boxes_.end()) box->second.accounts[rank].counted = header.number;
    return;
  }
  Mailbox& box = boxes_[header.network];  // which may begin here later
  if (header.kind == Kind::bytes) box.arrived.push_back({.source = rank, .bytes = std::move(body)});
}

void Mesh::take_leave(int rank, std::uint64_t network, bool is_copy) {
  if (const auto ended = ended_.find(network); ended != ended_.end()) {
    if (is_copy) return;
    ended->second.erase(rank);
    if (ended->second.empty()) ended_.erase(ended);
  } else if (!is_copy || boxes_.contains(network)) {
    Account& account = boxes_[network].accounts[rank];
    account.has_left = true;
    if (!is_copy) account.may_send = false;
  }
}

void Mesh::take_loss(int rank) {
  for (auto ended = ended_.begin(); ended != ended_.end();) {
    ended->second.erase(rank);
    ended = ended->second.empty() ? ended_.erase(ended) : std::next(ended);
  }
}

void Mesh::require_all_here(const Mailbox& box) const {
  for (const int rank : box.ranks) {
    if (rank == this->rank() || connections_.loss(rank).empty()) continue;
    const auto account = box.accounts.find(rank);
    if (account == box.accounts.end() || !account->second.has_left)
      throw Error(ErrorCode::peer_unavailable, connections_.loss(rank));
  }
}

void Mesh::require_none_lost(std::span<const int> ranks) const {
  for (const int rank : ranks) {
    if (!connections_.loss(rank).empty()) throw Error(ErrorCode::peer_unavailable, connections_.loss(rank));
  }
}

void Mesh::reach(std::span<const int> ranks) {
  // Meanwhile the others wait at most for the timeout, and are to hear the reason.
  const std::chrono::milliseconds limit = connections_.timeout() * 3 / 4;
  const auto end = std::chrono::steady_clock::now() + limit;
  std::unique_lock lock(mutex_);
  for (const int rank : ranks) connections_.connect(rank);
  for (;;) {
    connections_.pump();
    require_none_lost(ranks);
    const auto is_reached = [this](int rank) { return connections_.is_reached(rank); };
    const auto missing = std::ranges::find_if_not(ranks, is_reached);
    if (missing == ranks.end()) return;
    if (std::chrono::steady_clock::now() >= end) {
      throw Error(
          ErrorCode::peer_unavailable,
          fmt::format("rank {} cannot connect to rank {} at {} within {:.1f} s: is there a way from host to "
                      "host, and does it let any port through?",
                      rank(), *missing, connections_.place_of(*missing), in_seconds(limit)));
    }
    lock.unlock();
    connections_.wait(std::chrono::milliseconds(10));
    lock.lock();
  }
}

void Mesh::send(std::uint64_t network, int target, std::vector<std::byte> bytes) {
  const std::scoped_lock lock(mutex_);
  Account& account = boxes_[network].accounts[target];
  if (account.has_left || !connections_.loss(target).empty()) return;
  connections_.connect(target);
  ++account.sent;
  connections_.send(target, {.kind = Header::Kind::bytes, .network = network}, std::move(bytes));
}

std::optional<Network::Message> Mesh::receive(std::uint64_t network) {
  const std::scoped_lock lock(mutex_);
  Mailbox& box = boxes_[network];
  if (box.arrived.empty()) connections_.pump();
  const bool is_empty = box.arrived.empty();
  if (is_empty && box.was_empty) settle(network, box);
  box.was_empty = is_empty;
  if (is_empty) {
    if (connections_.has_losses() && !box.outlives_losses) require_all_here(box);
    return std::nullopt;
  }
  Network::Message message = std::move(box.arrived.front());
  box.arrived.pop_front();
  Account& account = box.accounts[message.source];
  ++account.received;
  account.is_owed = box.owes = true;
  return message;
}

std::string Mesh::loss(std::uint64_t network, int rank) {
  const std::scoped_lock lock(mutex_);
  Mailbox& box = boxes_[network];
  const auto is_of_rank = [rank](const Network::Message& message) { return message.source == rank; };
  if (std::ranges::any_of(box.arrived, is_of_rank)) return "";
  if (!connections_.loss(rank).empty()) return connections_.loss(rank);
  const Account& account = box.accounts[rank];
  return account.has_left && !account.may_send ? fmt::format("rank {} has left", rank) : "";
}

bool Mesh::is_sending(std::uint64_t network) {
  const std::scoped_lock lock(mutex_);
  return std::ranges::any_of(boxes_[network].accounts, [this](const auto& entry) {
    return entry.second.sent > 0 && connections_.is_sending(entry.first);
  });
}

void Mesh::settle(std::uint64_t network, Mailbox& box) {
  if (!box.owes) return;
  for (auto& [rank, account] : box.accounts) {
    if (!account.is_owed) continue;
    account.is_owed = false;
    if (connections_.is_open(rank, Direction::in))
      connections_.tell(rank, Direction::in,
                        {.kind = Header::Kind::count, .network = network, .number = account.received});
  }
  box.owes = false;
}

bool Mesh::is_delivered(std::uint64_t network) {
  const std::scoped_lock lock(mutex_);
  Mailbox& box = boxes_[network];
  settle(network, box);
  connections_.pump();
  return std::ranges::all_of(box.accounts, [this](const auto& entry) {
    const auto& [rank, account] = entry;
    return account.sent == account.counted || account.has_left || !connections_.loss(rank).empty();
  });
}

bool Mesh::is_busy(std::uint64_t network) {
  const std::scoped_lock lock(mutex_);
  settle(network, boxes_[network]);
  return connections_.is_busy();
}

}  // namespace tutti::tcp
