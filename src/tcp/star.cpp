// SPDX-License-Identifier: Apache-2.0
#include "tcp/star.hpp"

#include "ranks_in_words.hpp"
#include "tcp/handshake.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <deque>
#include <utility>

#include <fmt/format.h>

namespace tutti::tcp {
namespace {

using namespace std::chrono_literals;

/// Who has not proven anything takes a place for the length of a handshake at most.
constexpr std::size_t most_visitors = 256;
/// Rank 0 tells the others that it has waited long enough: they wait a little longer.
constexpr auto until_told = 2s;
/// Longer ones would not fit where time is counted in nanoseconds.
constexpr std::chrono::milliseconds longest_timeout = std::chrono::hours(24 * 365);

std::vector<Address> checked_addresses(const Rendezvous& rendezvous) {
  constexpr std::size_t shortest_secret = 16;
  const auto require = [](bool is_good, const std::string& what) {
    if (!is_good) throw Error(ErrorCode::invalid_argument, "tutti::tcp::Exchange: " + what);
  };
  require(rendezvous.size >= 1, fmt::format("size is {}, expected 1 or more", rendezvous.size));
  require(rendezvous.rank >= 0 && rendezvous.rank < rendezvous.size,
          fmt::format("rank is {}, expected 0 to {}", rendezvous.rank, rendezvous.size - 1));
  require(rendezvous.port >= 1 && rendezvous.port <= 65535,
          fmt::format("{} is {}, expected 1 to 65535", rendezvous.port_name, rendezvous.port));
  require(rendezvous.timeout > 0ms,
          fmt::format("timeout is {} ms, expected more than 0", rendezvous.timeout.count()));
  std::vector<Address> addresses = addresses_of(rendezvous);
  if (rendezvous.secret.empty()) {
    if (!std::ranges::all_of(addresses, &Address::is_loopback)) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("TUTTI_SECRET is not set, expected {} bytes or more, the same on all ranks: {} is "
                      "'{}', which others than this host may reach",
                      shortest_secret, rendezvous.address_name, rendezvous.address));
    }
  } else if (rendezvous.secret.size() < shortest_secret) {
    throw Error(ErrorCode::invalid_argument, fmt::format("TUTTI_SECRET has {} byte(s), expected {} or more",
                                                         rendezvous.secret.size(), shortest_secret));
  }
  return addresses;
}

std::string have(const std::vector<int>& ranks) {
  return ranks_in_words(ranks) + (ranks.size() == 1 ? " has" : " have");
}

}  // namespace

Exchange::Star::Star(Rendezvous rendezvous, Watch watch)
    : rendezvous_(std::move(rendezvous)),
      watch_(std::move(watch)),
      made_with_(std::min(rendezvous_.timeout, longest_timeout)),
      timeout_(made_with_) {
  const std::vector<Address> addresses = checked_addresses(rendezvous_);
  if (rank() == 0) {
    let_all_in(addresses);
  } else {
    go_to_rank_0(addresses);
  }
}

void Exchange::Star::limit_waits(std::chrono::milliseconds timeout) noexcept {
  timeout_ = std::min(made_with_, timeout);
}

void Exchange::Star::set_timeout(std::chrono::milliseconds timeout) noexcept {
  timeout_ = made_with_ = std::min(timeout, longest_timeout);
}

std::vector<int> Exchange::Star::missing() const {
  std::vector<int> ranks;
  for (int rank = 1; rank < size(); ++rank) {
    if (!lines_[static_cast<std::size_t>(rank)].is_open()) ranks.push_back(rank);
  }
  return ranks;
}

void Exchange::Star::end_all(ErrorCode code, const std::string& message) {
  has_failed_ = true;
  for (const Descriptor& line : lines_) {
    if (line.is_open()) send_failure(line, code, message);
  }
  throw Error(code, message);
}

