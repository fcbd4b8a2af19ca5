// SPDX-License-Identifier: Apache-2.0
#include "collectives/team_context.hpp"

#include "transport/nccl/team_nccl.hpp"
#include "transport/select.hpp"
#include "transport/team/joining.hpp"
#include "tutti/error.hpp"

#include <fmt/format.h>

namespace tutti::collectives {
namespace {

transport::ranks::TeamMeans means_of(const transport::ranks::Team& team, BackendKind backend) {
  const transport::ranks::Windows& windows = team.windows();
  return {.backend = backend,
          .layout = windows.layout(),
          .most_given = team.registrations() == nullptr ? 0 : transport::ranks::Registrations::most_given,
          .most_members_of_a_rank = team.most_members_of_a_rank(),
          .first_local = team.first_local(),
          .local_count = team.local_count(),
          .spans_hosts = team.spans_hosts(),
          .windows = windows.transport(),
          .windows_reason = windows.reason()};
}

}  // namespace

TeamContext::TeamContext(Exchange& exchange, const transport::ranks::Team::Settings& settings)
    : devices(settings.devices.begin(), settings.devices.end()),
      team(runtime, exchange, settings),
      launcher(runtime, team),
      means(means_of(team, runtime.backend().kind())) {
  const TransportKind transport = team.settings().transport;
  const TransportSource source = team.settings().transport_source;
  if (transport != TransportKind::automatic && transport != TransportKind::nccl) {
    means.nccl_refusal = fmt::format("{} was asked for{}", name_of(transport), in_words(source));
    return;
  }
  transport::ranks::Joining joining(exchange, settings.timeout);
  joining.begin("agree on whether NCCL may carry their calls");
  means.nccl = transport::ranks::TeamNccl::create(runtime, joining, team, means.nccl_refusal);
  if (means.nccl == nullptr && transport == TransportKind::nccl) {
    throw Error(ErrorCode::unsupported, fmt::format("Communicator: {}, which cannot be had: {}",
                                                    wish_in_words(transport, source), means.nccl_refusal));
  }
}

TeamContext& TeamContext::require_own_process() {
  if (Runtime::get_if_initialized() != &runtime) {
    static_cast<void>(Runtime::get());  // says so, unless the child has devices of its own
    throw Error(
        ErrorCode::unsupported,
        "Communicator: this process was forked from the one that made it, expected calls by that one");
  }
  return *this;
}

transport::Problem TeamContext::problem_of(const Request& request, std::size_t root, bool is_captured) const {
  const std::size_t members = team.member_count();
  transport::Problem problem;
  problem.collective = request.collective;
  problem.transport = team.settings().transport;
  problem.transport_source = team.settings().transport_source;
  problem.determinism = team.settings().determinism;
  problem.is_of_team = true;
  problem.is_captured = is_captured;
  problem.root = static_cast<transport::LaneId>(root);
  problem.lane_devices.assign(members, transport::remote_device);
  for (std::size_t local = 0; local < devices.size(); ++local)
    problem.lane_devices[team.first_local() + local] = devices[local].index();
  for (int side = 0; side < 2; ++side) {
    for (std::size_t member = 0; member < members; ++member)
      problem.homes.insert(problem.homes.end(), request.columns, static_cast<transport::LaneId>(member));
  }
  problem.ready = problem.homes;
  describe(request, problem);
  return problem;
}

transport::Plan TeamContext::make_plan(const transport::Problem& problem) const {
  return transport::select(runtime, problem, &means);
}

}  // namespace tutti::collectives
