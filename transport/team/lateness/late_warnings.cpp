// SPDX-License-Identifier: Apache-2.0
#include "transport/team/lateness/late_warnings.hpp"

#include "settings/log.hpp"

#include <algorithm>
#include <exception>

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

constexpr std::chrono::seconds first_warning{10};
/// A call that all ranks have made may just be queued behind other work: it is told of when it has been
/// looked at so often.
constexpr int looks_at_queued_calls = 3;

}  // namespace

std::chrono::nanoseconds LateWarnings::first_after(std::chrono::nanoseconds patience) noexcept {
  return std::min<std::chrono::nanoseconds>(first_warning, patience / 4);
}

bool LateWarnings::tells_for_all(std::uint64_t sequence) const noexcept {
  const std::size_t self = membership_.rank();
  const bool is_under_way = !progress_.has_completed(self, sequence);
  const std::uint64_t last = state_.status(self).last_sequence.load();
  for (std::size_t rank = 0; rank < self; ++rank) {
    const std::uint64_t their_last = state_.status(rank).last_sequence.load();
    // A rank whose call is complete waits on its host: those that do so have made as many calls.
    const bool waits_too = is_under_way ? their_last >= sequence && !progress_.has_completed(rank, sequence)
                                        : their_last >= last;
    if (waits_too && !failure_detector_.standstill(rank)) return false;
  }
  return true;
}

void LateWarnings::tell(const RankWait& wait) {
  log_warning(
      fmt::format("Communicator: rank {} has waited for {} ms in {}: {}; all ranks give up after {} ms",
                  membership_.rank(), whole_ms(wait.lasted),
                  state_.status(membership_.rank()).call_in_words(wait.sequence),
                  failure_detector_.who_is_late(wait.sequence, *wait.missing), whole_ms(wait.patience)));
}

void LateWarnings::look(const RankWait& wait) noexcept {
  const std::chrono::nanoseconds first = first_after(wait.patience);
  if (wait.lasted < first) return;
  const std::lock_guard lock(mutex_);
  if (!told_ || told_->sequence != wait.sequence)
    told_ = Told{.sequence = wait.sequence, .since = RankStatus::now() - wait.lasted.count(), .next = first};
  if (wait.lasted < told_->next) return;
  told_->next = std::max(growth * told_->next, wait.lasted);
  ++told_->looks;
  if (told_->looks < looks_at_queued_calls && !failure_detector_.is_anyone_behind(wait)) return;
  if (!tells_for_all(wait.sequence)) return;
  try {
    tell(wait);
    told_->is_in_log = true;
  } catch (const std::exception&) {
    // Memory is short: the next one may be told.
  }
}

void LateWarnings::goes_on(std::uint64_t sequence) noexcept {
  const std::lock_guard lock(mutex_);
  if (!told_ || told_->sequence > sequence) return;
  const Told told = *told_;
  told_.reset();
  if (!told.is_in_log) return;
  try {
    const std::chrono::nanoseconds lasted(RankStatus::now() - told.since);
    log_warning(fmt::format("Communicator: {} goes on after {} ms",
                            state_.status(membership_.rank()).call_in_words(told.sequence),
                            whole_ms(lasted)));
  } catch (const std::exception&) {
    // Memory is short: it goes on all the same.
  }
}

}  // namespace tutti::transport::team
