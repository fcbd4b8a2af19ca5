// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/meeting/held_meeting.hpp"

#include "base/ranks_in_words.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <type_traits>

#include <fmt/format.h>

namespace tutti::nccl_api {
namespace {

template <class T>
  requires std::is_trivially_copyable_v<T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text));
}

bool would_block() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR;
}

}  // namespace

bool Visitor::receive() {
  std::array<std::byte, 16384> piece{};
  for (;;) {
    const ssize_t count = recv(number(), piece.data(), piece.size(), 0);
    if (count == 0) return false;
    if (count < 0) return would_block();
    const bool had_message = has_message();
    in_.insert(in_.end(), piece.begin(), piece.begin() + count);
    if (in_.size() < sizeof(MeetingMessage)) continue;
    const std::uint64_t longest = meeting == nullptr ? sizeof(Arrival) : longest_message;
    if (head().bytes > longest || in_.size() > sizeof(MeetingMessage) + head().bytes) return false;
    if (!had_message && has_message())
      deadline_ = Clock::now() +
                  std::chrono::milliseconds(std::clamp<std::int64_t>(head().timeout_ms, 1, 31'536'000'000));
  }
}

MeetingMessage Visitor::head() const noexcept {
  MeetingMessage head;
  std::memcpy(&head, in_.data(), sizeof(head));
  return head;
}

bool Visitor::has_message() const noexcept {
  return in_.size() >= sizeof(MeetingMessage) && in_.size() == sizeof(MeetingMessage) + head().bytes;
}

std::span<const std::byte> Visitor::message() const noexcept {
  return std::span(in_).subspan(sizeof(MeetingMessage));
}

void Visitor::answer(ncclResult_t result, std::span<const std::byte> bytes) {
  in_.clear();
  deadline_ = Clock::time_point::max();
  const MeetingAnswer answer{.bytes = bytes.size(), .result = result};
  const std::span<const std::byte> head = bytes_of(answer);
  out_.insert(out_.end(), head.begin(), head.end());
  out_.insert(out_.end(), bytes.begin(), bytes.end());
}

bool Visitor::send() {
  while (is_sending()) {
    const ssize_t count = ::send(number(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (count < 0) return would_block();
    sent_ += static_cast<std::size_t>(count);
  }
  out_.clear();
  sent_ = 0;
  return true;
}

std::string HeldMeeting::reason_against(const Arrival& arrival) const {
  const Party& party = arrival.party;
  if (is_complete_) return "the communicator of the unique id has been made already";
  if (party.first < 0 || party.count < 1 || party.first > arrival.ranks - party.count)
    return fmt::format("ranks {} to {} have come, expected some of 0 to {}", party.first,
                       party.first + party.count - 1, arrival.ranks - 1);
  if ((arrival.purpose == Purpose::grow) != (members_ > 0))
    return members_ > 0 ? "the unique id is one of ncclCommGetUniqueId, expected a call of ncclCommGrow"
                        : "the unique id is one of ncclGetUniqueId, expected one of ncclCommGetUniqueId";
  if (std::string reason = reason_against_growth(arrival); members_ > 0 && !reason.empty()) return reason;
  if (!visitors_.empty() && arrival.ranks != ranks_)
    return fmt::format("rank {} has come for a communicator of {} ranks, and rank {} for one of {}",
                       party.first, arrival.ranks, visitors_.front()->party.first, ranks_);
  for (const Visitor* const other : visitors_) {
    const Party& there = other->party;
    if (party.first < there.first + there.count && there.first < party.first + party.count)
      return fmt::format("rank {} has come twice", std::max(party.first, there.first));
  }
  return {};
}

std::string HeldMeeting::reason_against_growth(const Arrival& arrival) const {
  const Party& party = arrival.party;
  if (arrival.ranks <= members_)
    return fmt::format("nRanks is {}, expected more than the {} ranks that the communicator has",
                       arrival.ranks, members_);
  const int members = std::clamp(members_ - party.first, 0, party.count);
  if (party.members < members)
    return fmt::format("a new rank asks for number {}, which the communicator has, expected {} to {}",
                       party.first + party.members, members_, arrival.ranks - 1);
  if (party.members > members)
    return fmt::format("the unique id is of another communicator, which has {} ranks", members_);
  return {};
}

void HeldMeeting::take(Visitor& visitor, const Arrival& arrival) {
  if (arrival.purpose == Purpose::call_off) {
    if (!is_complete_)
      fail(ncclRemoteError, members_ > 0
                                ? "the ranks of the communicator have given it up to let new ones in"
                                : "another rank that was to become part of the communicator has failed");
    visitor.answer(ncclSuccess, {});
    visitor.is_over = true;
    return;
  }
  if (const std::string reason = reason_against(arrival); !reason.empty()) {
    visitor.answer(ncclInvalidArgument, bytes_of(reason));
    visitor.is_over = true;
    return;
  }
  ranks_ = arrival.ranks;
  visitor.party = arrival.party;
  visitor.meeting = this;
  visitors_.insert(std::ranges::upper_bound(visitors_, visitor.party.first, {},
                                            [](const Visitor* other) { return other->party.first; }),
                   &visitor);
}

void HeldMeeting::advance() {
  if (is_over_ || visitors_.empty()) return;
  // Each leaves when it has what it wants; if others wait for it, it is missed.
  if (left_ && is_waiting())
    return fail(ncclRemoteError, fmt::format("the process of rank {} has left", *left_));
  if (!std::ranges::all_of(visitors_, &Visitor::has_message)) return;
  if (is_complete_) return answer_parts();
  int come = 0;
  for (const Visitor* const visitor : visitors_) come += visitor->party.count;
  if (come == ranks_) answer_arrivals();
}

void HeldMeeting::answer_arrivals() {
  is_complete_ = true;
  std::vector<Party> parties;
  for (const Visitor* const visitor : visitors_) parties.push_back(visitor->party);
  for (Visitor* const visitor : visitors_) visitor->answer(ncclSuccess, std::as_bytes(std::span(parties)));
}

void HeldMeeting::answer_parts() {
  std::vector<std::byte> all;
  for (const Visitor* const visitor : visitors_) {
    const std::span<const std::byte> part = visitor->message();
    if (part.size() != visitors_.front()->message().size())
      return fail(ncclInternalError,
                  fmt::format("rank {} exchanges {} bytes, and rank {} {}", visitors_.front()->party.first,
                              visitors_.front()->message().size(), visitor->party.first, part.size()));
    all.insert(all.end(), part.begin(), part.end());
  }
  for (Visitor* const visitor : visitors_) visitor->answer(ncclSuccess, all);
}

void HeldMeeting::fail(ncclResult_t result, std::string_view sentence) {
  is_over_ = true;
  for (Visitor* const visitor : visitors_) {
    visitor->answer(result, bytes_of(sentence));
    visitor->is_over = true;
  }
}

bool HeldMeeting::is_waiting() const noexcept {
  return std::ranges::any_of(visitors_, &Visitor::has_message);
}

Visitor::Clock::time_point HeldMeeting::next_deadline() const noexcept {
  auto next = Visitor::Clock::time_point::max();
  for (const Visitor* const visitor : visitors_) next = std::min(next, visitor->deadline());
  return next;
}

void HeldMeeting::end_if_late(Visitor::Clock::time_point now) {
  if (is_over_ || next_deadline() > now) return;
  fail(ncclTimeout, fmt::format("{} {} not come in time", missing_ranks(), is_complete_ ? "did" : "have"));
}

std::string HeldMeeting::missing_ranks() const {
  std::vector<bool> is_there(static_cast<std::size_t>(ranks_), false);
  for (const Visitor* const visitor : visitors_) {
    if (!visitor->has_message()) continue;
    std::fill_n(is_there.begin() + visitor->party.first, visitor->party.count, true);
  }
  std::vector<int> missing;
  for (std::size_t rank = 0; rank < is_there.size(); ++rank) {
    if (!is_there[rank]) missing.push_back(static_cast<int>(rank));
  }
  return ranks_in_words(missing);
}

void HeldMeeting::lose(Visitor& visitor) {
  std::erase(visitors_, &visitor);
  visitor.meeting = nullptr;
  if (is_over_) return;
  if (!is_complete_ && visitor.party.members > 0)
    return fail(ncclRemoteError, fmt::format("the process of rank {} has left", visitor.party.first));
  if (!is_complete_) return;  // another process may take the place until all have come
  left_ = visitor.party.first;
  advance();
  if (visitors_.empty()) is_over_ = true;
}

}  // namespace tutti::nccl_api
