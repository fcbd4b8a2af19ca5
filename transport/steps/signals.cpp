// SPDX-License-Identifier: Apache-2.0
#include "transport/steps/signals.hpp"

#include "allocator/pinned_allocator.hpp"
#include "settings/log.hpp"
#include "transport/plan/tuning.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <memory>

namespace tutti::transport {
namespace {

/// Launches that may be under way at a time. A host that is further ahead has time for events.
constexpr std::size_t set_count = 128;

/// The fence before a signal is relied on for what a GPU has written over NVLink alone: over PCIe only the
/// way to each place keeps writes in order, and the flags lie elsewhere.
bool are_joined(const Plan& plan, const std::function<bool(int, int)>& have_nvlink) {
  const int hub = plan.lane_devices[plan.hub_lane];
  const auto is_joined = [&](LaneId lane) {
    const int device = plan.lane_devices[lane];
    return device == hub || have_nvlink(hub, device);
  };
  return std::ranges::all_of(plan.star->before, is_joined) &&
         std::ranges::all_of(plan.star->after, is_joined);
}

/// Threads that make calls for one device stand in each other's way.
bool are_on_different_devices(const Plan& plan) {
  std::vector<int> devices(plan.lane_devices);
  std::ranges::sort(devices);
  return std::ranges::adjacent_find(devices) == devices.end();
}

}  // namespace

Signals::Signals(Runtime& runtime) : runtime_(runtime), values_(set_count, 0) {
  void* const memory = runtime.part<PinnedAllocator>().allocate_uncached(set_count * sizeof(Set));
  if (memory == nullptr) {
    log_warning("no pinned memory for signals: launches use events");
    return;
  }
  auto* const sets = static_cast<Set*>(memory);
  std::uninitialized_value_construct_n(sets, set_count);
  sets_ = {sets, set_count};
}

Signals::~Signals() {
  if (sets_.empty()) return;
  for (int device = 0; device < runtime_.device_count(); ++device) {
    try {
      runtime_.backend().synchronize_device(device);  // streams may still look at the flags
    } catch (const Error&) {
      // Of work on a device that is about to be replaced.
    }
  }
  runtime_.backend().free_pinned(sets_.data());
}

std::optional<Signals::Flags> Signals::take(std::size_t lanes) {
  const std::scoped_lock lock(mutex_);
  if (sets_.empty()) return std::nullopt;
  const std::size_t chosen = next_;
  next_ = (next_ + 1) % set_count;
  Set& set = sets_[chosen];
  std::uint32_t& value = values_[chosen];
  // The end of a launch that failed half-way never comes, and its set is never reused: its lanes may signal
  // at any time.
  if (set.done.value.load(std::memory_order_acquire) != value) return std::nullopt;
  ++value;
  // A flag that smaller launches have left alone must not fall behind so far that it seems to be ahead.
  constexpr std::uint32_t often_enough = 1U << 30U;
  if (value % often_enough == 0) {
    for (backend::SharedFlag& flag : set.ready) flag.value.store(value - 1, std::memory_order_relaxed);
  }
  return Flags{std::span(set.ready).first(lanes), &set.done, value};
}

SignalUse choose_signals(const Plan& plan, SignalChoice choice, backend::SignalSupport support,
                         const std::function<bool(int, int)>& have_nvlink) {
  if (choice == SignalChoice::off || support == backend::SignalSupport::none || !plan.star)
    return SignalUse::never;
  const std::size_t before = plan.star->before.size();
  const std::size_t orders = before + plan.star->after.size();
  if (orders == 0 || before > Signals::most_lanes || !are_joined(plan, have_nvlink)) return SignalUse::never;
  if (choice == SignalChoice::on) return SignalUse::always;
  const bool pays = support == backend::SignalSupport::cheaper && orders >= signals_from_orders &&
                    are_on_different_devices(plan);
  return pays ? SignalUse::with_help : SignalUse::never;
}

}  // namespace tutti::transport
