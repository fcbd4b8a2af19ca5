// SPDX-License-Identifier: Apache-2.0
#include "backend/host/queues/team_part.hpp"

#include "os/thread.hpp"

#include <algorithm>
#include <array>
#include <functional>
#include <string>

#include <fmt/format.h>

namespace tutti::backend::host {
namespace {

constexpr int turn = 5;  // milliseconds, after which a waiting task lets its window move

/// Translates places to addresses, once memory has been exposed.
class Sources {
 public:
  /// `own_window` is where the worker finds the window's bytes, `shift` how far behind that of round 0 the
  /// slot or the inbox is.
  Sources(const TeamWindowLayout& layout, const std::byte* own_window, std::uint64_t shift)
      : shift_(shift), slot_(own_window + layout.slots_offset() + shift) {}

  [[nodiscard]] std::byte* operator()(const std::byte* place) const {
    return address_of(reinterpret_cast<std::uintptr_t>(place));
  }
  [[nodiscard]] std::byte* address_of(std::uint64_t place) const {
    if (SourcePlace::is_in_slot(place)) return reinterpret_cast<std::byte*>(place + shift_);
    if (SourcePlace::is_own(place)) return reinterpret_cast<std::byte*>(SourcePlace::address(place));
    return reinterpret_cast<std::byte*>(ExposedAddress::address(told(place)) + SourcePlace::offset(place));
  }
  /// Returns true if the other member marks what it exposes at this place.
  [[nodiscard]] bool is_in_place(std::uint64_t exposed) const {
    return ExposedAddress::is_in_place(told(exposed));
  }

 private:
  [[nodiscard]] std::uint64_t told(std::uint64_t exposed) const {
    return reinterpret_cast<const std::uint64_t*>(slot_)[SourcePlace::number(exposed)];
  }

