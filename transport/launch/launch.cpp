// SPDX-License-Identifier: Apache-2.0
#include "transport/launch/launch.hpp"

#include "allocator/graph_pools/graph_captures.hpp"
#include "settings/log.hpp"
#include "storage/pluggable_allocator.hpp"
#include "storage/storage.hpp"
#include "stream/late_releases.hpp"
#include "stream/stream_access.hpp"
#include "stream/streams.hpp"
#include "transport/launch/plan_launcher.hpp"
#include "transport/rounds/round_launcher.hpp"
#include "transport/steps/side_streams.hpp"
#include "transport/steps/signals.hpp"
#include "transport/threads/launch_helpers.hpp"

#include <algorithm>
#include <exception>

#include <fmt/format.h>

namespace tutti::transport {
namespace {

/// Orders the plan's star by `flags` and enqueues its body. Every wait is enqueued after what it waits for.
void launch_star(Runtime& runtime, const Plan& plan, const Operands& operands, const Signals::Flags& flags,
                 LaunchHelpers::Lease& lease) {
  backend::Backend& backend = runtime.backend();
  const backend::StreamRef hub = operands.lanes[plan.hub_lane];
  const auto& [before, after] = *plan.star;
  lease.for_each(before.size(), [&](std::size_t i) {
    backend.signal(operands.lanes[before[i]], flags.ready[i], flags.value);
  });
  if (!before.empty()) runtime.part<Streams>().wait_signals(hub, flags.ready, flags.value);
  PlanLauncher(runtime, plan, operands).run_body();
  backend.signal(hub, *flags.done, flags.value);
  lease.for_each(after.size(), [&](std::size_t i) {
    runtime.part<Streams>().wait_signals(operands.lanes[after[i]], {flags.done, 1}, flags.value);
  });
}

void launch_steps(Runtime& runtime, const Plan& plan, const Operands& operands) {
  if (plan.signals != SignalUse::never) {
    // Helpers would take such a lane for one of their own.
    const bool has_thread_stream = std::ranges::any_of(operands.lanes, [&](backend::StreamRef lane) {
      return runtime.backend().is_of_calling_thread(lane);
    });
    const auto& [before, after] = *plan.star;
    LaunchHelpers::Lease lease(runtime.part<LaunchHelpers>(),
                               has_thread_stream ? 0 : before.size() + after.size());
    if (plan.signals == SignalUse::always || lease.has_help()) {
      const auto flags = runtime.part<Signals>().take(before.size());
      if (flags) return launch_star(runtime, plan, operands, *flags, lease);
    }
  }
  PlanLauncher(runtime, plan, operands).run();
}

/// Adds the plan's temporaries to the operands.
void bind_temporaries(Operands& operands, std::span<const detail::IntrusivePtr<Storage>> temporaries) {
  for (const auto& storage : temporaries) {
    operands.addresses.push_back(storage.get() == nullptr ? nullptr
                                                          : static_cast<std::byte*>(storage->data()));
    operands.storages.push_back(storage.get());
  }
}

/// Adds streams of the library's own for the side lanes.
void bind_side_lanes(Runtime& runtime, const Plan& plan, Operands& operands) {
  for (std::size_t k = 0; k < plan.beside.size(); ++k) {
    operands.lanes.push_back(runtime.part<SideStreams>().beside(operands.lanes[plan.beside[k]], k));
  }
}

/// Keeps memory from early reuse. Device memory is used on its home lane or in an order with it, so that its
/// home stream is all the allocator must know; host memory has no stream of its own.
void record_uses(const Plan& plan, const Operands& operands) {
  for (const BufferId buffer : operands.unrecorded) {
    operands.storages[buffer]->record_stream(StreamAccess::make(operands.lanes[plan.homes[buffer]]));
  }
  for (const auto& [buffer, lane] : plan.host_uses) {
    Storage* const storage = operands.storages[buffer];
    if (storage != nullptr) storage->record_stream(StreamAccess::make(operands.lanes[lane]));
  }
}

/// After a failure half-way: what was queued still runs, without the orders that follow it. Its memory is
/// kept until all lanes have passed.
void record_all_uses(const Operands& operands) noexcept {
  for (Storage* const storage : operands.storages) {
    if (storage == nullptr) continue;
    for (const backend::StreamRef lane : operands.lanes) {
      try {
        storage->record_stream(StreamAccess::make(lane));
      } catch (const std::exception& error) {
        log_warning(fmt::format("memory of a call that failed may be reused too early: {}", error.what()));
      }
    }
  }
}

/// Resources that a captured launch needs for as long as its graph may run.
struct CapturedResources {
  std::vector<detail::IntrusivePtr<Storage>> storages;
  std::shared_ptr<const Plan> plan;  // a recorded NCCL call may point into it
};

}  // namespace

std::vector<detail::IntrusivePtr<Storage>> allocate_temporaries(Runtime& runtime, const Plan& plan,
                                                                std::span<const backend::StreamRef> lanes) {
  std::vector<detail::IntrusivePtr<Storage>> storages;
  storages.reserve(plan.temporaries.size());
  for (const Temporary& temporary : plan.temporaries) {
    if (temporary.lane == host_lane) {
      storages.push_back(PinnedStorage::allocate(runtime, temporary.bytes));
    } else if (const int device = plan.lane_devices[temporary.lane]; device == remote_device) {
      storages.emplace_back();
    } else {
      const backend::StreamRef lane = lanes[temporary.lane];
      // Peers may have no access to what other allocators give.
      storages.push_back(runtime.part<PluggedAllocator>().is_used()
                             ? allocate_stand_in(runtime, lane, temporary.bytes)
                             : DeviceStorage::allocate(runtime, device, temporary.bytes, lane));
    }
  }
  return storages;
}

void launch(Runtime& runtime, const std::shared_ptr<const Plan>& plan, Operands& operands,
            const StandIns& stand_ins) {
  runtime.part<LateReleases>().release();
  const auto temporaries = allocate_temporaries(runtime, *plan, operands.lanes);
  bind_temporaries(operands, temporaries);
  const backend::DeviceScope scope(runtime.backend());
  bind_side_lanes(runtime, *plan, operands);
  try {
    stand_ins.keep_operands(operands.lanes);
    stand_ins.copy_in(runtime, operands.lanes);
    launch_steps(runtime, *plan, operands);
    stand_ins.copy_back(runtime, operands.lanes);
  } catch (...) {
    record_all_uses(operands);
    throw;
  }
  record_uses(*plan, operands);
}

void launch_captured(Runtime& runtime, const std::shared_ptr<const Plan>& plan, Operands& operands,
                     JoinedLanes& lanes, const StandIns& stand_ins) {
  runtime.part<LateReleases>().release();
  const auto temporaries = allocate_temporaries(runtime, *plan, operands.lanes);
  bind_temporaries(operands, temporaries);
  const backend::DeviceScope scope(runtime.backend());
  auto resources = std::make_shared<CapturedResources>();
  for (std::size_t buffer = 0; buffer < plan->operand_count; ++buffer) {
    Storage* const storage = operands.storages[buffer];
    if (storage == nullptr) continue;
    storage->add_references(1);
    resources->storages.push_back(detail::IntrusivePtr<Storage>::adopt(storage));
  }
  resources->storages.insert(resources->storages.end(), temporaries.begin(), temporaries.end());
  resources->plan = plan;
  runtime.part<GraphCaptures>().retain(lanes.origin(), std::move(resources));

  // A stream of the library's own must not become part of the capture: other threads use it.
  const std::size_t operand_lanes = operands.lanes.size();
  for (const LaneId beside : plan->beside) operands.lanes.push_back(operands.lanes[beside]);
  stand_ins.keep_operands(operands.lanes);
  stand_ins.copy_in(runtime, operands.lanes);
  PlanLauncher(runtime, *plan, operands).run();
  stand_ins.copy_back(runtime, operands.lanes);
  operands.lanes.resize(operand_lanes);
  lanes.bring_back();
}

std::optional<team::ProcessTurn> take_turn(Runtime& runtime, const Plan& plan, const Operands& operands) {
  if (const team::RoundPlan& rounds = *rounds_of(plan);
      rounds.protocol == team::Protocol::direct &&
      !plan.process_rounds->team->may_expose(rounds, operands.addresses))
    return std::nullopt;
  runtime.part<LateReleases>().release();
  team::ProcessTurn turn;
  turn.streams.reserve(operands.lanes.size());
  for (const LaneId lane : plan.process_rounds->lanes) turn.streams.push_back(operands.lanes[lane]);
  // Before the turn: what frees memory may ask whether anybody has one.
  turn.temporaries = allocate_temporaries(runtime, plan, turn.streams);
  turn.lock = plan.process_rounds->team->take_turn(turn.streams);
  if (!turn.lock.owns_lock()) return std::nullopt;
  return turn;
}

void launch_rounds(Runtime& runtime, const Plan& plan, Operands& operands, team::ProcessTurn& turn) {
  const backend::DeviceScope scope(runtime.backend());
  bind_temporaries(operands, turn.temporaries);
  operands.lanes.swap(turn.streams);
  try {
    plan.process_rounds->team->launch(
        operands.lanes, [&](const TeamBinding& call) { PlanLauncher(runtime, plan, operands, &call).run(); });
  } catch (...) {
    record_all_uses(operands);
    throw;
  }
  record_uses(plan, operands);
  operands.lanes.swap(turn.streams);
}

void launch_of_team(Runtime& runtime, const Plan& plan, Operands& operands,
                    std::span<const detail::IntrusivePtr<Storage>> temporaries, const TeamBinding& team) {
  if (team.launcher.is_captured() && !temporaries.empty()) {
    const auto kept =
        std::make_shared<std::vector<detail::IntrusivePtr<Storage>>>(temporaries.begin(), temporaries.end());
    for (const backend::StreamRef stream : team.launcher.captured())
      runtime.part<GraphCaptures>().retain(stream, kept);
  }
  bind_temporaries(operands, temporaries);
  const backend::DeviceScope scope(runtime.backend());
  PlanLauncher(runtime, plan, operands, &team).run();
  if (rounds_of(plan) == nullptr) team.launcher.finish(team.sequence, operands.lanes);
}

void launch_body(Runtime& runtime, const Plan& plan, Operands& operands, backend::StreamRef home,
                 std::span<const detail::IntrusivePtr<Storage>> temporaries, const StandIns& stand_ins) {
  const backend::DeviceScope scope(runtime.backend());
  bind_temporaries(operands, temporaries);
  operands.lanes[plan.home_lane] = home;
  const auto fork = [&](LaneId lane) { runtime.part<Streams>().order(home, operands.lanes[lane]); };
  const auto join = [&](LaneId lane) { runtime.part<Streams>().order(operands.lanes[lane], home); };
  stand_ins.visit_lanes(fork);
  stand_ins.copy_in(runtime, operands.lanes);
  stand_ins.visit_lanes(join);
  std::ranges::for_each(plan.used_lanes, fork);
  PlanLauncher(runtime, plan, operands).run_body();
  std::ranges::for_each(plan.used_lanes, join);
  stand_ins.visit_lanes(fork);
  stand_ins.copy_back(runtime, operands.lanes);
  stand_ins.visit_lanes(join);
}

}  // namespace tutti::transport
