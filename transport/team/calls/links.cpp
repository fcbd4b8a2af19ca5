// SPDX-License-Identifier: Apache-2.0
#include "transport/team/calls/links.hpp"

#include "settings/log.hpp"
#include "transport/team/lateness/late_warnings.hpp"
#include "transport/team/progress/link_comparison.hpp"

#include <algorithm>
#include <string_view>

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

LinkSignature signature_of(const LinkHalf& half, bool is_captured) {
  return {.elements = half.elements, .dtype = half.dtype, .is_captured = is_captured};
}

}  // namespace

Links::Links(const Membership& membership, const SharedState& state, Progress& progress,
             const FailureDetector& failure_detector, const FlightRecord& record, Waiting& waiting,
             Abort& abort, CallLog& calls)
    : membership_(membership),
      state_(state),
      progress_(progress),
      failure_detector_(failure_detector),
      record_(record),
      waiting_(waiting),
      abort_(abort),
      calls_(calls),
      sides_(2 * membership.local_count() * membership.member_count()) {}

std::size_t Links::index(const LinkHalf& half) const noexcept {
  const std::size_t local = half.member - membership_.first_local();
  return 2 * (local * membership_.member_count() + half.peer) + (half.is_sent ? 0 : 1);
}

LinkLog& Links::own_log(const LinkHalf& half) const noexcept {
  return half.is_sent ? state_.link_log(half.member, half.peer, SharedState::LinkEnd::sender)
                      : state_.link_log(half.peer, half.member, SharedState::LinkEnd::receiver);
}

LinkLog& Links::peer_log(const LinkHalf& half) const noexcept {
  return half.is_sent ? state_.link_log(half.member, half.peer, SharedState::LinkEnd::receiver)
                      : state_.link_log(half.peer, half.member, SharedState::LinkEnd::sender);
}

LinkPlace Links::place_of(const Message& message) noexcept {
  const LinkHalf& half = message.half;
  return {.from = half.is_sent ? half.member : half.peer,
          .to = half.is_sent ? half.peer : half.member,
          .number = message.number};
}

std::uint64_t Links::post(const std::vector<LinkHalf>& halves, bool is_captured) {
  abort_.require_running();
  Batch batch{.after_call = calls_.last(),
              .posted_at = RankStatus::now(),
              .patience = waiting_.patience().of_calling_thread()};
  batch.messages.reserve(halves.size());
  {
    const std::lock_guard lock(mutex_);
    for (const LinkHalf& half : halves) {
      Side& side = sides_[index(half)];
      batch.messages.push_back({half, ++side.made, is_captured});
      own_log(half).set_made(side.made);
      side.unannounced.push_back(batch.messages.back());
    }
    if (!halves.empty()) note_last(halves.back(), batch.after_call);
    if (is_captured) {
      calls_.note_capture();
    } else {
      batch.number = ++last_batch_;
      progress_.await_batch(batch.number);
    }
    for (const LinkHalf& half : halves) announce(sides_[index(half)]);
    // What is sent may fit into its window, and then nothing waits for the peer.
    look_for_ranks_that_left(batch, known_to_have_left(batch));
    if (!is_captured) under_way_.push_back(std::move(batch));
  }
  abort_.require_running();
  return is_captured ? 0 : last_batch_;
}

void Links::note_last(const LinkHalf& half, std::uint64_t after_call) const noexcept {
  const LastMessage last{
      .after_call = static_cast<std::uint32_t>(after_call & LastMessage::call_mask),
      .from = static_cast<std::uint16_t>(half.is_sent ? half.member : half.peer),
      .to = static_cast<std::uint16_t>(half.is_sent ? half.peer : half.member),
      .is_sent = half.is_sent,
  };
  state_.status(membership_.rank()).last_message.store(last.word());
}

void Links::announce() {
  const std::lock_guard lock(mutex_);
  for (Side& side : sides_) announce(side);
}

void Links::announce(Side& side) {
  while (!side.unannounced.empty()) {
    const Message& message = side.unannounced.front();
    LinkLog& log = own_log(message.half);
    if (!log.has_room_beside(peer_log(message.half))) return;
    log.post(signature_of(message.half, message.is_captured));
    compare_sides(membership_, state_, abort_, place_of(message),
                  message.half.is_sent ? SharedState::LinkEnd::sender : SharedState::LinkEnd::receiver);
    side.unannounced.pop_front();
  }
}

void Links::look_around(bool may_judge) {
  const std::lock_guard lock(mutex_);
  for (Side& side : sides_) announce(side);
  const std::uint64_t completed = progress_.completed_batches();
  while (!under_way_.empty() && under_way_.front().number <= completed) {
    if (has_warned_) {
      log_warning(
          fmt::format("Communicator: {} goes on after {} ms", in_words(under_way_.front().messages[0]),
                      whole_ms(std::chrono::nanoseconds(RankStatus::now() - under_way_.front().posted_at))));
    }
    for (const Message& message : under_way_.front().messages) {
      if (!message.half.is_sent) own_log(message.half).set_received(message.number);
    }
    under_way_.pop_front();
    begins_at_ = RankStatus::now();
    has_warned_ = false;
    next_warning_ = {};
  }
  if (under_way_.empty()) return;
  look_for_ranks_that_left();
  const Batch& batch = under_way_.front();
  if (const auto call = progress_.oldest_under_way(); call && *call <= batch.after_call) {
    // The watchdog reports a rank that is late with that call.
    begins_at_ = RankStatus::now();
    return;
  }
  if (may_judge)
    judge(batch, std::chrono::nanoseconds(RankStatus::now() - std::max(batch.posted_at, begins_at_)));
}

