// SPDX-License-Identifier: Apache-2.0
#include "collectives/process/process_call.hpp"

#include "allocator/graph_pools/graph_captures.hpp"
#include "backend/work_label.hpp"
#include "collectives/call/describe.hpp"
#include "device/current_device.hpp"
#include "diagnostics/watching.hpp"
#include "stream/thread_streams.hpp"
#include "transport/launch/stand_ins.hpp"
#include "transport/plan/plan_builder.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/select/select.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tutti::collectives {
namespace {

thread_local std::shared_ptr<const transport::Plan> last_launched;
thread_local bool last_has_stand_ins = false;

}  // namespace

Call::Call(Runtime& runtime, Collective collective, std::string_view name, const CollectiveOptions& options,
           std::size_t columns)
    : runtime_(&runtime), options_(options), request_(collective, name, columns) {}

Call Call::of_nothing(Runtime& runtime, Collective collective, std::string_view name,
                      const CollectiveOptions& options) {
  Call call(runtime, collective, name, options);
  call.add_row(Device(index_of(runtime, Device::current(), name)));
  call.mark_root();
  call.add(nullptr, nullptr);
  return call;
}

void Call::add_row(Device device) {
  if (device.is_host()) {
    row_stream_.reset();
    start_row(transport::host_lane);
  } else {
    add_row(current_stream_ref(*runtime_, device.index()));
  }
}

void Call::add_row(backend::StreamRef stream) {
  auto& lanes = operands_.lanes;
  const auto found = std::ranges::find(lanes, stream);
  const auto lane = static_cast<transport::LaneId>(found - lanes.begin());
  if (found == lanes.end()) lanes.push_back(stream);
  row_stream_ = stream;
  start_row(lane);
}

void Call::start_row(transport::LaneId lane) {
  rows_.push_back({.lane = lane, .ready = lane});
  operands_.addresses.resize(next_ + columns());
  operands_.storages.resize(next_ + columns());
  last_storage_.reset();
}

void Call::add_result_row(backend::StreamRef own, std::uint64_t bytes) {
  add_row(own);
  if (bytes <= transport::largest_small_result && root_ != transport::host_lane) rows_.back().ready = root_;
  next_ += columns();
}

backend::StreamRef Call::first_use(std::size_t row) {
  const auto [lane, ready] = rows_[row];
  const bool is_own = ready == lane || launch_plan()->process_rounds;
  return operands_.lanes[is_own ? lane : root_];
}

void Call::return_to(std::size_t row) {
  next_ = row * columns();
  row_stream_ = stream_of(row);
  last_storage_.reset();
}

const std::optional<backend::StreamRef>& Call::capture() {
  if (!std::exchange(has_asked_for_capture_, true)) {
    const auto captured = std::ranges::find_if(
        operands_.lanes, [&](backend::StreamRef lane) { return runtime_->backend().is_capturing(lane); });
    if (captured != operands_.lanes.end()) capture_ = *captured;
  }
  return capture_;
}

void Call::join_capture() {
  if (joined_ != nullptr || !capture()) return;
  require_no_default_stream(*runtime_, operands_.lanes, request_.name);
  joined_ = std::make_unique<transport::JoinedLanes>(*runtime_, *capture_, operands_.lanes);
}

transport::PlanKey Call::key(transport::LaunchMode mode) const {
  constexpr std::size_t plain_numbers = 5;  // three beside the lists, and each list's length
  transport::PlanKey key(plain_numbers + operands_.lanes.size() + rows_.size() + request_.words());
  key.add(static_cast<std::uint64_t>(request_.collective) | static_cast<std::uint64_t>(mode) << 8U |
          static_cast<std::uint64_t>(options_.transport) << 16U |
          static_cast<std::uint64_t>(options_.determinism) << 24U | static_cast<std::uint64_t>(root_) << 32U |
          std::uint64_t{capture_.has_value()} << 48U);
  key.add(staging_bytes_);
  key.add(transport::most_multiprocessors_of(options_.multiprocessors));
  key.add(operands_.lanes.size());
  for (const backend::StreamRef lane : operands_.lanes) key.add(static_cast<std::uint64_t>(lane.device));
  key.add(rows_.size());
  for (const auto [lane, ready] : rows_) key.add(std::uint64_t{lane} | std::uint64_t{ready} << 32U);
  request_.add_to(key);
  return key;
}

