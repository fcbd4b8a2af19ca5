// SPDX-License-Identifier: Apache-2.0
#include "stream_sanitizer/watched_backend.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <memory>

#include <fmt/format.h>

/// Streams, events, signals and graphs of a watched backend.
///
/// Who waits has waited for what was queued before the call, not for what other threads have queued
/// meanwhile: so clocks are read before, and taken over behind it.
namespace tutti::stream_sanitizer {

/// A host function on its way. Whoever it wakes knows that all before it is done.
struct WatchedBackend::HostCall {
  WatchedBackend& backend;
  VectorClock clock;
  void (*function)(void*);
  void* argument;

  static void run(void* object) {
    const std::unique_ptr<HostCall> call(static_cast<HostCall*>(object));
    call->backend.follow([&] { call->backend.watcher_.host_waited(call->clock); });
    call->function(call->argument);
  }
};

std::optional<Watcher::Place> WatchedBackend::place_of(StreamRef stream) {
  Watcher::Place place;
  place.key.stream = stream;
  if (inner_->is_of_calling_thread(stream)) place.key.thread = calling_thread();
  place.is_default = place.key.thread == 0 && stream == inner_->default_stream(stream.device);
  if (inner_->kind() == BackendKind::cuda && !place.is_default) {
    const std::lock_guard lock(made_mutex_);
    place.is_foreign = std::ranges::find(made_, stream) == made_.end();
  }
  try {
    if (inner_->is_capturing(stream)) place.capture = inner_->capture_id(stream);
  } catch (const Error&) {
    return std::nullopt;  // of a capture that has become invalid, as the call itself is about to say
  }
  if (place.capture != Watcher::live && !watcher_.is_known(place.capture)) return std::nullopt;
  return place;
}

template <class Wait>
void WatchedBackend::wait_for(const VectorClock& clock, const Wait& wait) {
  try {
    wait();
  } catch (const Error& error) {
    // Failed work is over as well. If waiting is refused, as in a capture, nothing is.
    if (error.code() != ErrorCode::unsupported) follow([&] { watcher_.host_waited(clock); });
    throw;
  }
  follow([&] { watcher_.host_waited(clock); });
}

void WatchedBackend::synchronize_device(int device) {
  VectorClock clock;
  follow([&] { clock = watcher_.clock_of_device(device); });
  wait_for(clock, [&] { inner_->synchronize_device(device); });
}

backend::StreamRef WatchedBackend::create_stream(int device, int priority) {
  const StreamRef stream = inner_->create_stream(device, priority);
  // Also while nothing is looked at: later it may be.
  const std::lock_guard lock(made_mutex_);
  made_.push_back(stream);
  return stream;
}

void WatchedBackend::destroy_stream(StreamRef stream) noexcept {
  follow([&] { watcher_.retire({stream, 0}); });
  {
    const std::lock_guard lock(made_mutex_);
    std::erase(made_, stream);
  }
  inner_->destroy_stream(stream);
}

bool WatchedBackend::query_stream(StreamRef stream) {
  VectorClock clock;
  follow([&] {
    if (const auto place = place_of(stream); place && place->capture == Watcher::live)
      clock = watcher_.clock_of(*place);
  });
  const bool is_idle = inner_->query_stream(stream);
  if (is_idle) follow([&] { watcher_.host_waited(clock); });
  return is_idle;
}

void WatchedBackend::synchronize_stream(StreamRef stream) {
  VectorClock clock;
  follow([&] {
    if (const auto place = place_of(stream); place && place->capture == Watcher::live)
      clock = watcher_.clock_of(*place);
  });
  wait_for(clock, [&] { inner_->synchronize_stream(stream); });
}

void WatchedBackend::wait_event(StreamRef stream, backend::EventHandle event) {
  inner_->wait_event(stream, event);
  follow([&] {
    if (const auto place = place_of(stream)) watcher_.wait_event(event, *place);
  });
}

void WatchedBackend::launch_host_function(StreamRef stream, void (*function)(void*), void* argument) {
  if (!is_active()) return inner_->launch_host_function(stream, function, argument);
  const auto place = place_of(stream);
  // In graphs it is called again and again, and there is nobody to keep what it would need.
  if (!place || place->capture != Watcher::live)
    return inner_->launch_host_function(stream, function, argument);
  auto call = std::make_unique<HostCall>(HostCall{*this, watcher_.clock_of(*place), function, argument});
  const VectorClock clock = call->clock;
  inner_->launch_host_function(stream, HostCall::run, call.get());
  static_cast<void>(call.release());
  if (inner_->launches_block() && !inner_->is_in_stream_work()) watcher_.host_waited(clock);
}

backend::EventHandle WatchedBackend::create_shared_event(int device, backend::EventWait wait) {
  const backend::EventHandle event = inner_->create_shared_event(device, wait);
  follow([&] { watcher_.share_event(event); });
  return event;
}

backend::EventHandle WatchedBackend::open_event(int device, const backend::SharedEventHandle& handle) {
  const backend::EventHandle event = inner_->open_event(device, handle);
  follow([&] { watcher_.share_event(event); });
  return event;
}

void WatchedBackend::destroy_event(backend::EventHandle event) noexcept {
  follow([&] { watcher_.forget_event(event); });
  inner_->destroy_event(event);
}

void WatchedBackend::record_event(backend::EventHandle event, StreamRef stream) {
  inner_->record_event(event, stream);
  follow([&] {
    if (const auto place = place_of(stream)) watcher_.record_event(event, *place);
  });
}

bool WatchedBackend::query_event(backend::EventHandle event) {
  VectorClock clock;
  follow([&] { clock = watcher_.clock_of_event(event); });
  const bool is_complete = inner_->query_event(event);
  if (is_complete) follow([&] { watcher_.host_waited(clock); });
  return is_complete;
}

bool WatchedBackend::has_passed(backend::EventHandle event) noexcept {
  VectorClock clock;
  follow([&] { clock = watcher_.clock_of_event(event); });
  const bool has_passed = inner_->has_passed(event);
  // The library alone asks this. It does not count as a wait of the program: that would sometimes hide races.
  if (has_passed) follow([&] { watcher_.own_poll_saw(clock); });
  return has_passed;
}

void WatchedBackend::synchronize_event(backend::EventHandle event) {
  VectorClock clock;
  follow([&] { clock = watcher_.clock_of_event(event); });
  wait_for(clock, [&] { inner_->synchronize_event(event); });
}

void WatchedBackend::signal(StreamRef stream, backend::SharedFlag& flag, std::uint32_t value) {
  // Noted before: whoever looks for the flag may do so at once.
  follow([&] {
    if (const auto place = place_of(stream)) watcher_.signal(flag, *place);
  });
  inner_->signal(stream, flag, value);
}

void WatchedBackend::wait_signals(StreamRef stream, std::span<backend::SharedFlag> flags,
                                  std::uint32_t value) {
  inner_->wait_signals(stream, flags, value);
  follow([&] {
    if (const auto place = place_of(stream)) watcher_.wait_signals(flags, *place);
  });
}

void WatchedBackend::begin_capture(StreamRef stream, CaptureErrorMode mode) {
  inner_->begin_capture(stream, mode);
  follow([&] { watcher_.begin_capture(inner_->capture_id(stream)); });
}

backend::GraphHandle WatchedBackend::end_capture(StreamRef stream, std::string* description) {
  std::optional<Watcher::Place> place;
  follow([&] { place = place_of(stream); });
  const auto end = [&](backend::GraphHandle graph) {
    if (place && place->capture != Watcher::live)
      follow([&] { watcher_.end_capture(place->capture, graph); });
  };
  try {
    const backend::GraphHandle graph = inner_->end_capture(stream, description);
    end(graph);
    return graph;
  } catch (...) {
    end(nullptr);
    throw;
  }
}

void WatchedBackend::launch_graph(backend::GraphHandle graph, StreamRef stream) {
  const Touches touches = is_active() ? watcher_.touches_of(graph) : Touches{};
  follow([&] {
    if (const auto place = place_of(stream)) watcher_.follow_launches(graph, *place);
  });
  watch(stream, "launch of a graph", touches, false, [&] { inner_->launch_graph(graph, stream); });
  follow([&] {
    if (const auto place = place_of(stream)) watcher_.note_launch(graph, *place);
  });
}

void WatchedBackend::destroy_graph(backend::GraphHandle graph) noexcept {
  follow([&] { watcher_.forget_graph(graph); });
  inner_->destroy_graph(graph);
}

std::shared_ptr<void> WatchedBackend::begin_meeting(std::span<const StreamRef> streams) {
  if (!is_active()) return nullptr;
  std::vector<Watcher::Place> places;
  for (const StreamRef stream : streams) {
    const auto place = place_of(stream);
    if (!place) return nullptr;
    places.push_back(*place);
  }
  return watcher_.begin_meeting(places);
}

void WatchedBackend::end_meeting(const std::shared_ptr<void>& meeting,
                                 std::span<const backend::MeetingOrder> orders) {
  if (meeting != nullptr && is_active()) watcher_.end_meeting(meeting, orders);
}

void WatchedBackend::declare_order(StreamRef earlier, StreamRef later) {
  if (!is_active()) return;
  const auto from = place_of(earlier);
  const auto to = place_of(later);
  if (from && to) watcher_.order(*from, *to);
}

void WatchedBackend::declare_wait(StreamRef stream) {
  if (!is_active()) return;
  const auto place = place_of(stream);
  if (place && place->capture == Watcher::live) watcher_.host_waited(watcher_.clock_of(*place));
}

}  // namespace tutti::stream_sanitizer
