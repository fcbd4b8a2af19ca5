// SPDX-License-Identifier: Apache-2.0
#include "transport/team/calls/call_log.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

namespace tutti::transport::team {

CallLog::CallLog(const Membership& membership, const SharedState& state, Progress& progress, Waiting& waiting,
                 Abort& abort, LocalNews& news)
    : membership_(membership),
      state_(state),
      progress_(progress),
      waiting_(waiting),
      abort_(abort),
      news_(news) {}

void CallLog::wait_for_room(std::uint64_t sequence) {
  // Nobody may still want to compare with the old entry. The others' progress is read only now and then, as
  // it is in their processors' caches. A rank that is waited for here is late with a call long before this
  // one.
  if (sequence <= all_have_posted_ + RankStatus::furthest_ahead) return;
  const std::uint64_t needed = sequence - RankStatus::furthest_ahead;
  waiting_.wait_for_ranks(needed, [&] { return state_.ranks_behind(needed); });
  all_have_posted_ = sequence;
  for (const RankStatus& peer : state_.statuses())
    all_have_posted_ = std::min(all_have_posted_, peer.last_sequence.load());
}

std::uint64_t CallLog::post(const Signature& signature, bool is_captured) {
  abort_.require_running();
  const std::uint64_t sequence = last() + 1;
  wait_for_room(sequence);
  waiting_.patience().begin(sequence);
  status().entries[sequence % RankStatus::history].write(sequence, signature, is_captured, RankStatus::now());
  if (is_captured) {
    note_captured(sequence, signature);
  } else {
    progress_.await(sequence);
  }
  status().last_sequence.store(sequence, std::memory_order_release);
  compare_with_first(membership_.rank(), signature, is_captured, sequence);
  news_.announce();
  abort_.require_running();
  return sequence;
}

void CallLog::note_captured(std::uint64_t sequence, const Signature& signature) {
  constexpr std::size_t remembered = 1024;
  has_captured_ = true;
  progress_.expect_replays();
  const std::lock_guard lock(captured_mutex_);
  captured_.push_back({sequence, signature});
  if (captured_.size() > remembered) captured_.pop_front();
}

std::string CallLog::captured_in_words(std::uint64_t sequence) const {
  const std::lock_guard lock(captured_mutex_);
  const auto found = std::ranges::lower_bound(captured_, sequence, {}, &Captured::sequence);
  if (found == captured_.end() || found->sequence != sequence) return fmt::format("call #{}", sequence);
  return fmt::format("{} (#{})", to_string(found->signature), sequence);
}

std::uint64_t CallLog::number() noexcept {
  const std::uint64_t sequence = last() + 1;
  progress_.await(sequence);
  status().last_sequence.store(sequence, std::memory_order_release);
  return sequence;
}

void CallLog::compare_with_first(std::size_t rank, const Signature& signature, bool is_captured,
                                 std::uint64_t sequence) noexcept {
  if (state_.first_calls().agree(sequence, signature, is_captured)) return;
  for (std::size_t other = 0; other < membership_.rank_count(); ++other) {
    if (other != rank) compare(rank, signature, other, sequence);
  }
}

void CallLog::compare(std::size_t rank, const Signature& signature, std::size_t other,
                      std::uint64_t sequence) noexcept {
  const RankStatus::Entry& entry = state_.status(other).entries[sequence % RankStatus::history];
  if (!entry.is(sequence)) return;
  const bool is_captured = state_.status(rank).entries[sequence % RankStatus::history].is_captured();
  const bool is_theirs_captured = entry.is_captured();
  if (const Signature theirs = entry.common();
      !theirs.matches(signature) || is_theirs_captured != is_captured) {
    constexpr std::array<const char*, 2> captured{"", ", captured"};
    try {
      abort_.set(ErrorCode::invalid_argument,
                 fmt::format("call #{} does not match: rank {} calls {}{}, rank {} calls {}{}", sequence,
                             rank, to_string(signature), captured[is_captured ? 1 : 0], other,
                             to_string(entry.signature()), captured[is_theirs_captured ? 1 : 0]));
    } catch (...) {
      abort_.fail("made a call that does not match, or another rank did; the calls cannot be printed",
                  backend::Escaped::current());
    }
  }
}

std::vector<std::uint64_t> CallLog::agree(std::uint64_t sequence, const Signature& signature) {
  waiting_.wait_for_ranks(sequence, [&] { return state_.ranks_behind(sequence); });
  // Other calls have no lengths of their own, and whoever makes one has announced it before it is told that
  // it differs.
  const std::size_t self = membership_.rank();
  for (std::size_t rank = 0; rank < membership_.rank_count(); ++rank) {
    if (rank != self) compare(self, signature, rank, sequence);
  }
  abort_.require_running();
  std::vector<std::uint64_t> lengths;
  for (std::size_t rank = 0; rank < membership_.rank_count(); ++rank) {
    const Signature signature_of_rank =
        state_.status(rank).entries[sequence % RankStatus::history].signature();
    const auto first = signature_of_rank.lengths.begin();
    lengths.insert(lengths.end(), first, first + membership_.member_count(rank));
  }
  return lengths;
}

std::unique_lock<std::mutex> CallLog::hold_if_idle() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  // After an abort, local work may still use what its owner no longer waits for.
  if (!lock.owns_lock() || may_wait_any_time() || is_over() || progress_.has_calls_under_way()) return {};
  return lock;
}

bool CallLog::closes_nothing(std::size_t rank) const noexcept {
  const std::uint64_t posted = state_.status(rank).last_sequence.load();
  return may_wait_any_time() || (posted > last_queued_.load() && !progress_.has_completed(rank, posted));
}

}  // namespace tutti::transport::team
