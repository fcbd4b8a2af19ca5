// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/visitors.hpp"

#include "collectives/bootstrap/tcp/sockets.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string_view>
#include <tuple>
#include <utility>

#include <fmt/format.h>
#include <sys/resource.h>

namespace tutti::tcp {
namespace {

/// A rank that is not held up has answered by then.
constexpr std::chrono::milliseconds while_to_answer{100};

/// Strangers leave the program most of its descriptors.
std::size_t most_strangers() {
  constexpr std::size_t most = 256;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return most;
  return std::clamp<std::size_t>(limit.rlim_cur / 4, 1, most);
}

bool is_want_of_descriptors(int error) {
  return error == EMFILE || error == ENFILE || error == ENOBUFS || error == ENOMEM;
}

bool is_ready(const Descriptor& listener) {
  pollfd one{.fd = listener.number(), .events = POLLIN, .revents = 0};
  return poll(&one, 1, 0) == 1;
}

std::string clause(std::size_t count, std::string_view what) {
  return count == 0 ? "" : fmt::format("; {} {} {}", count, count == 1 ? "connection" : "connections", what);
}

}  // namespace

Visitors::Visitors(const Key& key, bool encrypts, int ranks)
    : key_(key), encrypts_(encrypts), most_(most_strangers() + static_cast<std::size_t>(ranks)) {}

void Visitors::accept_from(const Descriptor& listener) {
  has_room_ = true;
  lacks_descriptors_ = false;
  // Not more at a time, so that others are heard even if they come without end.
  for (std::size_t i = 0; i < most_ && has_room_ && is_ready(listener); ++i) {
    if (visitors_.size() >= most_ && !dismiss_the_quietest()) {
      has_room_ = false;
      continue;
    }
    Descriptor socket = accept_at(listener);
    if (socket.is_open()) {
      visitors_.emplace_back(std::move(socket), key_, encrypts_);
    } else if (is_want_of_descriptors(errno)) {
      has_room_ = dismiss_the_quietest();
      lacks_descriptors_ = !has_room_;
    }
  }
}

void Visitors::hear(const std::function<void(Claim, Line)>& admit) {
  for (auto visitor = visitors_.begin(); visitor != visitors_.end();) {
    const Visitor::State state = visitor->advance();
    if (state == Visitor::State::undecided) {
      ++visitor;
      continue;
    }
    if (state == Visitor::State::admitted) {
      admit(visitor->claim(), Line(visitor->take_socket(), visitor->session()));
    } else {
      count(*visitor, state);
    }
    visitor = visitors_.erase(visitor);
  }
}

void Visitors::add_sockets(const Descriptor& listener, std::vector<pollfd>& sockets) const {
  if (has_room_) sockets.push_back({.fd = listener.number(), .events = POLLIN, .revents = 0});
  for (const Visitor& visitor : visitors_)
    sockets.push_back({.fd = visitor.socket().number(), .events = POLLIN, .revents = 0});
}

void Visitors::close() noexcept {
  for (Visitor& visitor : visitors_) static_cast<void>(visitor.take_socket());
}

bool Visitors::dismiss_the_quietest() {
  const auto quietest = std::ranges::min_element(visitors_, {}, [](const Visitor& visitor) {
    return std::tuple(visitor.has_spoken(), visitor.last_heard());
  });
  if (quietest == visitors_.end() ||
      quietest->last_heard() + while_to_answer > std::chrono::steady_clock::now())
    return false;
  count(*quietest, Visitor::State::undecided);
  visitors_.erase(quietest);
  return true;
}

void Visitors::count(const Visitor& visitor, Visitor::State state) {
  if (state == Visitor::State::refused) {
    ++refused_;
  } else if (state == Visitor::State::stranger) {
    ++strangers_;
  } else {
    ++(visitor.has_spoken() ? unfinished_ : silent_);
  }
}

std::string Visitors::account() const {
  const auto speaking = static_cast<std::size_t>(std::ranges::count_if(visitors_, &Visitor::has_spoken));
  return clause(refused_, "had another secret (TUTTI_SECRET) or job") +
         clause(strangers_, "did not speak tutti's protocol") +
         clause(silent_ + visitors_.size() - speaking, "said nothing") +
         clause(unfinished_ + speaking, "stopped after the greeting") +
         (!lacks_descriptors_ ? ""
                              : "; this process has no descriptor left for another connection (ulimit -n)");
}

}  // namespace tutti::tcp
