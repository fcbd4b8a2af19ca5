// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shrinking/survivor_agreement.hpp"

#include <chrono>
#include <cstddef>
#include <exception>

#include <fmt/format.h>

/// The part of an agreement between hosts: some ranks decide, and the others wait for them.
namespace tutti::transport::team {
namespace {

using Phase = ShrinkStage::Phase;

}  // namespace

void SurvivorAgreement::end_for_others() {
  const ShrinkStage stage = board_.current();
  if (!decides() || stage.attempt != attempt_ || stage.phase == Phase::made) return;
  for (std::size_t rank = 0; rank < board_.ranks(); ++rank) {
    const ShrinkSlot& slot = slot_of(rank);
    if (team_.messenger->is_elsewhere(rank) && has_arrived(rank, stage) &&
        slot.failed.load() == stage.attempt + 1)
      return fail(stage, static_cast<ErrorCode>(slot.failure.code), slot.failure.text());
  }
}

void SurvivorAgreement::require_decision() {
  const ShrinkStage stage = board_.current();
  if (decides() || stage.phase == Phase::made || stage.attempt != attempt_) return;
  constexpr const char* who = "the ranks of the host of rank 0, which decide who goes on,";
  if (team_.messenger->is_undecidable(wish_.leaving))
    throw Error(ErrorCode::peer_unavailable, fmt::format("{}: {} are lost", function(), who));
  // They bound their waits themselves.
  if (is_time_over(2) && pauses_.may_judge(Clock::now())) {
    throw Error(ErrorCode::timeout,
                fmt::format("{}: {} did not do so within {} ms", function(), who, 2 * wish_.timeout.count()));
  }
}

void SurvivorAgreement::withdraw() const noexcept {
  if (team_.messenger == nullptr) return;  // on one host, all ranks throw
  slot_of(self_).arrived.store(0);
  slot_of(self_).made.store(0);
}

void SurvivorAgreement::tell_outcome() noexcept {
  if (team_.messenger == nullptr) return;
  using namespace std::chrono_literals;
  try {
    team_.messenger->finish_sending(200ms);
  } catch (const std::exception&) {
    // The network has failed, or memory is short: the others go by what they see of this rank.
  }
}

}  // namespace tutti::transport::team