void Exchange::Star::let_all_in(const std::vector<Address>& addresses) {
  lines_.resize(static_cast<std::size_t>(size()));
  if (size() == 1) return;
  const Descriptor listener = listen_at(addresses, rendezvous_);
  const Digest key = key_of(rendezvous_);
  const Wait wait(timeout_, watch_);
  Visitors visitors;
  while (!missing().empty()) {
    if (wait.is_over()) {
      const std::string strangers =
          refused_ == 0 ? ""
                        : fmt::format("; {} who came had another secret (TUTTI_SECRET) or job", refused_);
      end_all(ErrorCode::timeout,
              fmt::format("after {} s, {} not come to {}{}", std::chrono::duration<double>(timeout_).count(),
                          have(missing()), place_of(rendezvous_), strangers));
    }
    std::vector<pollfd> sockets{{.fd = listener.number(), .events = POLLIN, .revents = 0}};
    for (const auto& visitor : visitors)
      sockets.push_back({.fd = visitor->socket().number(), .events = POLLIN, .revents = 0});
    wait.until_ready(sockets);
    while (visitors.size() < most_visitors) {
      Descriptor socket = accept_at(listener);
      if (!socket.is_open()) break;
      visitors.push_back(std::make_unique<Visitor>(std::move(socket), key));
    }
    look_after(visitors);
  }
  for (int rank = 1; rank < size(); ++rank) {
    // They have been silent for long, and so little fits.
    static_cast<void>(send_frame(lines_[static_cast<std::size_t>(rank)], {}, wait));
  }
}

void Exchange::Star::look_after(Visitors& visitors) {
  for (auto visitor = visitors.begin(); visitor != visitors.end();) {
    const Visitor::State state = (*visitor)->advance();
    if (state == Visitor::State::undecided) {
      ++visitor;
      continue;
    }
    if (state == Visitor::State::refused) {
      ++refused_;
    } else if (takes(**visitor)) {
      lines_[static_cast<std::size_t>((*visitor)->claim().rank)] = (*visitor)->take_socket();
    }
    visitor = visitors.erase(visitor);
  }
}

bool Exchange::Star::takes(const Visitor& visitor) const {
  const Claim claim = visitor.claim();
  std::string why_not;
  if (claim.size != size()) {
    why_not = fmt::format("rank {} was started as one of {} processes, rank 0 as one of {}", claim.rank,
                          claim.size, size());
  } else if (claim.rank < 1 || claim.rank >= size()) {
    why_not = fmt::format("rank {} is none of {} processes", claim.rank, size());
  } else if (lines_[static_cast<std::size_t>(claim.rank)].is_open()) {
    why_not = fmt::format("rank {} has come already: has another job the same address, port and secret?",
                          claim.rank);
  }
  if (!why_not.empty()) send_failure(visitor.socket(), ErrorCode::invalid_argument, why_not);
  return why_not.empty();
}

Descriptor Exchange::Star::reach(const std::vector<Address>& addresses) const {
  const Wait wait(timeout_, watch_);
  for (;;) {
    for (const Address& address : addresses) {
      Descriptor line = connect_to(address, wait);
      if (line.is_open()) return line;
    }
    if (wait.is_over()) {
      throw Error(ErrorCode::timeout,
                  fmt::format("after {} s, rank 0 does not listen at {}",
                              std::chrono::duration<double>(timeout_).count(), place_of(rendezvous_)));
    }
    wait.until_ready({});
  }
}

void Exchange::Star::go_to_rank_0(const std::vector<Address>& addresses) {
  lines_.push_back(reach(addresses));
  introduce(lines_.front(), rendezvous_, watch_);
  Frame welcome(0);
  receive_from_rank_0(welcome);
}

void Exchange::Star::receive_from_rank_0(Frame& frame) {
  const Wait wait(timeout_ + until_told, watch_);
  const Descriptor& line = lines_.front();
  Progress progress = frame.receive(line);
  while (progress == Progress::halfway && !wait.is_over()) {
    wait.until_ready(line, POLLIN);
    progress = frame.receive(line);
  }
  if (progress == Progress::closed) throw Error(ErrorCode::peer_unavailable, "rank 0 has left");
  if (progress == Progress::halfway) {
    throw Error(ErrorCode::timeout, fmt::format("after {} s, rank 0 has not come",
                                                std::chrono::duration<double>(timeout_).count()));
  }
  frame.rethrow();
}

