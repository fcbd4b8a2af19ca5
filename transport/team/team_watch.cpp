// SPDX-License-Identifier: Apache-2.0
#include "transport/team/team.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>

/// How a team watches over its calls: which are complete, who is late, who is gone, and what to say of it.
namespace tutti::transport::ranks {
namespace {

constexpr std::chrono::milliseconds watch_period{20};
/// How long a device may owe an answer, because it copies other things first, until a call counts as late.
constexpr std::chrono::seconds longest_silence{1};

}  // namespace

std::uint32_t Team::completed_by(std::size_t member) const noexcept {
  const std::uint32_t by_rounds = done_[member].value.load();
  const std::uint32_t by_marks = passed_[member].value.load();
  // One of them may have stood still for more calls than they can tell apart; the other one is not far behind
  // what has been posted. No own one is ahead of it.
  const auto posted = static_cast<std::uint32_t>(board(rank_of_member_[member]).last_sequence.load());
  return posted - by_rounds <= posted - by_marks ? by_rounds : by_marks;
}

bool Team::has_completed(const RankBoard& of, std::uint64_t sequence) const noexcept {
  for (std::uint32_t member = of.first_member; member < of.first_member + of.member_count; ++member) {
    if (!backend::has_reached(completed_by(member), static_cast<std::uint32_t>(sequence))) return false;
  }
  return true;
}

std::uint64_t Team::completed_by_rank(std::size_t rank) const noexcept {
  const RankBoard& of = board(rank);
  const std::uint64_t posted = of.last_sequence.load();
  std::uint32_t behind = 0;
  for (std::uint32_t member = of.first_member; member < of.first_member + of.member_count; ++member) {
    const std::uint32_t member_behind = static_cast<std::uint32_t>(posted) - completed_by(member);
    if (static_cast<std::int32_t>(member_behind) > 0) behind = std::max(behind, member_behind);
  }
  return posted - behind;
}

std::uint64_t Team::completed() const noexcept {
  const std::uint64_t posted = own().last_sequence.load();
  const std::uint64_t completed = completed_by_rank(static_cast<std::size_t>(rank_));
  // What has been captured has been completed as far as this process has anything to wait for.
  return completed >= last_awaited_.load() ? posted : completed;
}

std::optional<std::uint64_t> Team::oldest_under_way() const noexcept {
  const std::uint64_t posted = own().last_sequence.load();
  const std::uint64_t remembered =
      posted < RankBoard::furthest_ahead ? 1 : posted - RankBoard::furthest_ahead;
  for (std::uint64_t sequence = std::max(completed() + 1, remembered); sequence <= posted; ++sequence) {
    const RankBoard::Entry& entry = own().entries[sequence % RankBoard::history];
    if (entry.is(sequence) && !entry.is_captured()) return sequence;
  }
  return std::nullopt;
}

void Team::record(Mark& mark, std::uint64_t sequence, backend::StreamRef stream) {
  if (mark.event.handle() == nullptr) mark.event = PooledEvent(runtime_.events(), stream.device);
  runtime_.backend().record_event(mark.event.handle(), stream);
  mark.sequence = static_cast<std::uint32_t>(sequence);
  mark.is_pending = true;
}

bool Team::is_passed(Mark& mark) {
  if (!mark.is_pending || !runtime_.backend().query_event(mark.event.handle())) return false;
  mark.is_pending = false;
  return true;
}

void Team::done_after(std::size_t own_member, std::uint64_t sequence, backend::StreamRef stream) {
  const std::lock_guard lock(marks_mutex_);
  Marks& marks = marks_[own_member];
  record(marks.oldest.is_pending ? marks.latest : marks.oldest, sequence, stream);
}

void Team::look_at_marks() noexcept {
  // What comes to its end now has been ended, and has not done what it should.
  if (abort_->is_set()) return;
  const std::lock_guard lock(marks_mutex_);
  for (std::size_t own = 0; own < marks_.size(); ++own) {
    Marks& marks = marks_[own];
    try {
      while (is_passed(marks.oldest)) {
        backend::set_flag(passed_[first_local() + own], marks.oldest.sequence);
        std::swap(marks.oldest, marks.latest);
      }
    } catch (...) {
      fail("cannot tell how far its calls are", backend::Escaped::current());
    }
  }
}

void Team::watch_devices() {
  std::vector<DeviceProgress::Device> devices;
  for (std::size_t own = 0; own < local_count(); ++own) {
    devices.push_back({.stream = windows_->counters_stream(own),
                       .on_device = &done_flag_of_rounds(own),
                       .known = &done_flag(first_local() + own)});
  }
  progress_.emplace(
      runtime_, devices,
      [this] {
        look_at_marks();
        return has_calls_under_way();
      },
      [this](const backend::Escaped& escaped) { fail("cannot ask its devices how far they are", escaped); });
}

bool Team::is_idle() noexcept {
  runtime_.backend().wait_elsewhere();
  look_at_marks();
  if (progress_) progress_->look();
  return !has_calls_under_way();
}

std::optional<Error> Team::take_end(int device) {
  if (!abort_->is_set()) return std::nullopt;
  const auto own =
      static_cast<std::size_t>(std::ranges::find(settings_.devices, device) - settings_.devices.begin());
  if (has_told_end_[own]) return std::nullopt;
  static_cast<void>(is_idle());  // looks
  // A call that was not queued as a whole has failed, and has said so. Of replays nobody knows.
  const bool was_over = !has_captured_ && completed() >= last_queued_.load();
  if (was_over || has_told_end_[own].exchange(true)) return std::nullopt;
  return end_reason();
}

bool Team::has_calls_under_way() const noexcept {
  return completed() != own().last_sequence.load();
}

void Team::watch(Lookout lookout) {
  std::uint64_t done = 0;
  std::int64_t done_since = 0;
  std::unique_lock lock(watch_mutex_);
  while (!watch_stops_.wait_for(lock, watch_period, [this] { return stop_watching_; })) {
    try {
      if (!abort_->is_set()) {
        look_around(lookout, done, done_since);
      } else {
        if (const auto handler = std::exchange(abort_handler_, nullptr)) handler();
        tell_of_end();
      }
    } catch (...) {
      fail("cannot watch over its calls", backend::Escaped::current());
    }
  }
}

void Team::look_around(Lookout& lookout, std::uint64_t& done, std::int64_t& done_since) {
  own().watched_at.store(RankBoard::now());
  const bool may_judge = lookout.may_judge(Lookout::Clock::now());
  look_for_lost_ranks();
  if (!progress_) look_at_marks();  // else whoever asks the devices does, as that may take long
  if (const std::uint64_t now_done = completed(); now_done != done) {
    done = now_done;
    done_since = RankBoard::now();
  }
  const auto oldest = oldest_under_way();
  if (!oldest || member_count() == 1) return;  // a member alone waits for nobody
  look_for_ranks_that_left(*oldest, [&] { return behind(*oldest); });
  const std::int64_t since = std::max(own().entries[*oldest % RankBoard::history].posted_at(), done_since);
  const auto is_too_late = [&](std::int64_t now) {
    return std::chrono::nanoseconds(now - since) > patience();
  };
  if (!may_judge || !is_too_late(RankBoard::now())) return;
  if (!progress_ || is_too_late(progress_->known_until()) || progress_->silence() > longest_silence)
    give_up(*oldest);
}

bool Team::is_known_to_be_gone(std::size_t rank) const noexcept {
  return processes_[rank].is_gone();
}

void Team::look_for_lost_ranks() {
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    if (!is_known_to_be_gone(rank) || board(rank).state.load() >= RankBoard::leaving) continue;
    const std::uint64_t waits_in = oldest_under_way().value_or(waits_in_.load());
    abort(ErrorCode::peer_unavailable,
          fmt::format(
              "rank {} (process {}) is gone; its last call was {}{}", rank, board(rank).process,
              call_of(board(rank), board(rank).last_sequence.load()),
              waits_in != 0 ? fmt::format("; rank {} waits in {}", rank_, call_of(own(), waits_in)) : ""));
    return;
  }
}

void Team::look_for_ranks_that_left(std::uint64_t sequence, const Missing& missing) {
  for (std::size_t rank = 0; rank < rank_count_; ++rank) {
    if (board(rank).state.load() < RankBoard::leaving) continue;
    const std::vector<std::size_t> ranks = missing();  // asked when it has left: what it has done is done
    if (std::ranges::find(ranks, rank) == ranks.end()) continue;
    look_for_lost_ranks();  // it may have left because of one
    abort(
        ErrorCode::peer_unavailable,
        fmt::format("rank {} has left, its last call was {}; rank {} waits for it in {}", rank,
                    call_of(board(rank), board(rank).last_sequence.load()), rank_, call_of(own(), sequence)));
    return;
  }
}

}  // namespace tutti::transport::ranks
