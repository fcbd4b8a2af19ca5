// SPDX-License-Identifier: Apache-2.0
#include "transport/team/progress/progress.hpp"

#include "stream/event_pool.hpp"

#include <algorithm>
#include <utility>

namespace tutti::transport::team {

Progress::Progress(Runtime& runtime, const Membership& membership, const SharedState& state, Abort& abort)
    : runtime_(runtime),
      membership_(membership),
      state_(state),
      abort_(abort),
      marks_(membership.local_count()),
      batch_marks_(membership.local_count()),
      passed_batches_(membership.local_count()) {
  for (std::size_t local = 0; local < membership.local_count(); ++local) {
    flags_of_rounds_.push_back(&state.done_flag(membership.first_local() + local));
    records_.push_back(&state.record(membership.first_local() + local));
  }
}

void Progress::start(const Windows& windows) {
  if (!windows.are_devices_asked()) return;
  std::vector<DeviceProgress::Device> devices;
  for (std::size_t local = 0; local < membership_.local_count(); ++local) {
    backend::TeamCounters* const counters = windows.counters(local);
    devices.push_back({.stream = windows.counters_stream(local),
                       .on_device = &counters->done,
                       .known = std::exchange(flags_of_rounds_[local], nullptr),
                       .record_on_device = &counters->record,
                       .known_record = std::exchange(records_[local], &counters->record)});
  }
  devices_.emplace(
      runtime_, devices,
      [this] {
        look_at_marks();
        return has_calls_under_way() || expects_replays();
      },
      [this](const backend::Escaped& escaped) {
        abort_.fail("cannot query the progress of its devices", escaped);
      });
}

std::int64_t Progress::known_now() const noexcept {
  // It may copy other things first.
  constexpr std::chrono::seconds longest_silence{1};
  const std::int64_t now = RankStatus::now();
  if (!devices_ || devices_->silence() > longest_silence) return now;
  return std::min(now, devices_->known_until());
}

void Progress::learn_last_records() noexcept {
  constexpr std::chrono::seconds longest{1};
  if (!devices_ || !expects_replays()) return;
  const std::int64_t since = RankStatus::now();
  while (devices_->known_until() < since && std::chrono::nanoseconds(RankStatus::now() - since) < longest)
    devices_->look();
}

void Progress::record(Mark& mark, std::uint64_t sequence, backend::StreamRef stream) {
  if (mark.event.handle() == nullptr) mark.event = PooledEvent(runtime_.part<EventPool>(), stream.device);
  mark.event.record(stream);
  mark.sequence = static_cast<std::uint32_t>(sequence);
  mark.is_pending = true;
}

bool Progress::is_passed(Mark& mark) {
  if (!mark.is_pending || !runtime_.backend().query_event(mark.event.handle())) return false;
  mark.is_pending = false;
  return true;
}

void Progress::mark(std::size_t local, std::uint64_t sequence, backend::StreamRef stream) {
  const std::lock_guard lock(marks_mutex_);
  Marks& marks = marks_[local];
  record(marks.oldest.is_pending ? marks.latest : marks.oldest, sequence, stream);
}

void Progress::mark_batch(std::size_t local, std::uint64_t number, backend::StreamRef stream) {
  auto event = std::make_shared<PooledEvent>(runtime_.part<EventPool>(), stream.device);
  event->record(stream);
  mark_batch(local, number, std::move(event));
}

void Progress::mark_batch(std::size_t local, std::uint64_t number, std::shared_ptr<const PooledEvent> event) {
  const std::lock_guard lock(marks_mutex_);
  batch_marks_[local].push_back({.event = std::move(event), .number = static_cast<std::uint32_t>(number)});
}

std::uint64_t Progress::completed_batches() const noexcept {
  const std::uint64_t posted = last_batch_.load();
  std::uint32_t behind = 0;
  for (const std::atomic<std::uint32_t>& passed : passed_batches_) {
    // More may have been announced, and be complete, by now.
    const std::uint32_t member_behind = static_cast<std::uint32_t>(posted) - passed.load();
    if (static_cast<std::int32_t>(member_behind) > 0) behind = std::max(behind, member_behind);
  }
  return posted - behind;
}

void Progress::look_at_marks() noexcept {
  // Work that ends now has been aborted, and has not done what it should.
  if (abort_.is_set()) return;
  const std::lock_guard lock(marks_mutex_);
  for (std::size_t local = 0; local < marks_.size(); ++local) {
    try {
      for (Marks& marks = marks_[local]; is_passed(marks.oldest); std::swap(marks.oldest, marks.latest))
        backend::set_flag(state_.passed_flag(membership_.first_local() + local), marks.oldest.sequence);
      // Failures of other work are left to those who wait for it. What gives up does so after the abort.
      std::deque<BatchMark>& batches = batch_marks_[local];
      while (!batches.empty() && runtime_.backend().has_passed(batches.front().event->handle()) &&
             !abort_.is_set()) {
        passed_batches_[local].store(batches.front().number);
        batches.pop_front();
      }
    } catch (...) {
      abort_.fail("cannot report the progress of its calls", backend::Escaped::current());
    }
  }
}

std::uint32_t Progress::completed_by(std::size_t member) const noexcept {
  const std::uint32_t by_rounds = state_.done_flag(member).value.load();
  const std::uint32_t by_marks = state_.passed_flag(member).value.load();
  // One of the two counts may have stood still for more calls than 32 bits can distinguish; then the other is
  // not far behind what the rank has posted. No count is ahead of that.
  const std::size_t rank = membership_.rank_of_member()[member];
  const auto posted = static_cast<std::uint32_t>(state_.status(rank).last_sequence.load());
  return posted - by_rounds <= posted - by_marks ? by_rounds : by_marks;
}

bool Progress::has_completed(std::size_t rank, std::uint64_t sequence) const noexcept {
  const std::size_t first = membership_.first_member(rank);
  for (std::size_t member = first; member < first + membership_.member_count(rank); ++member) {
    if (!backend::has_reached(completed_by(member), static_cast<std::uint32_t>(sequence))) return false;
  }
  return true;
}

std::uint64_t Progress::completed_by_rank(std::size_t rank) const noexcept {
  const std::uint64_t posted = state_.status(rank).last_sequence.load();
  std::uint32_t behind = 0;
  const std::size_t first = membership_.first_member(rank);
  for (std::size_t member = first; member < first + membership_.member_count(rank); ++member) {
    const std::uint32_t member_behind = static_cast<std::uint32_t>(posted) - completed_by(member);
    if (static_cast<std::int32_t>(member_behind) > 0) behind = std::max(behind, member_behind);
  }
  return posted - behind;
}

std::uint64_t Progress::completed() const noexcept {
  const std::uint64_t posted = last_call();
  const std::uint64_t completed = completed_by_rank(membership_.rank());
  // Captured calls count as complete, as this process has nothing to wait for.
  return completed >= last_awaited_.load() ? posted : completed;
}

bool Progress::has_calls_under_way() const noexcept {
  return completed() != last_call() || has_batches_under_way();
}

bool Progress::is_idle() noexcept {
  runtime_.backend().wait_elsewhere();
  look_at_marks();
  if (devices_) devices_->look();
  return !has_calls_under_way();
}

std::optional<std::uint64_t> Progress::oldest_under_way() const noexcept {
  const RankStatus& status = state_.status(membership_.rank());
  const std::uint64_t posted = last_call();
  const std::uint64_t remembered =
      posted < RankStatus::furthest_ahead ? 1 : posted - RankStatus::furthest_ahead;
  for (std::uint64_t sequence = std::max(completed() + 1, remembered); sequence <= posted; ++sequence) {
    const RankStatus::Entry& entry = status.entries[sequence % RankStatus::history];
    if (entry.is(sequence) && !entry.is_captured()) return sequence;
  }
  return std::nullopt;
}

}  // namespace tutti::transport::team
