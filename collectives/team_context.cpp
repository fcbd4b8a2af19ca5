// SPDX-License-Identifier: Apache-2.0
#include "collectives/team_context.hpp"

#include "transport/team/joining.hpp"
#include "tutti/error.hpp"

#include <fmt/format.h>

namespace tutti::collectives {

TeamContext::TeamContext(Exchange& exchange, const transport::ranks::Team::Settings& settings)
    : devices(settings.devices.begin(), settings.devices.end()),
      team(runtime, exchange, settings),
      launcher(runtime, team) {
  const TransportKind transport = team.settings().transport;
  const TransportSource source = team.settings().transport_source;
  if (transport != TransportKind::automatic && transport != TransportKind::nccl) {
    nccl_refusal = fmt::format("{} was asked for{}", name_of(transport), in_words(source));
    return;
  }
  transport::ranks::Joining joining(exchange, settings.timeout);
  joining.begin("agree on whether NCCL may carry their calls");
  nccl = transport::ranks::TeamNccl::create(runtime, joining, team, nccl_refusal);
  if (nccl == nullptr && transport == TransportKind::nccl) {
    throw Error(ErrorCode::unsupported, fmt::format("Communicator: {}, which cannot be had: {}",
                                                    wish_in_words(transport, source), nccl_refusal));
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

}  // namespace tutti::collectives
