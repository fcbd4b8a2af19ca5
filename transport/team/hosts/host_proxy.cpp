// SPDX-License-Identifier: Apache-2.0
#include "transport/team/hosts/host_proxy.hpp"

#include "transport/team/hosts/connecting_network.hpp"
#include "transport/team/hosts/host_proxy_messages.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

using Clock = std::chrono::steady_clock;

/// The time for which the thread polls without pause after an event, and its pauses afterwards: each is twice
/// as long as the one before.
constexpr std::chrono::microseconds patience{50};
constexpr std::chrono::microseconds patience_when_busy{2000};  ///< messages are half-way
constexpr std::chrono::microseconds first_pause{20};
constexpr std::chrono::microseconds longest_pause_in_call{100};
constexpr std::chrono::microseconds longest_pause{2000};
/// The time to wait for a thread that may be on its way back from the network.
constexpr std::chrono::seconds longest_way_back{2};
/// Small records travel together; one that makes the message longer than this is its last.
constexpr std::size_t full_message = 64 << 10U;

constexpr int nobody = -1;  ///< receives what is for this host

/// Returns, by host, the rank to send to.
std::vector<int> receivers_of(const Membership& membership) {
  std::vector<int> receivers;
  for (std::size_t host = 0; host < membership.hosts().size(); ++host) {
    const bool is_this_host = host == membership.this_host();
    receivers.push_back(is_this_host ? nobody
                                     : static_cast<int>(membership.receiver(membership.rank(), host)));
  }
  return receivers;
}

}  // namespace

HostProxy::HostProxy(const Membership& membership, const SharedState& state, Mirror& mirror,
                     const Progress& progress, Abort& abort, LocalNews& news,
                     std::unique_ptr<Network> network)
    : membership_(membership),
      state_(state),
      mirror_(mirror),
      progress_(progress),
      abort_(abort),
      news_(news),
      network_(std::move(network)),
      receivers_(receivers_of(membership)),
      expected_(membership.local_count()) {}

void connect_to_receivers(Network& network, const Membership& membership) {
  auto* const connects = dynamic_cast<ConnectingNetwork*>(&network);
  if (connects == nullptr) return;
  std::vector<int> targets = receivers_of(membership);
  std::erase(targets, nobody);
  connects->reach(targets);
}

void HostProxy::start() {
  news_.listen();
  // A network may write to the socket of a process that is gone: that fails, and does not end this one.
  thread_ = backend::Thread(
      {.name = "tutti-proxy", .purpose = "that carries messages between hosts"}, [this] { run(); },
      [this](const backend::Escaped& escaped) { give_up(escaped); });
}

HostProxy::~HostProxy() {
  static_cast<void>(stop());
}

bool HostProxy::stop() noexcept {
  if (!thread_.joinable()) return place_.load() != Place::left_there;
  is_stopping_.store(true);
  news_.announce();
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
auto HostProxy::in_network(const Call& call) {
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

void HostProxy::expect(std::size_t member, std::uint64_t round, std::uint64_t bytes,
                       std::span<const std::uint32_t> readers) {
  Parcel parcel{static_cast<std::uint32_t>(member), round, bytes, {}};
  for (const std::uint32_t reader : readers) {
    if (!membership_.is_on_this_host(membership_.rank_of_member()[reader])) parcel.readers.push_back(reader);
  }
  if (!parcel.readers.empty()) {
    const std::lock_guard lock(mutex_);
    expected_[member - membership_.first_local()].push_back(std::move(parcel));
  }
  news_.announce();
}

void HostProxy::give_up(const backend::Escaped& escaped) noexcept {
  std::string_view cannot = "has lost its connection to other hosts";
  std::string with_call;
  try {
    if (const auto sequence = progress_.oldest_under_way()) {
      with_call = fmt::format("in {} {}", state_.status(membership_.rank()).call_in_words(*sequence), cannot);
      cannot = with_call;
    }
  } catch (const std::exception&) {
    // Memory is short: the reason is what matters.
  }
  abort_.fail(cannot, escaped);
  is_broken_ = true;
  has_delivered_ = true;
  is_over_ = true;
}

void HostProxy::run() {
  try {
    work();
  } catch (const LeftThere&) {
    return;
  }
  is_over_ = true;
}

void HostProxy::work() {
  auto latest = Clock::now();  // when something happened
  auto pause = first_pause;
  while (!is_stopping_.load()) {
    news_.begin_to_look();
    bool has_worked = false;
    const auto next = [this] {
      state_.status(membership_.rank()).carried_at.store(RankStatus::now());
      return in_network([this] { return network_->receive(); });
    };
    while (const auto message = next()) {
      mirror_.deliver(*message);
      has_worked = true;
    }
    has_worked |= send();
    const bool is_busy = in_network([this] { return network_->is_busy(); });
    if (mirror_.has_sent_all() && in_network([this] { return network_->is_delivered(); }))
      has_delivered_ = true;
    const auto now = Clock::now();
    if (has_worked) {
      latest = now;
      pause = first_pause;
    }
    if (now - latest < (is_busy ? patience_when_busy : patience)) {
      std::this_thread::yield();
      continue;
    }
    const bool is_idle = !progress_.has_calls_under_way();
    if (news_.wait_for(pause)) {
      latest = Clock::now();
      pause = first_pause;
    } else {
      pause = std::min(2 * pause, is_idle ? longest_pause : longest_pause_in_call);
    }
  }
}

bool HostProxy::send() {
  if (mirror_.has_sent_all()) return false;  // those who have heard of it may be gone
  bool has_sent = false;
  const auto send_to = [&](std::size_t host, MessageWriter& message) {
    in_network([&] {
      network_->send(receivers_[host], message.take());
      return true;
    });
    has_sent = true;
  };
  // Before the calls: those whose bytes are there have been announced.
  const std::vector<Parcel> parcels = parcels_ready();
  mirror_.begin_news();
  std::vector<MessageWriter> messages(receivers_.size());
  for (std::size_t host = 0; host < receivers_.size(); ++host) {
    MessageWriter& message = messages[host];
    if (receivers_[host] < 0) continue;
    mirror_.add_link_news(message, host, [&] {
      if (message.size() >= full_message) send_to(host, message);
    });
  }
  MessageWriter news;
  mirror_.add_news(news);
  const std::vector<std::byte> common = news.take();
  for (std::size_t host = 0; host < receivers_.size(); ++host) {
    if (receivers_[host] < 0) continue;
    MessageWriter& message = messages[host];
    message.add_bytes(common);
    for (const Parcel& parcel : parcels) {
      std::vector<std::uint32_t> readers;
      for (const std::uint32_t reader : parcel.readers) {
        if (membership_.host_of(membership_.rank_of_member()[reader]) == host) readers.push_back(reader);
      }
      if (readers.empty()) continue;
      mirror_.add_parcel(message, parcel, readers);
      if (message.size() >= full_message) send_to(host, message);
    }
    if (!message.empty()) send_to(host, message);
  }
  return has_sent;
}

std::vector<Parcel> HostProxy::parcels_ready() {
  std::vector<Parcel> ready;
  const std::lock_guard lock(mutex_);
  for (std::deque<Parcel>& queue : expected_) {
    while (!queue.empty() && mirror_.is_ready(queue.front())) {
      ready.push_back(std::move(queue.front()));
      queue.pop_front();
    }
  }
  return ready;
}

}  // namespace tutti::transport::team
