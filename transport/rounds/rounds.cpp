// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/rounds.hpp"

#include "transport/plan/plan_builder.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/rounds/plan_rounds.hpp"
#include "transport/rounds/round_plan.hpp"
#include "transport/rounds/round_stages.hpp"

#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

std::string_view adjective_of(Protocol protocol) noexcept {
  switch (protocol) {
    case Protocol::slots:
      return "";
    case Protocol::direct:
      return "direct ";
    case Protocol::low_latency:
      return "low-latency ";
  }
  return "";
}

RoundTuning tuning_for(const TeamCapabilities& capabilities, const RoundChoice& choice) noexcept {
  RoundTuning tuning = round_tuning_of(capabilities.backend);
  tuning.message_bytes = message_bytes(capabilities);
  if (choice.protocol == Protocol::slots) return tuning;
  // There are no messages to cut. Directly, a member writes its own share alone, which no other reads.
  tuning.message_bytes = std::numeric_limits<std::uint64_t>::max() / 2;
  const bool shares_sums = choice.protocol == Protocol::direct || choice.is_relayed;
  tuning.shared_sums_from = shares_sums ? 0 : tuning.message_bytes;
  return tuning;
}

}  // namespace

Plan lower_rounds(const Problem& problem, const TeamCapabilities& capabilities) {
  const std::size_t members = problem.lane_devices.size();
  PlanBuilder builder(problem);
  RoundPlan rounds;
  RoundChoice choice;
  if (problem.collective == Collective::barrier) {
    rounds = plan_barrier(members, capabilities.first_local, capabilities.local_count);
  } else {
    if (!problem.flows.empty() || !problem.reductions.empty())
      choice = choose_rounds(problem.shape, capabilities);
    const RoundTuning tuning = tuning_for(capabilities, choice);
    const TeamWork work = share_work(problem, choice.is_relayed, tuning);
    for (std::size_t i = 0; i < work.share_bytes.size(); ++i)
      builder.temporary(work.homes[problem.homes.size() + i], work.share_bytes[i]);
    rounds = plan_rounds(work, members, capabilities.first_local, capabilities.local_count,
                         {.message_bytes = tuning.message_bytes,
                          .protocol = choice.protocol,
                          .writes_flows = choice.is_written,
                          .layout = capabilities.layout});
  }
  const std::uint32_t count = rounds.round_count;
  const Protocol protocol = rounds.protocol;
  builder.add_rounds(std::make_shared<const RoundPlan>(std::move(rounds)));
  Plan plan =
      builder.finish(std::string(count == 0 ? "none" : name_of(capabilities.windows)),
                     fmt::format("{} {}{}", count, adjective_of(protocol), count == 1 ? "round" : "rounds"));
  if (count == 0) {
    plan.reasons.emplace_back("nothing goes from member to member");
  } else if (problem.collective != Collective::barrier) {
    plan.reasons.push_back(reason_for(problem.shape, capabilities, choice));
    if (protocol != choice.protocol)
      plan.reasons.emplace_back("through slots after all: the pieces do not fit");
  }
  if (capabilities.windows != TransportKind::p2p)
    plan.reasons.push_back("p2p not taken: " + capabilities.windows_reason);
  return plan;
}

}  // namespace tutti::transport::team
