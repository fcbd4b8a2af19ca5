#include "transport/ranks/team_plan.hpp"

#include "transport/lowering.hpp"
#include "transport/plan_builder.hpp"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <variant>

#include <fmt/format.h>

namespace tutti::transport::ranks {
namespace {

constexpr std::uint64_t staging_alignment = 512;

/// Finds out who records and who waits for each mark, and who touches staging memory.
class Projection {
 public:
  Projection(TeamPlan& team, std::span<const std::size_t> rank_of_member)
      : team_(team), rank_of_(rank_of_member) {
    team_.recorded_by.resize(team_.plan.mark_count);
    team_.flag_step.resize(team_.plan.mark_count, TeamPlan::not_shared);
    team_.flag_count.resize(rank_of_.size());
    team_.uses_staging.resize(rank_of_.size());
    for (const PlannedStep& planned : team_.plan.steps)
      std::visit([this](const auto& step) { take(step); }, planned.step);
    // In the order of recording, which is the order in which the flag grows.
    for (const PlannedStep& planned : team_.plan.steps) {
      const auto* const record = std::get_if<RecordStep>(&planned.step);
      if (record != nullptr && shared_[record->mark])
        team_.flag_step[record->mark] = ++team_.flag_count[record->lane];
    }
  }

 private:
  void take(const RecordStep& step) { team_.recorded_by[step.mark] = step.lane; }
  void take(const WaitStep& step) {
    if (rank_of_[step.lane] != rank_of_[team_.recorded_by[step.mark]]) shared_[step.mark] = true;
  }
  void take(const CopyStep& step) {
    touch(step.lane, step.source);
    touch(step.lane, step.target);
  }
  void take(const FanOutStep& step) {
    for (const Place& place : step.pointers) touch(step.lane, place);
  }
  void take(const SumStep& step) {
    for (const Place& place : step.pointers) touch(step.lane, place);
  }
  void take(const AcceleratedStep&) {}
  void touch(LaneId lane, Place place) {
    if (place.buffer >= team_.plan.operand_count) team_.uses_staging[lane] = true;
  }

  TeamPlan& team_;
  std::span<const std::size_t> rank_of_;
  std::map<MarkId, bool> shared_;
};

}  // namespace

std::shared_ptr<const TeamPlan> plan_for_team(const Problem& problem,
                                              std::span<const std::size_t> rank_of_member) {
  auto team = std::make_shared<TeamPlan>();
  PlanBuilder builder(problem);
  const Reach reach = std::equal_to<int>{};
  std::string algorithm;
  if (!problem.reductions.empty()) algorithm = lower_reductions(builder, reach);
  if (!problem.flows.empty()) algorithm += (algorithm.empty() ? "" : ", then ") + lower_flows(builder, reach);
  team->plan = builder.finish("staged", std::move(algorithm));
  for (const Temporary& temporary : team->plan.temporaries) {
    team->staging_offsets.push_back(team->staging_bytes);
    team->staging_bytes += (temporary.bytes + staging_alignment - 1) / staging_alignment * staging_alignment;
  }
  const Projection projection(*team, rank_of_member);
  return team;
}

/// One launch of one plan.
class TeamLauncher::Run {
 public:
  Run(TeamLauncher& launcher, std::uint64_t sequence, const TeamPlan& plan,
      std::span<std::byte* const> addresses, std::span<const backend::StreamRef> streams)
      : launcher_(launcher),
        team_(launcher.team_),
        backend_(launcher.runtime_.backend()),
        sequence_(sequence),
        plan_(plan),
        addresses_(addresses.begin(), addresses.end()),
        streams_(streams),
        events_(plan.plan.mark_count) {
    for (const std::uint64_t offset : plan.staging_offsets)
      addresses_.push_back(team_.staging(sequence) + offset);
  }
  Run(const Run&) = delete;
  Run& operator=(const Run&) = delete;
  ~Run() {
    for (std::size_t mark = 0; mark < events_.size(); ++mark) {
      if (events_[mark]) launcher_.runtime_.events().release(events_[mark]->device, events_[mark]->handle);
    }
  }

  void run() {
    for (const PlannedStep& planned : plan_.plan.steps) {
      std::visit([this](const auto& step) { take(step); }, planned.step);
    }
  }

 private:
  struct Event {
    backend::EventHandle handle = nullptr;
    int device = 0;
  };

  [[nodiscard]] bool is_local(LaneId lane) const { return team_.is_local(lane); }
  [[nodiscard]] backend::StreamRef stream(LaneId lane) const { return streams_[lane - team_.first_local()]; }
  [[nodiscard]] std::byte* at(Place place) const { return addresses_[place.buffer] + place.offset; }

