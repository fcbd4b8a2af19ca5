// SPDX-License-Identifier: Apache-2.0
#include "transport/steps/launch.hpp"

#include "jit_combination.hpp"
#include "log.hpp"
#include "storage.hpp"
#include "transport/rounds/round_launcher.hpp"
#include "transport/steps/crew.hpp"
#include "transport/steps/signals.hpp"

#include <algorithm>
#include <exception>
#include <type_traits>

#include <fmt/format.h>

namespace tutti::transport {
namespace {

/// The events of one launch; back in the pool when it is enqueued, because a wait remembers what it saw.
class Marks {
 public:
  Marks(Runtime& runtime, std::size_t count) : runtime_(runtime), marks_(count) {}

  void record(MarkId id, backend::StreamRef stream) {
    Mark& mark = marks_[id];
    mark = {PooledEvent(runtime_.events(), stream.device), stream};
    runtime_.backend().record_event(mark.event.handle(), stream);
  }
  void wait(MarkId id, backend::StreamRef stream) {
    // Lanes may share a stream (captures, replays), and then its own order is enough.
    if (marks_[id].stream != stream) runtime_.wait_event(stream, marks_[id].event.handle());
  }

 private:
  struct Mark {
    PooledEvent event;
    backend::StreamRef stream;
  };
  Runtime& runtime_;
  std::vector<Mark> marks_;
};

class Launcher {
 public:
  Launcher(Runtime& runtime, const Plan& plan, const Operands& operands, const TeamBinding* team = nullptr)
      : runtime_(runtime),
        backend_(runtime.backend()),
        combination_(ReduceOpAccess::combination(operands.operation)),
        binding_{backend_,       operands.addresses,
                 operands.lanes, {operands.operation.kind(), operands.operation.factors()},
                 team,           plan.most_multiprocessors},
        marks_(runtime, plan.mark_count) {}

  void run(const std::vector<PlannedStep>& steps) {
    for (const PlannedStep& planned : steps) run(planned.step);
  }
  void run_body(const std::vector<PlannedStep>& steps) {
    for (const PlannedStep& planned : steps) {
      if (planned.phase == Phase::body) run(planned.step);
    }
  }

 private:
  void run(const Step& step) {
    std::visit([this](const auto& s) { enqueue(s); }, step);
  }
  [[nodiscard]] backend::StreamRef stream(LaneId lane) const { return binding_.lanes[lane]; }

  void enqueue(const RecordStep& step) { marks_.record(step.mark, stream(step.lane)); }
  void enqueue(const WaitStep& step) { marks_.wait(step.mark, stream(step.lane)); }
  void enqueue(const CopyStep& step) {
    backend_.copy(stream(step.lane), {.target = binding_.at(step.target),
                                      .target_pitch = step.target_pitch,
                                      .source = binding_.at(step.source),
                                      .source_pitch = step.source_pitch,
                                      .row_bytes = step.row_bytes,
                                      .rows = step.rows});
  }
  void enqueue(const FanOutStep& step) {
    backend_.fan_out(stream(step.lane), {.segments = step.segments,
                                         .pointers = resolve(step.pointers),
                                         .most_multiprocessors = binding_.most_multiprocessors});
  }
  void enqueue(const ReductionStep& step) {
    if (combination_ != nullptr) return combine(step);
    backend_.ordered_reduction(stream(step.lane), {.dtype = step.dtype,
                                                   .reducing = binding_.reducing,
                                                   .input_count = step.input_count,
                                                   .output_count = 1,
                                                   .segments = step.segments,
                                                   .pointers = resolve(step.pointers),
                                                   .most_multiprocessors = binding_.most_multiprocessors});
  }
  void enqueue(const AcceleratedStep& step) { step.work->enqueue(binding_); }
  void enqueue(const RoundsStep& step) {
    binding_.team->launcher.launch(binding_.team->sequence, *step.rounds, binding_);
  }

  /// By the compiled operation: a kernel for each segment.
  void combine(const ReductionStep& step) {
    const std::span<std::byte* const> pointers = resolve(step.pointers);
    for (const backend::OrderedReductionSegment& segment : step.segments) {
      const auto inputs = pointers.subspan(segment.first_input, step.input_count);
      const std::vector<const void*> operands(inputs.begin(), inputs.end());
      combination_->run(runtime_, stream(step.lane), step.dtype, pointers[segment.first_output], operands,
                        segment.count);
    }
  }

  /// The addresses behind a kernel's places; valid until the next call.
  std::span<std::byte* const> resolve(const std::vector<Place>& places) {
    pointers_.resize(places.size());
    std::ranges::transform(places, pointers_.begin(), [this](Place place) { return binding_.at(place); });
    return pointers_;
  }

