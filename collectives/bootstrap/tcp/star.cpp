// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/star.hpp"

#include "base/ranks_in_words.hpp"
#include "collectives/bootstrap/tcp/arrival.hpp"
#include "collectives/bootstrap/tcp/meeting.hpp"
#include "collectives/bootstrap/tcp/network.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace tutti::tcp {
namespace {

using namespace std::chrono_literals;

/// Longer ones would not fit where time is counted in nanoseconds.
constexpr std::chrono::milliseconds longest_timeout = std::chrono::hours(24 * 365);

std::vector<Address> checked_addresses(const Rendezvous& rendezvous) {
  const auto require = [](bool is_good, const std::string& what) {
    if (!is_good) throw Error(ErrorCode::invalid_argument, "tutti::tcp::Exchange: " + what);
  };
  require(rendezvous.size >= 1, fmt::format("size is {}, expected 1 or more", rendezvous.size));
  require(rendezvous.rank >= 0 && rendezvous.rank < rendezvous.size,
          fmt::format("rank is {}, expected 0 to {}", rendezvous.rank, rendezvous.size - 1));
  return checked_addresses_of(rendezvous, "tutti::tcp::Exchange", "TUTTI_SECRET");
}

std::string silence_of(const std::vector<int>& ranks) {
  return ranks_in_words(ranks) + (ranks.size() == 1 ? " has joined, but has not made this call"
                                                    : " have joined, but have not made this call");
}

}  // namespace

Exchange::Star::Star(Rendezvous rendezvous, Watch watch)
    : rendezvous_(std::move(rendezvous)),
      watch_(std::move(watch)),
      made_with_(std::min(rendezvous_.timeout, longest_timeout)),
      timeout_(made_with_) {
  const std::vector<Address> addresses = checked_addresses(rendezvous_);
  if (size() == 1) {
    lines_.resize(1);
  } else if (rank() == 0) {
    lines_ = meet_all(rendezvous_, addresses, timeout_, watch_);
  } else {
    lines_.push_back(meet_at_rank_0(rendezvous_, addresses, timeout_, watch_));
  }
}

void Exchange::Star::limit_waits(std::chrono::milliseconds timeout) noexcept {
  timeout_ = std::min(made_with_, timeout);
}

void Exchange::Star::set_timeout(std::chrono::milliseconds timeout) noexcept {
  timeout_ = made_with_ = std::min(timeout, longest_timeout);
}

std::unique_ptr<tutti::Network> Exchange::Star::network(tutti::Exchange& exchange) {
  const auto open = std::ranges::find_if(lines_, &Line::is_open);
  const Address own =
      open == lines_.end() ? addresses_of(rendezvous_).front() : own_address_of(open->socket());
  const Connections::Settings settings{
      .address = own, .key = key_of(rendezvous_), .encrypts = rendezvous_.encrypts, .timeout = timeout_};
  return make_network(exchange, settings, {});
}

void Exchange::Star::end_all(ErrorCode code, const std::string& message) {
  for (Line& line : lines_) {
    if (line.is_open()) line.send_failure(code, message);
  }
  throw Error(code, message);
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
  const Wait wait(timeout_, watch_);
  std::vector<int> awaited;
  std::vector<pollfd> sockets;
  for (int rank = 1; rank < size(); ++rank) {
    line(rank).expect(mine.size());
    awaited.push_back(rank);
    sockets.push_back({.fd = line(rank).socket().number(), .events = POLLIN, .revents = POLLIN});
  }
  for (;;) {
    for (int rank = 1; rank < size(); ++rank) {
      if (sockets[static_cast<std::size_t>(rank) - 1].revents != 0) hear(rank, awaited, all, wait);
    }
    if (awaited.empty()) break;
    if (wait.is_over())
      end_all(ErrorCode::timeout, fmt::format("after {} s, {}", in_seconds(timeout_), silence_of(awaited)));
    wait.until_ready(sockets);
  }
  send_to_all(all, wait);
}