  void take(const RecordStep& step) {
    if (!is_local(step.lane)) return;
    const std::uint32_t flag_step = plan_.flag_step[step.mark];
    if (flag_step != TeamPlan::not_shared) {
      backend_.set_flag(stream(step.lane), team_.flags(step.lane).marks,
                        launcher_.marks_[step.lane] + flag_step);
    }
    if (team_.local_count() == 1) return;
    const int device = stream(step.lane).device;
    events_[step.mark] = {launcher_.runtime_.events().acquire(device), device};
    backend_.record_event(events_[step.mark]->handle, stream(step.lane));
  }
  void take(const WaitStep& step) {
    if (!is_local(step.lane)) return;
    const LaneId from = plan_.recorded_by[step.mark];
    if (from == step.lane) return;
    if (is_local(from)) return backend_.wait_event(stream(step.lane), events_[step.mark]->handle);
    backend_.wait_flag(stream(step.lane), team_.flags(from).marks,
                       launcher_.marks_[from] + plan_.flag_step[step.mark], team_.abort_word());
  }
  void take(const CopyStep& step) {
    if (!is_local(step.lane)) return;
    prepare_staging(step.lane);
    backend_.copy(stream(step.lane), {.target = at(step.target),
                                      .target_pitch = step.target_pitch,
                                      .source = at(step.source),
                                      .source_pitch = step.source_pitch,
                                      .row_bytes = step.row_bytes,
                                      .rows = step.rows});
  }
  void take(const FanOutStep& step) {
    if (!is_local(step.lane)) return;
    prepare_staging(step.lane);
    backend_.fan_out(stream(step.lane), {.segments = step.segments, .pointers = resolve(step.pointers)});
  }
  void take(const SumStep& step) {
    if (!is_local(step.lane)) return;
    prepare_staging(step.lane);
    backend_.ordered_sum(stream(step.lane), {.dtype = step.dtype,
                                             .input_count = step.input_count,
                                             .output_count = 1,
                                             .segments = step.segments,
                                             .pointers = resolve(step.pointers)});
  }
  void take(const AcceleratedStep&) {
    throw Error(ErrorCode::internal, "TeamLauncher: a plan between processes has no accelerated steps");
  }

  /// The half of the staging memory that this call uses was used last two calls ago, and all must be done
  /// with it.
  void prepare_staging(LaneId lane) {
    if (prepared_[lane] || !plan_.uses_staging[lane] || sequence_ <= 2) return;
    prepared_[lane] = true;
    for (std::size_t member = 0; member < team_.member_count(); ++member) {
      if (member != lane) launcher_.wait_until_done(member, sequence_ - 2, stream(lane));
    }
  }

  std::span<std::byte* const> resolve(const std::vector<Place>& places) {
    pointers_.clear();
    for (const Place place : places) pointers_.push_back(at(place));
    return pointers_;
  }

  TeamLauncher& launcher_;
  Team& team_;
  backend::Backend& backend_;
  std::uint64_t sequence_;
  const TeamPlan& plan_;
  std::vector<std::byte*> addresses_;
  std::span<const backend::StreamRef> streams_;
  std::vector<std::optional<Event>> events_;
  std::vector<std::byte*> pointers_;
  std::map<LaneId, bool> prepared_;
};

TeamLauncher::TeamLauncher(Runtime& runtime, Team& team)
    : runtime_(runtime), team_(team), marks_(team.member_count()) {}

void TeamLauncher::launch(std::uint64_t sequence, const TeamPlan& plan, std::span<std::byte* const> addresses,
                          std::span<const backend::StreamRef> streams) {
  const std::uint64_t room = team_.member_count() * team_.staging_bytes_per_member();
  if (plan.staging_bytes > room) {
    throw Error(ErrorCode::internal,
                fmt::format("TeamLauncher: a plan needs {} bytes of staging memory, there are {}",
                            plan.staging_bytes, room));
  }
  begin(streams);
  Run(*this, sequence, plan, addresses, streams).run();
  for (std::size_t member = 0; member < marks_.size(); ++member) marks_[member] += plan.flag_count[member];
  end(sequence, streams);
}

void TeamLauncher::launch_barrier(std::uint64_t sequence, std::span<const backend::StreamRef> streams) {
  begin(streams);
  end(sequence, streams);
  for (const backend::StreamRef stream : streams) {
    for (std::size_t member = 0; member < team_.member_count(); ++member)
      wait_until_done(member, sequence, stream);
  }
}

/// Calls of one member follow one another, whatever streams they are made on: its flags count them.
void TeamLauncher::begin(std::span<const backend::StreamRef> streams) {
  for (std::size_t i = 0; i < latest_streams_.size(); ++i) runtime_.order(latest_streams_[i], streams[i]);
  latest_streams_.assign(streams.begin(), streams.end());
}

void TeamLauncher::end(std::uint64_t sequence, std::span<const backend::StreamRef> streams) {
  for (std::size_t i = 0; i < streams.size(); ++i) {
    runtime_.backend().set_flag(streams[i], team_.flags(team_.first_local() + i).done,
                                static_cast<std::uint32_t>(sequence));
  }
}

void TeamLauncher::wait_until_done(std::size_t member, std::uint64_t sequence, backend::StreamRef stream) {
  runtime_.backend().wait_flag(stream, team_.flags(member).done, static_cast<std::uint32_t>(sequence),
                               team_.abort_word());
}

}  // namespace tutti::transport::ranks