  Runtime& runtime_;
  backend::Backend& backend_;
  const JitCombination* combination_;
  Binding binding_;
  Marks marks_;
  std::vector<std::byte*> pointers_;
};

/// Orders the plan's star by `flags` and enqueues its body. Every wait is enqueued after what it waits for.
void launch_star(Runtime& runtime, const Plan& plan, const Operands& operands, const Signals::Flags& flags,
                 Crew::Shift& shift) {
  backend::Backend& backend = runtime.backend();
  const backend::StreamRef hub = operands.lanes[plan.hub_lane];
  const auto& [before, after] = *plan.star;
  shift.for_each(before.size(), [&](std::size_t i) {
    backend.signal(operands.lanes[before[i]], flags.ready[i], flags.value);
  });
  if (!before.empty()) runtime.wait_signals(hub, flags.ready, flags.value);
  Launcher(runtime, plan, operands).run_body(plan.steps);
  backend.signal(hub, *flags.done, flags.value);
  shift.for_each(after.size(), [&](std::size_t i) {
    runtime.wait_signals(operands.lanes[after[i]], {flags.done, 1}, flags.value);
  });
}

void launch_steps(Runtime& runtime, const Plan& plan, const Operands& operands) {
  if (plan.signals != SignalUse::never) {
    // Helpers would take such a lane for one of their own.
    const bool has_thread_stream = std::ranges::any_of(operands.lanes, [&](backend::StreamRef lane) {
      return runtime.backend().is_of_calling_thread(lane);
    });
    const auto& [before, after] = *plan.star;
    Crew::Shift shift(runtime.extension<Crew>(), has_thread_stream ? 0 : before.size() + after.size());
    if (plan.signals == SignalUse::always || shift.has_help()) {
      const auto flags = runtime.extension<Signals>().take(before.size());
      if (flags) return launch_star(runtime, plan, operands, *flags, shift);
    }
  }
  Launcher(runtime, plan, operands).run(plan.steps);
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
    operands.lanes.push_back(runtime.extension<SideStreams>().beside(operands.lanes[plan.beside[k]], k));
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

/// What a captured launch needs for as long as its graph may run.
struct CapturedResources {
  std::vector<detail::IntrusivePtr<Storage>> storages;
  std::shared_ptr<const Plan> plan;  // a recorded NCCL call may point into it
};

}  // namespace

SideStreams::SideStreams(Runtime& runtime)
    : runtime_(runtime), devices_(static_cast<std::size_t>(runtime.device_count())) {}

SideStreams::~SideStreams() {
  for (const PerDevice& device : devices_) {
    for (const backend::StreamRef stream : device.streams) runtime_.backend().destroy_stream(stream);
  }
}

backend::StreamRef SideStreams::beside(backend::StreamRef stream, std::size_t k) {
  const std::scoped_lock lock(mutex_);
  PerDevice& device = devices_[static_cast<std::size_t>(stream.device)];
  const auto known = device.index.find({stream.handle, k});
  if (known != device.index.end()) return device.streams[known->second];
  const std::size_t chosen = device.next % most_per_device;
  if (chosen == device.streams.size())
    device.streams.push_back(runtime_.backend().create_stream(stream.device, 0));
  ++device.next;
  // Whoever had this one before gets another next time.
  std::erase_if(device.index, [chosen](const auto& entry) { return entry.second == chosen; });
  device.index[{stream.handle, k}] = chosen;
  return device.streams[chosen];
}

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
      storages.push_back(DeviceStorage::allocate(runtime, device, temporary.bytes, lanes[temporary.lane]));
    }
  }
  return storages;
}

void launch(Runtime& runtime, const std::shared_ptr<const Plan>& plan, Operands& operands) {
  runtime.release_collected();
  const auto temporaries = allocate_temporaries(runtime, *plan, operands.lanes);
  bind_temporaries(operands, temporaries);
  const backend::DeviceScope scope(runtime.backend());
  bind_side_lanes(runtime, *plan, operands);
  try {
    launch_steps(runtime, *plan, operands);
  } catch (...) {
    record_all_uses(operands);
    throw;
  }
  record_uses(*plan, operands);
}

void launch_captured(Runtime& runtime, const std::shared_ptr<const Plan>& plan, Operands& operands,
                     JoinedLanes& lanes) {
  runtime.release_collected();
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
  runtime.retain_until_graph_destroyed(lanes.origin(), std::move(resources));

  // A stream of the library's own must not become part of the capture: other threads use it.
  const std::size_t operand_lanes = operands.lanes.size();
  for (const LaneId beside : plan->beside) operands.lanes.push_back(operands.lanes[beside]);
  Launcher(runtime, *plan, operands).run(plan->steps);
  operands.lanes.resize(operand_lanes);
  lanes.bring_back();
}

std::optional<team::ProcessTurn> take_turn(Runtime& runtime, const Plan& plan, const Operands& operands) {
  if (const team::RoundPlan& rounds = *rounds_of(plan);
      rounds.protocol == team::Protocol::direct &&
      !plan.process_rounds->team->may_give(rounds, operands.addresses))
    return std::nullopt;
  runtime.release_collected();
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
    plan.process_rounds->team->launch(operands.lanes, [&](const TeamBinding& call) {
      Launcher(runtime, plan, operands, &call).run(plan.steps);
    });
  } catch (...) {
    record_all_uses(operands);
    throw;
  }
  record_uses(plan, operands);
  operands.lanes.swap(turn.streams);
}

void launch_of_team(Runtime& runtime, const Plan& plan, Operands& operands,
                    std::span<const detail::IntrusivePtr<Storage>> temporaries, const TeamBinding& team) {
  const auto capture = team.launcher.captured();
  if (capture && !temporaries.empty()) {
    runtime.retain_until_graph_destroyed(
        *capture,
        std::make_shared<std::vector<detail::IntrusivePtr<Storage>>>(temporaries.begin(), temporaries.end()));
  }
  bind_temporaries(operands, temporaries);
  Launcher(runtime, plan, operands, &team).run(plan.steps);
  if (rounds_of(plan) == nullptr) team.launcher.finish(team.sequence, operands.lanes);
}

void launch_body(Runtime& runtime, const Plan& plan, Operands& operands, backend::StreamRef home,
                 std::span<const detail::IntrusivePtr<Storage>> temporaries) {
  const backend::DeviceScope scope(runtime.backend());
  bind_temporaries(operands, temporaries);
  operands.lanes[plan.home_lane] = home;
  for (const LaneId lane : plan.used_lanes) runtime.order(home, operands.lanes[lane]);
  Launcher(runtime, plan, operands).run_body(plan.steps);
  for (const LaneId lane : plan.used_lanes) runtime.order(operands.lanes[lane], home);
}

}  // namespace tutti::transport