transport::Problem Call::problem(transport::LaunchMode mode) const {
  transport::Problem problem;
  problem.collective = request_.collective;
  problem.name = request_.name;
  problem.mode = mode;
  problem.transport = options_.transport;
  problem.determinism = options_.determinism;
  problem.most_multiprocessors = transport::most_multiprocessors_of(options_.multiprocessors);
  problem.is_captured = capture_.has_value();
  problem.staging_bytes = staging_bytes_;
  problem.root = root_;
  for (const backend::StreamRef lane : operands_.lanes) problem.lane_devices.push_back(lane.device);
  problem.homes.reserve(rows_.size() * columns());
  problem.ready.reserve(rows_.size() * columns());
  for (const auto [lane, ready] : rows_) {
    problem.homes.insert(problem.homes.end(), columns(), lane);
    problem.ready.insert(problem.ready.end(), columns(), ready);
  }
  describe(request_, problem);
  return problem;
}

std::shared_ptr<const transport::Plan> Call::plan(transport::LaunchMode mode) const {
  return runtime_->part<transport::PlanCache>().find_or_make(key(mode), [&] {
    const transport::Problem what = problem(mode);
    if (what.flows.empty() && what.reductions.empty()) {
      transport::Plan nothing = transport::PlanBuilder(what).finish("none", "nothing to move");
      nothing.reasons = {"no bytes have to move"};
      return nothing;
    }
    return transport::select(*runtime_, what);
  });
}

const std::shared_ptr<const transport::Plan>& Call::launch_plan() {
  if (launch_plan_ == nullptr) {
    static_cast<void>(capture());
    launch_plan_ = plan(transport::LaunchMode::eager);
  }
  return launch_plan_;
}

void Call::launch() {
  last_launched = launch_plan();
  last_has_stand_ins = false;
  std::optional<transport::team::ProcessTurn> turn;
  if (last_launched->process_rounds) {
    turn = transport::take_turn(*runtime_, *last_launched, operands_);
    if (!turn) last_launched = last_launched->process_rounds->otherwise;
  }
  const watching::CallRange range([this] {
    return watching::WatchedCall{.runtime = runtime_,
                                 .name = request_.name,
                                 .bytes = request_.bytes(),
                                 .plan = last_launched->summary,
                                 .explain = [] { return transport::to_text(*last_launched); },
                                 .streams = operands_.lanes};
  });
  const backend::WorkLabel label(&request_, [](const void* request) {
    const auto& [transport, algorithm] = last_launched->summary;
    return fmt::format("{} by {} ({})", static_cast<const Request*>(request)->name, transport, algorithm);
  });
  if (turn) {
    transport::launch_rounds(*runtime_, *last_launched, operands_, *turn);
    return;
  }
  if (capture()) join_capture();
  transport::StandIns stand_ins;
  if (has_foreign_memory_)
    stand_ins = transport::StandIns(*runtime_, *last_launched, operands_, request_.name);
  last_has_stand_ins = !stand_ins.empty();
  if (last_has_stand_ins) range.note_stand_ins();
  if (capture()) {
    transport::launch_captured(*runtime_, last_launched, operands_, *joined_, stand_ins);
  } else {
    transport::launch(*runtime_, last_launched, operands_, stand_ins);
  }
}

}  // namespace tutti::collectives

namespace tutti {

PlanSummary last_plan() {
  if (collectives::last_launched == nullptr) return {};
  PlanSummary summary = collectives::last_launched->summary;
  if (collectives::last_has_stand_ins) summary.algorithm += transport::through_stand_ins;
  return summary;
}

}  // namespace tutti