void Exchange::Star::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  constexpr std::size_t most_of_one = std::size_t{64} << 20U;
  constexpr std::size_t most_of_all = std::size_t{1} << 30U;
  const auto require = [](bool is_good, const std::string& what) {
    if (!is_good) throw Error(ErrorCode::invalid_argument, "tutti::tcp::Exchange::all_gather: " + what);
  };
  const auto count = static_cast<std::size_t>(size());
  require(!has_failed_, "an earlier call has failed");
  require(mine.size() <= std::min(most_of_one, most_of_all / count),
          fmt::format("mine has {} bytes, expected {} at most", mine.size(),
                      std::min(most_of_one, most_of_all / count)));
  require(all.size() == mine.size() * count,
          fmt::format("all has {} bytes, expected {}, {} for each of {} ranks", all.size(),
                      mine.size() * count, mine.size(), size()));
  has_failed_ = true;  // until it has not
  if (rank() == 0) {
    gather_from_all(mine, all);
  } else {
    gather_by_rank_0(mine, all);
  }
  has_failed_ = false;
}

void Exchange::Star::gather_from_all(std::span<const std::byte> mine, std::span<std::byte> all) {
  std::ranges::copy(mine, all.begin());
  std::deque<Frame> frames;
  std::vector<int> awaited;
  for (int rank = 1; rank < size(); ++rank) {
    frames.emplace_back(mine.size());
    awaited.push_back(rank);
  }
  const Wait wait(timeout_, watch_);
  const auto is_there = [&](int rank) {
    const auto index = static_cast<std::size_t>(rank);
    Frame& frame = frames[index - 1];
    const Progress progress = frame.receive(lines_[index]);
    if (progress == Progress::closed)
      end_all(ErrorCode::peer_unavailable, fmt::format("rank {} has left", rank));
    if (progress == Progress::halfway) return false;
    if (!frame.is_as_expected()) {
      end_all(ErrorCode::invalid_argument,
              fmt::format("tutti::tcp::Exchange::all_gather: rank {} gives {} bytes, rank 0 {}", rank,
                          frame.header().length, mine.size()));
    }
    std::ranges::copy(frame.body(), all.begin() + static_cast<std::ptrdiff_t>(index * mine.size()));
    return true;
  };
  while (std::erase_if(awaited, is_there), !awaited.empty()) {
    if (wait.is_over()) {
      end_all(ErrorCode::timeout,
              fmt::format("after {} s, {} not come", std::chrono::duration<double>(timeout_).count(),
                          have(awaited)));
    }
    std::vector<pollfd> sockets;
    for (const int rank : awaited)
      sockets.push_back(
          {.fd = lines_[static_cast<std::size_t>(rank)].number(), .events = POLLIN, .revents = 0});
    wait.until_ready(sockets);
  }
  for (int rank = 1; rank < size(); ++rank) {
    const Progress progress = send_frame(lines_[static_cast<std::size_t>(rank)], all, wait);
    if (progress == Progress::closed)
      end_all(ErrorCode::peer_unavailable, fmt::format("rank {} has left", rank));
    if (progress == Progress::halfway)
      end_all(ErrorCode::timeout, fmt::format("rank {} does not take what it has asked for", rank));
  }
}

void Exchange::Star::gather_by_rank_0(std::span<const std::byte> mine, std::span<std::byte> all) {
  // Where it has left, what it has said before is still to be read.
  const Wait wait(timeout_ + until_told, watch_);
  static_cast<void>(send_frame(lines_.front(), mine, wait));
  Frame frame(all.size());
  receive_from_rank_0(frame);
  if (!frame.is_as_expected()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("tutti::tcp::Exchange::all_gather: rank 0 gives {} bytes, rank {} {}",
                            frame.header().length / static_cast<std::size_t>(size()), rank(), mine.size()));
  }
  std::ranges::copy(frame.body(), all.begin());
}

}  // namespace tutti::tcp
