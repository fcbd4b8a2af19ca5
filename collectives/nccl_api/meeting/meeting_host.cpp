// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/meeting/meeting_host.hpp"

#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/meeting/held_meeting.hpp"
#include "settings/log.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <climits>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <poll.h>
#include <sys/random.h>

namespace tutti::nccl_api {
namespace {

[[noreturn]] void fail_with_errno(const char* what) {
  const int error = errno;
  throw Error(ErrorCode::transport_failure,
              fmt::format("a meeting of ranks cannot be held: {} failed: {}", what, strerror(error)), error);
}

/// Returns the address of the interface as a meeting's, if it has one of the family.
std::optional<MeetingAddress> address_of(const ifaddrs& interface) {
  if (interface.ifa_addr == nullptr || interface.ifa_addr->sa_family != AF_INET) return std::nullopt;
  MeetingAddress address{.mark = meeting_mark};
  sockaddr_in number{};
  std::memcpy(&number, interface.ifa_addr, sizeof(number));
  std::memcpy(address.address.data(), &number.sin_addr, sizeof(number.sin_addr));
  return address;
}

/// Returns whether `NCCL_SOCKET_IFNAME` allows the interface: a list of beginnings of names, "=" before whole
/// names, "^" before what is not allowed.
bool is_allowed(std::string_view name, std::string_view list) {
  const bool is_excluded = list.starts_with('^');
  if (is_excluded) list.remove_prefix(1);
  const bool is_whole = list.starts_with('=');
  if (is_whole) list.remove_prefix(1);
  bool is_listed = false;
  while (!list.empty()) {
    const std::string_view entry = list.substr(0, list.find(','));
    list.remove_prefix(std::min(list.size(), entry.size() + 1));
    is_listed = is_listed || (is_whole ? name == entry : name.starts_with(entry));
  }
  return is_listed != is_excluded;
}

/// Returns the address of the first interface that is up and leads to other hosts, else loopback's.
MeetingAddress own_address() {
  MeetingAddress loopback{.mark = meeting_mark};
  const in_addr number{htonl(INADDR_LOOPBACK)};
  std::memcpy(loopback.address.data(), &number, sizeof(number));
  const char* const wanted = std::getenv("NCCL_SOCKET_IFNAME");
  const bool has_wish = wanted != nullptr && *wanted != '\0';
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return loopback;
  std::optional<MeetingAddress> found;
  for (const ifaddrs* one = all; one != nullptr && !found; one = one->ifa_next) {
    const bool is_up = (one->ifa_flags & IFF_UP) != 0;
    const bool is_usable =
        has_wish ? is_allowed(one->ifa_name, wanted) : (one->ifa_flags & IFF_LOOPBACK) == 0;
    if (is_up && is_usable) found = address_of(*one);
  }
  freeifaddrs(all);
  return found.value_or(loopback);
}

Token new_token() {
  Token token{};
  if (getrandom(token.data(), token.size(), 0) != static_cast<ssize_t>(token.size()))
    fail_with_errno("getrandom");
  return token;
}

/// The process's host, once it listens.
std::atomic<MeetingHost*> listening{nullptr};

}  // namespace

MeetingHost& MeetingHost::get() {
  // Never destroyed: its thread serves until the process ends.
  static MeetingHost& host = *new MeetingHost();
  return host;
}

MeetingHost::MeetingHost() : address_(own_address()) {
  note_use();
  listener_ = Descriptor(::socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!listener_.is_open()) fail_with_errno("socket");
  SocketAddress address = socket_address(address_);
  if (bind(listener_.number(), address.get(), address.length) != 0) fail_with_errno("bind");
  if (listen(listener_.number(), SOMAXCONN) != 0) fail_with_errno("listen");
  if (getsockname(listener_.number(), address.get(), &address.length) != 0) fail_with_errno("getsockname");
  sockaddr_in bound{};
  std::memcpy(&bound, &address.storage, sizeof(bound));
  address_.port = bound.sin_port;
  thread_ = backend::Thread(
      {.name = "tutti-meetings", .purpose = "to hold meetings of ranks"}, [this] { run(); },
      [](const backend::Escaped& escaped) { log_warning(escaped.what); });
  thread_.detach();
  listening.store(this);
}

MeetingAddress MeetingHost::announce(int members) {
  MeetingAddress address = address_;
  address.token = new_token();
  const std::lock_guard lock(mutex_);
  meetings_.emplace(address.token, std::make_unique<HeldMeeting>(members));
  return address;
}

void MeetingHost::withdraw(const MeetingAddress& address) {
  MeetingHost* const host = listening.load();
  if (host == nullptr) return;
  const std::lock_guard lock(host->mutex_);
  const auto found = host->meetings_.find(address.token);
  if (found != host->meetings_.end() && !found->second->has_begun()) host->meetings_.erase(found);
}

void MeetingHost::run() {
  std::vector<pollfd> watched;
  for (;;) {
    watched.assign(1, {.fd = listener_.number(), .events = POLLIN, .revents = 0});
    for (const auto& [socket, visitor] : visitors_) {
      const short events = visitor->is_sending() ? POLLIN | POLLOUT : POLLIN;
      watched.push_back({.fd = socket, .events = events, .revents = 0});
    }
    if (poll(watched.data(), watched.size(), patience_ms()) < 0 && errno != EINTR) return;
    for (const pollfd& one : watched) {
      if (one.revents == 0) continue;
      if (one.fd == listener_.number()) {
        admit();
      } else {
        serve(*visitors_.at(one.fd));
      }
    }
    end_late_meetings();
    drop_ended();
  }
}

void MeetingHost::admit() {
  constexpr std::size_t most = 4096;
  Descriptor socket(accept4(listener_.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.is_open() || visitors_.size() >= most) return;
  const int number = socket.number();
  visitors_.emplace(number, std::make_unique<Visitor>(std::move(socket)));
}

void MeetingHost::serve(Visitor& visitor) {
  if (visitor.is_over) return;
  if (!visitor.receive()) {
    visitor.is_over = true;
    if (visitor.meeting != nullptr) visitor.meeting->lose(visitor);
    return;
  }
  if (!visitor.has_message()) return;
  if (visitor.meeting == nullptr) sort_in(visitor);
  if (visitor.meeting != nullptr) visitor.meeting->advance();
}

void MeetingHost::sort_in(Visitor& visitor) {
  Arrival arrival;
  if (visitor.message().size() != sizeof(arrival)) {
    visitor.is_over = true;
    return;
  }
  std::memcpy(&arrival, visitor.message().data(), sizeof(arrival));
  const std::lock_guard lock(mutex_);
  const auto found = meetings_.find(arrival.token);
  if (found != meetings_.end()) return found->second->take(visitor, arrival);
  constexpr std::string_view sentence =
      "the unique id is not known there, or its communicator has been made already, or given up";
  visitor.answer(ncclInvalidArgument, std::as_bytes(std::span(sentence)));
  visitor.is_over = true;
}

void MeetingHost::end_late_meetings() {
  const auto now = Visitor::Clock::now();
  const std::lock_guard lock(mutex_);
  for (const auto& [token, meeting] : meetings_) meeting->end_if_late(now);
}

int MeetingHost::patience_ms() {
  auto next = Visitor::Clock::time_point::max();
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [token, meeting] : meetings_) next = std::min(next, meeting->next_deadline());
  }
  if (next == Visitor::Clock::time_point::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(next - Visitor::Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, INT_MAX));
}

void MeetingHost::drop_ended() {
  std::erase_if(visitors_, [](const auto& entry) {
    Visitor& visitor = *entry.second;
    const bool is_reached = visitor.send();
    if (!is_reached && !visitor.is_over && visitor.meeting != nullptr) visitor.meeting->lose(visitor);
    return !is_reached || (visitor.is_over && !visitor.is_sending());
  });
  const std::lock_guard lock(mutex_);
  std::erase_if(meetings_, [](const auto& entry) { return entry.second->is_over(); });
}

}  // namespace tutti::nccl_api