void Exchange::Star::hear(int rank, std::vector<int>& awaited, std::span<std::byte> all, const Wait& wait) {
  Line& its = line(rank);
  const Progress progress = its.receive();
  const bool has_come = progress == Progress::complete && std::erase(awaited, rank) == 1;
  if (has_come) take_part(rank, all);
  if (const auto note = its.take_note()) answer(rank, *note, awaited, wait);
  // A rank that has given its part says nothing but notes until it gets those of all.
  if (progress != Progress::halfway && !has_come)
    end_all(ErrorCode::peer_unavailable, fmt::format("rank {} has left", rank));
}

void Exchange::Star::take_part(int rank, std::span<std::byte> all) {
  Line& its = line(rank);
  const std::size_t length = all.size() / static_cast<std::size_t>(size());
  if (!its.is_as_expected()) {
    end_all(ErrorCode::invalid_argument,
            fmt::format("tutti::tcp::Exchange::all_gather: rank {} gives {} bytes, rank 0 {}", rank,
                        its.header().length, length));
  }
  std::ranges::copy(its.body(), all.subspan(static_cast<std::size_t>(rank) * length).begin());
  its.expect(0);
}

void Exchange::Star::answer(int rank, const std::string& note, const std::vector<int>& awaited,
                            const Wait& wait) {
  if (awaited.empty()) return;  // it is about to get what it waits for
  if (note.empty() && line(rank).send_note(silence_of(awaited)) == Progress::complete) return;
  const std::chrono::milliseconds waited =
      timeout_ - std::max(std::chrono::floor<std::chrono::milliseconds>(wait.left()), 0ms);
  end_all(ErrorCode::timeout, fmt::format("after {:.1f} s, {}, and rank {} waits no longer",
                                          in_seconds(waited), silence_of(awaited), rank));
}

void Exchange::Star::send_to_all(std::span<const std::byte> all, const Wait& wait) {
  std::vector<int> ranks;
  for (int rank = 1; rank < size(); ++rank) {
    line(rank).add(all);
    ranks.push_back(rank);
  }
  const auto is_sent = [this](int rank) {
    const Progress progress = line(rank).flush();
    if (progress == Progress::closed)
      end_all(ErrorCode::peer_unavailable, fmt::format("rank {} has left", rank));
    return progress == Progress::complete;
  };
  while (std::erase_if(ranks, is_sent), !ranks.empty()) {
    if (wait.is_over()) {
      end_all(ErrorCode::timeout, fmt::format("after {} s, rank {} has not received the result",
                                              in_seconds(timeout_), ranks.front()));
    }
    std::vector<pollfd> sockets;
    for (const int rank : ranks)
      sockets.push_back({.fd = line(rank).socket().number(), .events = POLLOUT, .revents = 0});
    wait.until_ready(sockets);
  }
}

void Exchange::Star::gather_by_rank_0(std::span<const std::byte> mine, std::span<std::byte> all) {
  const Wait wait(timeout_, watch_);
  Line& line = lines_.front();
  line.expect(all.size());
  // If rank 0 has left, its last words are still to be read.
  line.add(mine);
  const bool is_half_sent = line.flush(wait) == Progress::halfway;
  std::string news = silence_of({0});
  const Progress progress = is_half_sent ? line.receive() : receive_from_rank_0(line, wait, news);
  if (progress == Progress::closed) throw Error(ErrorCode::peer_unavailable, "rank 0 has left");
  if (progress == Progress::halfway)
    throw Error(ErrorCode::timeout, fmt::format("after {} s, {}", in_seconds(timeout_), news));
  line.rethrow();
  if (!line.is_as_expected()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("tutti::tcp::Exchange::all_gather: rank 0 gives {} bytes, rank {} {}",
                            line.header().length / static_cast<std::size_t>(size()), rank(), mine.size()));
  }
  std::ranges::copy(line.body(), all.begin());
}

}  // namespace tutti::tcp
