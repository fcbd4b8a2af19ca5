// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shrinking/survivor_agreement.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>

namespace tutti::transport::team {

std::optional<std::vector<std::size_t>> NewcomerAdmission::admit(const ShrinkStage& open,
                                                                 const std::vector<std::size_t>& arrived,
                                                                 bool may_judge) {
  const bool grows = agreement_.wish_.change == RankChange::grow;
  if (grows && arrived.size() < agreement_.board_.ranks()) {
    agreement_.fail(
        open, ErrorCode::peer_unavailable,
        fmt::format("only {} of {} ranks are left, and newcomers come to all: shrink the communicator, or "
                    "replace who is lost",
                    arrived.size(), agreement_.board_.ranks()));
  } else if (const std::size_t keeper = keeper_among(arrived); keeper == agreement_.self_) {
    const std::size_t most = grows ? agreement_.wish_.most_new : agreement_.board_.ranks() - arrived.size();
    return let_in(open, grows ? agreement_.wish_.fewest_new : most, most, may_judge);
  } else if (may_judge && agreement_.is_time_over(2)) {
    agreement_.fail(open, ErrorCode::timeout, fmt::format("rank {} lets nobody in", keeper));
  }
  entrance_.reset();
  return std::nullopt;
}

std::size_t NewcomerAdmission::keeper_among(const std::vector<std::size_t>& arrived) const {
  const auto holder = std::ranges::find_if(
      arrived, [this](std::size_t rank) { return agreement_.board_.slots[rank].holds_entrance.load() != 0; });
  return holder == arrived.end() ? arrived.front() : *holder;
}

std::optional<std::vector<std::size_t>> NewcomerAdmission::let_in(const ShrinkStage& open, std::size_t fewest,
                                                                  std::size_t most, bool may_judge) {
  std::string trouble;
  try {
    if (newcomers_in(open).size() < most) trouble = watch_entrance();
  } catch (const Error& error) {
    // A rank that has just been lost may have been listening there.
    if (error.native_code() != EADDRINUSE) {
      agreement_.fail(open, error.code(), error.what());
      return std::nullopt;
    }
    trouble = fmt::format(": {}", error.what());
  }
  const bool has_waited = has_waited_enough(open);
  const bool is_over = may_judge && (has_waited || agreement_.is_time_over());
  // Listed only now, so that a process that has arrived during the check above is included.
  std::vector<std::size_t> newcomers = newcomers_in(open);
  if (newcomers.size() >= (is_over ? fewest : most)) {
    newcomers.resize(std::min(newcomers.size(), most));
    return newcomers;
  }
  if (is_over) {
    agreement_.fail(
        open, ErrorCode::timeout,
        fmt::format(
            "{} of {} new ranks came to {} within {} ms{}", newcomers.size(), fewest, agreement_.wish_.place,
            (has_waited ? *agreement_.wish_.newcomer_timeout : agreement_.wish_.timeout).count(), trouble));
  }
  return std::nullopt;
}

std::string NewcomerAdmission::watch_entrance() {
  if (entrance_ == nullptr) {
    entrance_ = agreement_.team_.open_entrance();
    opened_ = std::chrono::steady_clock::now();
  }
  entrance_->look({.admit = [this](const Applicant& applicant) { return ticket_for(applicant); },
                   .note_departure =
                       [this](std::size_t participant, pid_t process) {
                         agreement_.board_.slots[participant].process.compare_exchange_strong(process, 0);
                       }});
  return entrance_->account();
}

std::vector<std::size_t> NewcomerAdmission::newcomers_in(const ShrinkStage& open) {
  std::vector<std::size_t> newcomers;
  for (std::size_t each = agreement_.board_.ranks(); each < agreement_.board_.slots.size(); ++each) {
    if (agreement_.has_arrived(each, open) && !agreement_.is_given_up_[each] &&
        !agreement_.is_lost(each, true))
      newcomers.push_back(each);
  }
  return newcomers;
}

bool NewcomerAdmission::has_waited_enough(const ShrinkStage& open) {
  const auto& limit = agreement_.wish_.newcomer_timeout;
  if (!limit || entrance_ == nullptr || std::chrono::steady_clock::now() - opened_ < *limit) return false;
  for (std::size_t each = agreement_.board_.ranks(); each < agreement_.board_.slots.size(); ++each) {
    if (!agreement_.is_process_gone(each) && !agreement_.has_arrived(each, open)) return false;
  }
  return true;
}

std::optional<Ticket> NewcomerAdmission::ticket_for(const Applicant& applicant) {
  for (std::size_t each = agreement_.board_.ranks(); each < agreement_.board_.slots.size(); ++each) {
    if (!agreement_.is_process_gone(each)) continue;
    ShrinkSlot& slot = agreement_.board_.slots[each];
    slot.arrived.store(0);
    slot.process_space.store(applicant.process_space);
    slot.process.store(applicant.process);
    agreement_.watched_[each] = {};
    agreement_.is_given_up_[each] = false;
    Ticket ticket = agreement_.team_.ticket();
    ticket.participant = each;
    ticket.attempt = agreement_.attempt_;
    ticket.change = agreement_.wish_.change;
    ticket.leaves_out_late = agreement_.wish_.leaves_out_late;
    ticket.timeout = agreement_.wish_.timeout;
    return ticket;
  }
  return std::nullopt;
}

}  // namespace tutti::transport::team