bool Links::is_waiting_before(std::uint64_t sequence) {
  const std::lock_guard lock(mutex_);
  return !under_way_.empty() && under_way_.front().after_call < sequence;
}

bool Links::has_left(std::size_t rank) const noexcept {
  return state_.status(rank).state.load() >= RankStatus::leaving || failure_detector_.is_gone(rank);
}

std::vector<bool> Links::known_to_have_left(const Batch& batch) const {
  const auto is_missing_one = [this](const Message& message) { return is_missing(message); };
  if (std::ranges::none_of(batch.messages, is_missing_one)) return {};
  std::vector<bool> left(membership_.rank_count());
  std::vector<bool> is_asked(membership_.rank_count());
  for (const Message& message : batch.messages) {
    if (!message.half.is_sent && is_missing(message)) is_asked[peer_rank(message.half)] = true;
  }
  for (const Message& message : batch.messages) {
    const std::size_t rank = peer_rank(message.half);
    if (left[rank] || !is_missing(message)) continue;
    left[rank] = state_.status(rank).state.load() >= RankStatus::leaving;
    if (left[rank] || is_asked[rank]) continue;
    is_asked[rank] = true;
    left[rank] = failure_detector_.is_gone(rank);
  }
  return left;
}

std::vector<bool> Links::ranks_that_left() const {
  std::vector<bool> left(membership_.rank_count());
  for (std::size_t rank = 0; rank < left.size(); ++rank) left[rank] = has_left(rank);
  return left;
}

void Links::look_for_ranks_that_left() {
  const std::vector<bool> left = ranks_that_left();
  if (std::ranges::find(left, true) == left.end()) return;
  for (const Batch& batch : under_way_) look_for_ranks_that_left(batch, left);
}

void Links::look_for_ranks_that_left(const Batch& batch, const std::vector<bool>& left) {
  for (const Message& message : batch.messages) {
    const std::size_t rank = peer_rank(message.half);
    if (!is_missing(message) || !left[rank]) continue;
    if (!is_missing(message)) continue;  // asked again when it has left: what it has done is done
    waiting_.look_for_lost_ranks();      // it may have left because of one
    abort_.set(ErrorCode::peer_unavailable,
               fmt::format("rank {} has left without {}{}; rank {} {} it", rank,
                           message.half.is_sent ? "receiving " : "", in_words(message), membership_.rank(),
                           message.half.is_sent ? "sends" : "waits for"));
    return;
  }
}

std::string Links::who_is_late(const Batch& batch, std::vector<std::size_t>& ranks) const {
  std::string late;
  const auto add = [&](const Message& message, std::string_view what) {
    const std::size_t rank = peer_rank(message.half);
    if (std::ranges::find(ranks, rank) != ranks.end()) return;
    ranks.push_back(rank);
    late += fmt::format("{}rank {} {} {}, its last call is {}", late.empty() ? "" : "; ", rank, what,
                        in_words(message), state_.last_in_words(rank));
    if (const auto silence = failure_detector_.standstill(rank))
      late += fmt::format(", and its process has done nothing for {} ms", silence->count());
  };
  for (const Message& message : batch.messages) {
    if (is_missing(message))
      add(message, message.half.is_sent ? "has not come to receive" : "has not come to send");
  }
  if (!ranks.empty()) return late;
  for (const Message& message : batch.messages) add(message, "has made its half and not completed");
  return late;
}

void Links::judge(const Batch& batch, std::chrono::nanoseconds lasted) {
  const std::chrono::nanoseconds first = LateWarnings::first_after(batch.patience);
  if (lasted < std::min<std::chrono::nanoseconds>(first, failure_detector_.timeout())) return;
  std::vector<std::size_t> ranks;
  const std::string late = who_is_late(batch, ranks);
  const auto limit = failure_detector_.limit_of(
      {.sequence = 0, .lasted = lasted, .patience = batch.patience, .missing = &ranks});
  if (!limit) {
    if (lasted >= std::max(first, next_warning_)) warn(batch, lasted, late);
    return;
  }
  const std::string reason =
      fmt::format("{} did not finish on rank {} within {} ms: {}", in_words(batch.messages.front()),
                  membership_.rank(), limit->count(), late);
  const std::string record = record_.of_timeout(calls_.last(), reason);  // as it is before all calls end
  if (abort_.set(ErrorCode::timeout, reason)) record_.keep(record);
}

void Links::warn(const Batch& batch, std::chrono::nanoseconds lasted, const std::string& late) {
  next_warning_ = LateWarnings::growth * lasted;
  has_warned_ = true;
  log_warning(fmt::format(
      "Communicator: rank {} has waited for {} ms for {}: {}; all ranks give up after {} ms",
      membership_.rank(), whole_ms(lasted), in_words(batch.messages.front()), late, batch.patience.count()));
}

}  // namespace tutti::transport::team
