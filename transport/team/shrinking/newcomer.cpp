// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shrinking/newcomer.hpp"

#include "tutti/error.hpp"

#include <string>

#include <fmt/format.h>
#include <sys/types.h>
#include <unistd.h>

namespace tutti::transport::team {
namespace {

SharedMemory memory_of(const Ticket& ticket) {
  if (ticket.build != BuildMark::own()) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("Communicator::join: this process uses {} and the ranks {}; expected the same build",
                    BuildMark::own().string(), ticket.build.string()));
  }
  try {
    return SharedMemory(ticket.memory);
  } catch (const Error& error) {
    throw Error(
        ErrorCode::unsupported,
        fmt::format("Communicator::join: this process cannot open the memory of the ranks, expected a "
                    "process of their host: {}",
                    error.what()));
  }
}

}  // namespace

Applicant Applicant::own() {
  return {.build = BuildMark::own(), .process = getpid(), .process_space = tutti::process_space()};
}

Newcomer::Newcomer(const Ticket& ticket)
    : ticket_(ticket), memory_(memory_of(ticket)), state_(memory_.data(), ticket.shape) {}

Newcomer::~Newcomer() {
  pid_t own = getpid();
  state_.survivors().slots[ticket_.participant].process.compare_exchange_strong(own, 0);
}

bool Newcomer::run(const std::function<void()>& wait_elsewhere, const std::function<void(Exchange&)>& make,
                   const std::function<void()>& discard) {
  const ShrinkWish wish{.leaving = {},
                        .leaves_out_late = ticket_.leaves_out_late,
                        .timeout = ticket_.timeout,
                        .change = ticket_.change,
                        .place = {}};
  SurvivorAgreement agreement(state_.survivors(), ticket_.participant,
                              {.is_lost = {},
                               .end = [](const std::string& /*reason*/) {},
                               .wait_elsewhere = wait_elsewhere,
                               .timeout = ticket_.timeout},
                              wish, ticket_.attempt);
  try {
    agreement.run(make, discard);
  } catch (const SurvivorAgreement::NotNeeded&) {
    return false;
  }
  return true;
}

}  // namespace tutti::transport::team
