// SPDX-License-Identifier: Apache-2.0
#include "transport/team/courier.hpp"

#include "backend/team_round.hpp"
#include "transport/team/courier_messages.hpp"
#include "transport/team/team.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>
#include <utility>

namespace tutti::transport::ranks {
namespace {

using Clock = std::chrono::steady_clock;

/// How long the thread looks without pause after something has happened, and its pauses afterwards: each is
/// twice as long as the one before.
constexpr std::chrono::microseconds patience{50};
constexpr std::chrono::microseconds patience_when_busy{2000};  ///< messages are half-way
constexpr std::chrono::microseconds first_pause{20};
constexpr std::chrono::microseconds longest_pause_in_call{100};
constexpr std::chrono::microseconds longest_pause{2000};
/// How long the thread is waited for where it may be on its way back from the network.
constexpr std::chrono::seconds longest_way_back{2};
/// Small records travel together; one that makes the message longer than this is its last.
constexpr std::size_t full_message = 64 << 10U;

}  // namespace

Courier::Courier(Team& team, std::unique_ptr<Network> network)
    : team_(team),
      network_(std::move(network)),
      progress_(team.local_count()),
      expected_(team.local_count()) {
  const auto self = static_cast<std::size_t>(team.rank());
  for (std::size_t host = 0; host < team.host_count(); ++host) {
    receivers_.push_back(team.is_here(team.carrier(self, host)) ? -1
                                                                : static_cast<int>(team.carrier(self, host)));
  }
  for (std::uint32_t member = 0; member < team.member_count(); ++member) {
    if (team.is_here(team.rank_of_member()[member])) members_here_.push_back(member);
  }
}

void Courier::start() {
  // A network may write to the socket of a process that is gone: that fails, and does not end this one.
  thread_ = backend::Thread(
      {.name = "tutti-courier", .purpose = "that carries messages between hosts"}, [this] { run(); },
      [this](const backend::Escaped& escaped) { give_up(escaped); });
}

Courier::~Courier() {
  static_cast<void>(stop());
}

bool Courier::stop() noexcept {
  if (!thread_.joinable()) return place_.load() != Place::left_there;
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  woken_.notify_one();
  const auto deadline = Clock::now() + longest_way_back;
  while (!is_over_.load()) {
    Place expected = Place::in_network;
    if (Clock::now() >= deadline && place_.compare_exchange_strong(expected, Place::left_there)) {
      thread_.detach();
      return false;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
  thread_.join();
  return true;
}

template <class Call>
auto Courier::in_network(const Call& call) {
  std::optional<decltype(call())> result;
  std::exception_ptr failure;
  place_.store(Place::in_network);
  try {
    result.emplace(call());
  } catch (...) {
    failure = std::current_exception();
  }
  Place expected = Place::in_network;
  if (!place_.compare_exchange_strong(expected, Place::here)) throw LeftThere();
  if (failure) std::rethrow_exception(failure);
  return *std::move(result);
}

void Courier::wake() noexcept {
  {
    const std::lock_guard lock(mutex_);
    is_woken_ = true;
  }
  woken_.notify_one();
}

void Courier::expect(std::size_t member, std::uint32_t round, std::uint64_t bytes,
                     std::span<const std::uint32_t> readers) {
  Parcel parcel{static_cast<std::uint32_t>(member), round, bytes, {}};
  for (const std::uint32_t reader : readers) {
    if (!team_.is_here(team_.rank_of_member()[reader])) parcel.readers.push_back(reader);
  }
  const bool has_readers = !parcel.readers.empty();
  {
    const std::lock_guard lock(mutex_);
    if (has_readers) expected_[member - team_.first_local()].push_back(std::move(parcel));
    is_woken_ = true;
  }
  woken_.notify_one();
}

bool Courier::has_carried(Mailbox::Kind kind) const noexcept {
  return mail_[kind].written.load() ==
         team_.mailbox(static_cast<std::size_t>(team_.rank()), kind).written.load();
}

void Courier::give_up(const backend::Escaped& escaped) noexcept {
  team_.fail("has lost the other hosts", escaped);
  is_broken_ = true;
  has_delivered_ = true;
  is_over_ = true;
}

void Courier::run() {
  try {
    work();
  } catch (const LeftThere&) {
    return;
  }
  is_over_ = true;
}

void Courier::work() {
  auto latest = Clock::now();  // when something happened
  auto pause = first_pause;
  std::unique_lock lock(mutex_);
  while (!stops_) {
    is_woken_ = false;
    lock.unlock();
    bool has_worked = false;
    const auto next = [this] {
      team_.board(static_cast<std::size_t>(team_.rank())).carried_at.store(RankBoard::now());
      return in_network([this] { return network_->receive(); });
    };
    while (const auto message = next()) {
      deliver(*message);
      has_worked = true;
    }
    has_worked |= send();
    const bool is_busy = in_network([this] { return network_->is_busy(); });
    if (state_ == RankBoard::left && in_network([this] { return network_->is_delivered(); }))
      has_delivered_ = true;
    const auto now = Clock::now();
    if (has_worked) {
      latest = now;
      pause = first_pause;
    }
    if (now - latest < (is_busy ? patience_when_busy : patience)) {
      std::this_thread::yield();
      lock.lock();
      continue;
    }
    const bool is_idle = !team_.has_calls_under_way();
    lock.lock();
    woken_.wait_for(lock, pause, [this] { return stops_ || is_woken_; });
    if (is_woken_) {
      latest = Clock::now();
      pause = first_pause;
    } else {
      pause = std::min(2 * pause, is_idle ? longest_pause : longest_pause_in_call);
    }
  }
}

bool Courier::send() {
  if (state_ == RankBoard::left) return false;  // those who have heard of it may be gone
  // Before the calls: those whose bytes are there have been announced.
  const std::vector<Parcel> parcels = parcels_ready();
  Writer news;
  add_news(news);
  if (news.empty() && parcels.empty()) return false;
  const std::vector<std::byte> common = news.take();
  for (std::size_t host = 0; host < receivers_.size(); ++host) {
    if (receivers_[host] < 0) continue;
    const auto send_to = [&](Writer& message) {
      return in_network([&] {
        network_->send(receivers_[host], message.take());
        return true;
      });
    };
    Writer message;
    message.add_bytes(common);
    for (const Parcel& parcel : parcels) {
      std::vector<std::uint32_t> readers;
      for (const std::uint32_t reader : parcel.readers) {
        if (team_.host_of(team_.rank_of_member()[reader]) == host) readers.push_back(reader);
      }
      if (readers.empty()) continue;
      add_parcel(message, parcel, readers);
      if (message.size() >= full_message) send_to(message);
    }
    if (!message.empty()) send_to(message);
  }
  return true;
}

std::vector<Courier::Parcel> Courier::parcels_ready() {
  std::vector<Parcel> ready;
  const backend::TeamWindowLayout& layout = team_.windows().layout();
  const std::lock_guard lock(mutex_);
  for (std::deque<Parcel>& queue : expected_) {
    while (!queue.empty()) {
      const Parcel& next = queue.front();
      const backend::SharedFlag& flag =
          flag_at(team_.host_window(next.readers.back()), layout.ready_offset(next.member));
      if (!backend::has_reached(flag.value.load(std::memory_order_acquire), next.round)) break;
      ready.push_back(std::move(queue.front()));
      queue.pop_front();
    }
  }
  return ready;
}

}  // namespace tutti::transport::ranks
