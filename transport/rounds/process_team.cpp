// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/process_team.hpp"

#include "base/patience.hpp"
#include "device/blocking_call.hpp"
#include "device/external_streams.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/probes/launch_probe.hpp"
#include "transport/rounds/team_capabilities.hpp"
#include "transport/team/calls/live_teams.hpp"
#include "transport/team/registrations/deferred_frees.hpp"
#include "transport/team/registrations/registrations.hpp"
#include "transport/team/shared/signature.hpp"
#include "tutti/error.hpp"
#include "tutti/sync_debug.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <string_view>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

TeamSettings settings_of_process(std::span<const int> devices) {
  return {.timeout = longest_limit,
          .patience = longest_limit,
          .window_bytes = process_window_bytes,
          .transport = TransportKind::p2p,
          .devices = {devices.begin(), devices.end()},
          .is_posted = false};
}

}  // namespace

ProcessTeam::ProcessTeam(Runtime& runtime, std::span<const int> devices)
    : runtime_(runtime),
      team_(runtime, alone_, settings_of_process(devices)),
      launcher_(runtime, team_),
      capabilities_(capabilities_of(team_, runtime.backend().kind())) {
  capabilities_.may_relay = false;
  capabilities_.most_exposed = Registrations::most_exposed;  // nothing of it has to be opened
}

ProcessTeam::~ProcessTeam() {
  launcher_.mark();
  while (!launcher_.has_passed()) {
    runtime_.backend().wait_elsewhere();
    std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

std::unique_lock<std::mutex> ProcessTeam::take_turn(std::span<const backend::StreamRef> streams) {
  // The holder of the lock may be waiting for the devices.
  std::unique_lock turn(team_.calls().mutex(), std::try_to_lock);
  if (!turn.owns_lock()) return turn;
  if (team_.abort().is_set() || !launcher_.may_follow_on(streams)) turn.unlock();
  return turn;
}

void ProcessTeam::end_after(const backend::Escaped& escaped,
                            std::span<const backend::StreamRef> streams) noexcept {
  std::array<char, sizeof(backend::AbortReason::bytes)> text{};
  const auto end = fmt::format_to_n(text.data(), text.size(),
                                    "a call could not be launched on all of its devices: {}", escaped.what);
  team_.abort().set(escaped.code, {text.data(), end.out});
  team_.live_teams().stop_counting(team_.calls());
  try {
    launcher_.end(streams);
  } catch (const std::exception&) {
    // A stream that takes nothing more has failed, and with it what it has taken.
  }
}

ProcessTeams::ProcessTeams(Runtime& runtime) : runtime_(runtime) {
  // Teams use them until their end, so they have to be there before and go later.
  static_cast<void>(runtime.part<LiveTeams>());
  static_cast<void>(runtime.part<DeferredFrees>());
}

ProcessTeams::Found ProcessTeams::find_or_make(std::span<const int> devices) {
  const std::lock_guard lock(mutex_);
  auto entry = std::ranges::find_if(
      entries_, [&](const Entry& known) { return std::ranges::equal(known.devices, devices); });
  if (entry == entries_.end()) {
    const auto teams =
        std::ranges::count_if(entries_, [](const Entry& known) { return known.team != nullptr; });
    if (static_cast<std::size_t>(teams) >= most_teams)
      return {.refusal =
                  fmt::format("{} other sets of devices have windows, the most there can be", most_teams)};
    const bool is_captured =
        std::ranges::any_of(devices, [&](int device) { return has_capture_on(runtime_.backend(), device); });
    if (is_captured)
      return {.refusal = "windows are not made while something is captured", .is_for_now = true};
    if (get_sync_debug_mode() == SyncDebugMode::error)
      return {.refusal = "windows are not made while calls must not block", .is_for_now = true};
    entry = entries_.insert(entries_.end(), make(devices));
  }
  return {.team = entry->team.get(), .refusal = entry->refusal};
}

ProcessTeams::Entry ProcessTeams::make(std::span<const int> devices) const {
  const BlockingCall blocks("the first call by rounds among these devices, which makes windows there");
  Entry entry{.devices = {devices.begin(), devices.end()}, .team = nullptr, .refusal = {}};
  try {
    if (devices.size() > most_local_members) {
      entry.refusal = fmt::format("more than {} devices", most_local_members);
    } else if (runtime_.part<LaunchProbe>().find(devices) != Launching::from_one_thread) {
      entry.refusal = launches_block;
    } else {
      entry.team = std::make_unique<ProcessTeam>(runtime_, devices);
    }
  } catch (const std::exception& error) {
    constexpr std::string_view prefix = "Communicator: ";
    std::string_view what = error.what();
    if (what.starts_with(prefix)) what.remove_prefix(prefix.size());
    entry.refusal = fmt::format("there are no windows: {}", what);
  }
  return entry;
}

}  // namespace tutti::transport::team