  std::uint64_t shift_;
  const std::byte* slot_;
};

}  // namespace

void require_running(const AbortWord& abort) {
  if (!abort.is_set()) return;
  const AbortReason& reason = abort.reason();
  throw Ended(static_cast<ErrorCode>(reason.code), std::string(reason.text()));
}

void end_team(AbortWord& abort, std::uint32_t process) noexcept {
  const Escaped escaped = Escaped::current();
  std::array<char, sizeof(AbortReason::bytes)> text{};
  const auto end = fmt::format_to_n(text.data(), text.size(), "rank {}: {}", process, escaped.what);
  abort.set(process, static_cast<std::uint32_t>(escaped.code), {text.data(), end.out});
}

TeamPart::TeamPart(const TeamRound& task, std::shared_ptr<const Allocation> window, RoundCount rounds)
    : layout_(task.layout),
      windows_(task.windows.begin(), task.windows.end()),
      member_(task.member),
      window_(std::move(window)),
      own_window_(window_->memory + (windows_[member_] - window_->base)),
      rounds_(std::move(rounds)),
      call_(TeamRecord::number_of(task.call, task.is_captured)),
      is_captured_(task.is_captured),
      record_(task.record),
      abort_(*task.abort),
      process_(task.process),
      round_(task.round),
      finished_(task.finished),
      ends_call_(task.ends_call),
      is_low_latency_(task.is_low_latency),
      is_direct_(task.is_direct),
      waits_(!task.sources.empty()),
      puts_(task.puts),
      readers_(task.readers.begin(), task.readers.end()),
      copies_(task.swaps ? FanOut() : task.copies),
      exposed_count_(task.exposed_count),
      exposed_(task.exposed.begin(), task.exposed.end()),
      done_(task.done),
      done_value_(task.done_value),
      counts_done_(task.counts_done) {
  if (task.swaps) swaps_.emplace(task.copies);
  if (!task.reductions.segments.empty()) reductions_.emplace(task.reductions);
  if (exposes() || !puts_.empty()) {
    until_free_.reserve(layout_.members);
    for (std::uint32_t other = 0; other < layout_.members; ++other)
      until_free_.push_back(
          condition(layout_.finished_offset(other), round_ - TeamWindowLayout::slot_count, false));
  }
  until_arrived_.reserve(task.sources.size());
  for (const std::uint32_t source : task.sources)
    until_arrived_.push_back(condition(layout_.ready_offset(source, 0), round_, true));
  if (!exposes()) return;
  until_read_.reserve(readers_.size());
  for (const std::uint32_t reader : readers_)
    until_read_.push_back(condition(layout_.taken_offset(reader, 0), round_, true));
}

TeamPart::Condition TeamPart::condition(std::size_t flag, std::uint32_t round, bool is_of_call) const {
  return {reinterpret_cast<SharedFlag*>(own_window_ + flag), round, is_of_call};
}

SharedFlag& TeamPart::flag_of(const Condition& condition) const noexcept {
  const std::uint64_t slot = (rounds_.get() + condition.round) % TeamWindowLayout::slot_count;
  return condition.is_of_call ? condition.flag[slot] : *condition.flag;
}

bool TeamPart::holds(const Condition& condition) const noexcept {
  const SharedFlag& flag = flag_of(condition);
  if (condition.is_of_call)
    return RoundNumber::has_come(flag.round.load(std::memory_order_acquire), number_of(condition.round));
  return has_reached(flag.value.load(std::memory_order_acquire),
                     static_cast<std::uint32_t>(rounds_.get()) + condition.round);
}

bool TeamPart::wait_for(const Condition& condition, int milliseconds) const noexcept {
  SharedFlag& flag = flag_of(condition);
  if (condition.is_of_call) return wait_for_round(flag, number_of(condition.round), abort_, milliseconds);
  return wait_for_flag(flag, static_cast<std::uint32_t>(rounds_.get()) + condition.round, abort_,
                       milliseconds);
}

std::uint64_t TeamPart::shift() const {
  const std::uint64_t now = rounds_.get() + round_;
  return is_low_latency_ ? layout_.inbox_shift(now) : layout_.slot_shift(now);
}

void TeamPart::begin() const noexcept {
  if (record_ == nullptr) return;
  const std::uint64_t first_round = rounds_.get() + 1;
  TeamRecord::Call& call = record_->of_round(first_round);
  call.number.store(call_);
  call.first_round.store(first_round);
  if (is_captured_) record_->latest_round.store(static_cast<std::uint32_t>(rounds_.get() + round_));
}

void TeamPart::put(Translation& translation) const {
  const std::uint64_t shift = this->shift();
  if (!puts_.empty()) translation.add(window_);
  puts_.run(translation, std::identity(), [shift](std::byte* target) { return target + shift; });
  for (std::size_t i = 0; i < readers_.size(); ++i) {
    const auto addresses = std::as_bytes(std::span(exposed_).subspan(i * exposed_count_, exposed_count_));
    translation.begin_segment();
    std::byte* const slot =
        windows_[readers_[i]] + layout_.slots_offset() + shift + layout_.exposed_offset(member_);
    std::ranges::copy(addresses, translation.write(slot, addresses.size()));
  }
  for (const std::uint32_t reader : readers_) {
    const std::uint64_t number = number_of(round_);
    backend::set_round(translation.flag(windows_[reader] + layout_.ready_offset(member_, number)), number);
  }
  if (!takes()) tell_finished(translation);
}

void TeamPart::take(Translation& translation) const {
  translation.add(window_);
  const Sources sources(layout_, own_window_, shift());
  if (reductions_) {
    reductions_->run(translation, sources);
  } else if (swaps_) {
    swaps_->run(translation, sources);
  } else if (is_direct_) {
    copies_.run(translation, sources, sources);
  } else {
    copies_.run(translation, sources, std::identity());
  }
  tell_finished(translation);
}

void TeamPart::end(Translation& /*translation*/) const {
  close();
}

void TeamPart::tell_finished(Translation& translation) const {
  const auto finished = static_cast<std::uint32_t>(rounds_.get()) + finished_;
  const std::uint64_t number = number_of(round_);
  for (std::byte* const window : windows_) {
    if (is_direct_)
      backend::set_round(translation.flag(window + layout_.taken_offset(member_, number)), number);
    backend::set_flag(translation.flag(window + layout_.finished_offset(member_)), finished);
  }
  if (!exposes()) close();
}

void TeamPart::close() const {
  if (ends_call_) rounds_.add(finished_);
  if (counts_done_) rounds_.set_done(done_value_);
  if (done_ != nullptr) backend::set_flag(*done_, done_value_);
}

void TeamTask::run() {
  AbortWord& abort = part_->abort();
  if (begins_ && !abort.is_set()) part_->begin();
  if (!ready()) {
    BlockInUse window(part_->window());  // who waits writes that it sleeps
    if (!noted_) noted_.emplace(*part_);
    for (const TeamPart::Condition& condition : conditions_) {
      while (!part_->wait_for(condition, turn) && !abort.is_set()) window.make_way();
    }
  }
  noted_.reset();
  require_running(abort);
  try {
    work_->run();
  } catch (...) {
    end_team(abort, part_->process());
    throw;
  }
}

bool TeamTask::ready() const noexcept {
  const bool is_ready =
      part_->abort().is_set() ||
      std::ranges::all_of(conditions_, [this](const auto& condition) { return part_->holds(condition); });
  // An interleaver asks until the task is ready, and runs it only then.
  if (!is_ready && !begins_ && !noted_) noted_.emplace(*part_);
  return is_ready;
}

std::unique_ptr<Task> TeamTask::clone() const {
  return std::make_unique<TeamTask>(part_, begins_, conditions_, work_->clone());
}

}  // namespace tutti::backend::host
