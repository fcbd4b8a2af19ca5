// SPDX-License-Identifier: Apache-2.0
#include "collectives/communicator/team_context.hpp"

#include "collectives/call/describe.hpp"
#include "settings/log.hpp"
#include "transport/nccl/team_nccl.hpp"
#include "transport/rounds/team_capabilities.hpp"
#include "transport/select/select.hpp"
#include "transport/team/joining/bootstrap_exchange.hpp"
#include "tutti/error.hpp"

#include <string>
#include <utility>

#include <fmt/format.h>

namespace tutti::collectives {
TeamContext::TeamContext(Exchange& exchange, const transport::team::Team::Settings& settings)
    : devices_(settings.devices.begin(), settings.devices.end()),
      team_(runtime_, exchange, settings),
      launcher_(runtime_, team_),
      capabilities_(transport::team::capabilities_of(team_, runtime_.backend().kind())),
      messages_(runtime_, team_, capabilities_) {
  const TransportKind transport = team_.settings().transport;
  const TransportSource source = team_.settings().transport_source;
  if (transport != TransportKind::automatic && transport != TransportKind::nccl) {
    capabilities_.nccl_refusal = fmt::format("{} was asked for{}", name_of(transport), in_words(source));
    return;
  }
  transport::team::BootstrapExchange bootstrap(exchange, settings.timeout);
  bootstrap.begin("agree on whether NCCL may carry their calls");
  capabilities_.nccl =
      transport::team::TeamNccl::create(runtime_, bootstrap, team_, capabilities_.nccl_refusal);
  if (capabilities_.nccl == nullptr && transport == TransportKind::nccl) {
    throw Error(ErrorCode::unsupported,
                fmt::format("Communicator: {}, which is not available: {}", wish_in_words(transport, source),
                            capabilities_.nccl_refusal));
  }
}

TeamContext& TeamContext::require_own_process() {
  if (Runtime::get_if_initialized() != &runtime_) {
    static_cast<void>(Runtime::get());  // says so, unless the child has devices of its own
    throw Error(
        ErrorCode::unsupported,
        "Communicator: this process was forked from the one that made it, expected calls by that one");
  }
  return *this;
}

void TeamContext::require_unbounded(const Arguments& arguments) const {
  const std::uint32_t most = team_.settings().most_multiprocessors;
  if (most == backend::all_multiprocessors) return;
  arguments.unsupported(
      "options.multiprocessors is {}, but kernels that are compiled at run time cannot be limited", most);
}

transport::Problem TeamContext::outline_of(const Request& request, std::size_t root) const {
  transport::Problem problem;
  problem.collective = request.collective;
  problem.name = request.name;
  problem.transport = team_.settings().transport;
  problem.transport_source = team_.settings().transport_source;
  problem.determinism = team_.settings().determinism;
  problem.most_multiprocessors = team_.settings().most_multiprocessors;
  problem.is_of_team = true;
  problem.root = static_cast<transport::LaneId>(root);
  problem.shape = {.collective = request.collective,
                   .members = team_.membership().member_count(),
                   .tensors = request.columns};
  return problem;
}

std::vector<int> TeamContext::lane_devices() const {
  std::vector<int> devices(team_.membership().member_count(), transport::remote_device);
  for (std::size_t local = 0; local < devices_.size(); ++local)
    devices[team_.membership().first_local() + local] = devices_[local].index();
  return devices;
}

transport::Plan TeamContext::plan(const Request& request, transport::Problem problem) const {
  const std::size_t members = team_.membership().member_count();
  problem.lane_devices = lane_devices();
  problem.homes.reserve(2 * members * request.columns);
  for (int side = 0; side < 2; ++side) {
    for (std::size_t member = 0; member < members; ++member)
      problem.homes.insert(problem.homes.end(), request.columns, static_cast<transport::LaneId>(member));
  }
  problem.ready = problem.homes;
  describe(request, problem);
  return transport::select(problem, capabilities_);
}

transport::Plan TeamContext::make_plan(const Request& request, std::size_t root) const {
  return plan(request, outline_of(request, root));
}

std::shared_ptr<const transport::Plan> TeamContext::plan_for(const Request& request, std::size_t root) {
  const bool is_captured = launcher_.is_captured();
  const bool is_connected = capabilities_.nccl != nullptr && capabilities_.nccl->is_connected();
  key_.clear();
  key_.add(static_cast<std::uint64_t>(request.collective) | static_cast<std::uint64_t>(is_captured) << 8U |
           static_cast<std::uint64_t>(is_connected) << 9U | static_cast<std::uint64_t>(root) << 32U);
  request.add_to(key_);
  return plans_.find_or_make(key_, [&] {
    transport::Problem problem = outline_of(request, root);
    problem.is_captured = is_captured;
    return plan(request, std::move(problem));
  });
}

std::shared_ptr<const transport::Plan> TeamContext::plan_for(
    std::span<const transport::InsideMessage> messages) {
  constexpr std::uint64_t no_collective = 0xff;
  key_.clear();
  key_.add(no_collective);
  for (const transport::InsideMessage& message : messages) {
    key_.add(message.sender << 32U | message.receiver);
    key_.add(message.bytes);
  }
  return plans_.find_or_make(key_, [&] {
    transport::Problem problem = outline_of(Request(Collective::all_to_all, "messages"), 0);
    problem.lane_devices = lane_devices();
    describe(messages, problem);
    return transport::plan_in_a_round(problem, capabilities_);
  });
}

PlanSummary TeamContext::last_plan() const {
  if (last_plan_ == nullptr) return {};
  PlanSummary summary = last_plan_->summary;
  if (last_has_stand_ins_) summary.algorithm += ", through stand-ins";
  return summary;
}

void TeamContext::tell_of_stand_ins(std::size_t local, std::string_view reason, const void* memory) {
  last_member_with_stand_ins_ = team_.membership().first_local() + local;
  reason_of_stand_ins_ = reason;
  if (has_warned_of_stand_ins_) return;
  // Whoever gives virtual devices memory of the host expects copies.
  if (runtime_.virtual_machine() != nullptr && runtime_.backend().pointer_info(memory).is_managed) return;
  has_warned_of_stand_ins_ = true;
  log_warning(fmt::format("Communicator: {}. The communicator says this once; last_plan says it of each call",
                          stand_ins_in_words()));
}

std::string TeamContext::stand_ins_in_words() const {
  if (reason_of_stand_ins_.empty()) return {};
  return fmt::format(
      "memory of member {} goes through stand-ins, copies that take time and room in each call, "
      "as other members cannot use it: {}",
      last_member_with_stand_ins_, reason_of_stand_ins_);
}

}  // namespace tutti::collectives
