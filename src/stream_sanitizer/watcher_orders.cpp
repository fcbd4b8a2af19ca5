// SPDX-License-Identifier: Apache-2.0
#include "stream_sanitizer/watcher.hpp"

#include <utility>

/// Orders streams, and the host.
namespace tutti::stream_sanitizer {

struct Watcher::Meeting {
  std::vector<Place> places;
  std::vector<VectorClock> clocks;
};

VectorClock Watcher::clock_of(const Place& place) {
  const std::lock_guard lock(mutex_);
  const WatchedStream* const stream = stream_at(place);
  return stream == nullptr ? VectorClock{} : stream->clock;
}

VectorClock Watcher::clock_of_device(int device) {
  const std::lock_guard lock(mutex_);
  return live_.clock_of(device);
}

VectorClock Watcher::clock_of_event(backend::EventHandle event) {
  const std::lock_guard lock(mutex_);
  const auto mark = marks_.find(event);
  if (mark == marks_.end() || mark->second.capture != live) return {};
  VectorClock clock = mark->second.clock;
  if (mark->second.is_shared) clock.join(foreign_);
  return clock;
}

void Watcher::host_waited(const VectorClock& clock) {
  const std::lock_guard lock(mutex_);
  live_.host_waited(clock);
}

void Watcher::own_poll_saw(const VectorClock& clock) {
  const std::lock_guard lock(mutex_);
  seen_by_library_.join(clock);
}

void Watcher::join(const Place& place, const VectorClock& clock) {
  if (WatchedStream* const stream = stream_at(place)) stream->clock.join(clock);
}

void Watcher::record_event(backend::EventHandle event, const Place& place) {
  const std::lock_guard lock(mutex_);
  const WatchedStream* const stream = stream_at(place);
  Mark& mark = marks_[event];
  mark.was_recorded = true;
  mark.capture = place.capture;
  mark.clock = stream == nullptr ? VectorClock{} : stream->clock;
  mark.recorded_on = place.key.stream;
  mark.is_default = place.is_default;
  if (mark.is_shared) foreign_.join(mark.clock);
}

void Watcher::wait_event(backend::EventHandle event, const Place& place) {
  const std::lock_guard lock(mutex_);
  const auto found = marks_.find(event);
  const Mark mark = found == marks_.end() ? Mark{} : found->second;
  Place joined = place;
  if (mark.was_recorded && mark.capture != live) joined.capture = mark.capture;
  WatchedStream* const stream = stream_at(joined);
  if (stream == nullptr) return;
  stream->last_wait = WaitSeen{mark.was_recorded, mark.recorded_on, mark.is_default};
  // An event from before a capture orders nothing in it.
  if (joined.capture == mark.capture) stream->clock.join(mark.clock);
  if (mark.is_shared) stream->clock.join(foreign_);
}

void Watcher::share_event(backend::EventHandle event) {
  const std::lock_guard lock(mutex_);
  marks_[event].is_shared = true;
}

void Watcher::forget_event(backend::EventHandle event) {
  const std::lock_guard lock(mutex_);
  marks_.erase(event);
}

void Watcher::signal(const backend::SharedFlag& flag, const Place& place) {
  const std::lock_guard lock(mutex_);
  if (const WatchedStream* const stream = stream_at(place)) signals_[&flag] = stream->clock;
}

void Watcher::wait_signals(std::span<backend::SharedFlag> flags, const Place& place) {
  const std::lock_guard lock(mutex_);
  for (const backend::SharedFlag& flag : flags) {
    if (const auto signal = signals_.find(&flag); signal != signals_.end()) join(place, signal->second);
  }
}

void Watcher::order(const Place& earlier, const Place& later) {
  const std::lock_guard lock(mutex_);
  if (earlier.capture != later.capture) return;
  const WatchedStream* const stream = stream_at(earlier);
  if (stream == nullptr) return;
  const VectorClock clock = stream->clock;
  join(later, clock);
}

std::shared_ptr<void> Watcher::begin_meeting(std::span<const Place> places) {
  auto meeting = std::make_shared<Meeting>();
  const std::lock_guard lock(mutex_);
  for (const Place& place : places) {
    const WatchedStream* const stream = stream_at(place);
    meeting->places.push_back(place);
    meeting->clocks.push_back(stream == nullptr ? VectorClock{} : stream->clock);
  }
  return meeting;
}

void Watcher::end_meeting(const std::shared_ptr<void>& meeting,
                          std::span<const backend::MeetingOrder> orders) {
  const auto& [places, clocks] = *static_cast<const Meeting*>(meeting.get());
  const std::lock_guard lock(mutex_);
  for (const auto& [earlier, later] : orders) {
    if (places[earlier].capture == places[later].capture) join(places[later], clocks[earlier]);
  }
}

void Watcher::retire(const StreamKey& key) {
  const std::lock_guard lock(mutex_);
  live_.retire(key);
}

}  // namespace tutti::stream_sanitizer
