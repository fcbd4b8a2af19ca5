// SPDX-License-Identifier: Apache-2.0
#include "transport/team/calls/live_teams.hpp"

#include "stream/event_pool.hpp"
#include "transport/team/calls/call_log.hpp"

#include <algorithm>
#include <utility>

namespace tutti::transport::team {

LiveTeams::LiveTeams(Runtime& runtime)
    : runtime_(runtime), closes_(runtime.part<QuietCloses>().shared_from_this()) {
  for (int device = 0; device < runtime.device_count(); ++device) {
    const int multiprocessors = runtime.backend().properties(device).multiprocessor_count;
    rooms_.emplace_back(static_cast<std::uint32_t>(std::max(multiprocessors, 0)));
  }
}

void LiveTeams::add(CallLog& calls, std::span<const int> devices) {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(has_gates_, true)) {
    // Either object may be gone before the other.
    const auto gate_of = [weak = weak_from_this()](const auto& ask) {
      return [weak, ask](const std::function<void()>& work) {
        if (const auto teams = weak.lock()) return ask(*teams, work);
        work();
        return true;
      };
    };
    closes_->set_gates(gate_of([](LiveTeams& teams, const auto& work) { return teams.while_none(work); }),
                       gate_of([](LiveTeams& teams, const auto& work) {
                         return teams.while_idle(nullptr, work) == Attempt::done;
                       }));
  }
  teams_.push_back({.calls = &calls, .devices = {devices.begin(), devices.end()}});
  for (const int device : devices) room_on(device).add(&calls, [&calls] { return calls.end_of_announced(); });
}

void LiveTeams::remove(const CallLog& calls) noexcept {
  const std::lock_guard lock(mutex_);
  const auto entry = std::ranges::find(teams_, &calls, &Entry::calls);
  if (entry == teams_.end()) return;
  leave_rooms(*entry);
  teams_.erase(entry);
}

void LiveTeams::stop_counting(const CallLog& calls) noexcept {
  const std::lock_guard lock(mutex_);
  const auto entry = std::ranges::find(teams_, &calls, &Entry::calls);
  if (entry == teams_.end()) return;
  leave_rooms(*entry);
  entry->devices.clear();
}

void LiveTeams::leave_rooms(const Entry& entry) noexcept {
  for (const int device : entry.devices) room_on(device).remove(entry.calls);
}

void LiveTeams::note_end(const CallLog& calls, backend::StreamRef stream) {
  const auto event = std::make_shared<PooledEvent>(runtime_.part<EventPool>(), stream.device);
  event->record(stream);
  room_on(stream.device).note_end(&calls, [event, &backend = runtime_.backend()] {
    return backend.has_passed(event->handle());
  });
}

bool LiveTeams::while_none(const std::function<void()>& work) {
  const std::lock_guard lock(mutex_);
  if (!teams_.empty()) return false;
  work();
  return true;
}

Attempt LiveTeams::while_idle(const CallLog* asker, const std::function<void()>& work) {
  const std::lock_guard lock(mutex_);
  std::vector<CallLog*> asked;
  for (const Entry& team : teams_) {
    if (team.calls == asker || !team.calls->is_over()) asked.push_back(team.calls);
  }
  if (std::ranges::any_of(asked, [](const CallLog* calls) { return calls->may_wait_any_time(); }))
    return Attempt::not_soon;
  // Looks closely at all of them before calls of any have to wait.
  if (!std::ranges::all_of(asked, [](CallLog* calls) { return calls->is_idle(); })) return Attempt::not_now;
  std::vector<std::unique_lock<std::mutex>> held;
  for (CallLog* const calls : asked) {
    held.push_back(calls->hold_if_idle());
    if (!held.back().owns_lock()) return Attempt::not_now;
  }
  work();
  return Attempt::done;
}

}  // namespace tutti::transport::team
