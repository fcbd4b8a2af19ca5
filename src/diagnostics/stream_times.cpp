// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/stream_times.hpp"

#include "device/blocking_call.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <thread>
#include <utility>

namespace tutti::watching {
namespace {

constexpr int clock_tries = 20;
constexpr Microseconds good_try = 30;
constexpr Microseconds microseconds_per_millisecond = 1000;

}  // namespace

Microseconds now() noexcept {
  return std::chrono::duration<Microseconds, std::micro>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

StreamTimes::StreamTimes(Runtime& runtime)
    : runtime_(runtime), devices_(static_cast<std::size_t>(runtime.device_count())) {}

StreamTimes::~StreamTimes() {
  backend::Backend& backend = runtime_.backend();
  for (const auto& [stream, track] : tracks_) {
    if (track.last.event != nullptr) backend.destroy_event(track.last.event);
    for (const Pending& pending : track.pending) {
      backend.destroy_event(pending.begun.start);
      backend.destroy_event(pending.begun.end);
    }
  }
  for (const PerDevice& device : devices_) {
    if (device.base.event != nullptr) backend.destroy_event(device.base.event);
    for (const backend::EventHandle event : device.free) backend.destroy_event(event);
  }
}

bool StreamTimes::knows_base(int device) {
  const std::lock_guard lock(mutex_);
  return devices_[static_cast<std::size_t>(device)].base.event != nullptr;
}

void StreamTimes::find_base(int device) {
  if (knows_base(device)) return;
  PerDevice& known = devices_[static_cast<std::size_t>(device)];
  // The lock is not held: work of other threads may have to go on for this to end.
  backend::Backend& backend = runtime_.backend();
  const backend::StreamRef stream = backend.create_stream(device, 0);
  Known base;
  Known tried;
  try {
    // The shorter it takes, the better it is known when the event was.
    Microseconds shortest = std::numeric_limits<Microseconds>::infinity();
    for (int attempt = 0; attempt < clock_tries && shortest > good_try; ++attempt) {
      if (tried.event == nullptr)
        tried.event = backend.create_event(device, backend::EventTiming::on, backend::EventWait::spin);
      const Microseconds before = now();
      backend.record_event(tried.event, stream);
      backend.synchronize_event(tried.event);
      const Microseconds after = now();
      tried.time = (before + after) / 2;
      if (after - before >= shortest) continue;
      shortest = after - before;
      std::swap(base, tried);
    }
  } catch (...) {
    for (const backend::EventHandle event : {base.event, tried.event}) {
      if (event != nullptr) backend.destroy_event(event);
    }
    backend.destroy_stream(stream);
    throw;
  }
  if (tried.event != nullptr) backend.destroy_event(tried.event);
  backend.destroy_stream(stream);
  const std::lock_guard lock(mutex_);
  if (known.base.event == nullptr) {
    known.base = base;
  } else {
    known.free.push_back(base.event);  // another thread was faster
  }
}

backend::EventHandle StreamTimes::take_event(int device) {
  {
    const std::lock_guard lock(mutex_);
    auto& free = devices_[static_cast<std::size_t>(device)].free;
    if (!free.empty()) {
      const backend::EventHandle event = free.back();
      free.pop_back();
      return event;
    }
  }
  return runtime_.backend().create_event(device, backend::EventTiming::on, backend::EventWait::spin);
}

std::optional<StreamTimes::Begun> StreamTimes::begin(backend::StreamRef stream) {
  // This only warns: the call is under way, and other ranks may count on it.
  if (!knows_base(stream.device))
    BlockingCall::warn("the first traced call on a device, which reads its clock");
  {
    const std::lock_guard lock(mutex_);
    if (pending_count_ >= most_pending) {
      ++left_out_;
      return std::nullopt;
    }
    ++pending_count_;
  }
  Begun begun{.stream = stream, .queued = now()};
  try {
    find_base(stream.device);
    begun.start = take_event(stream.device);
    begun.end = take_event(stream.device);
    // The lock is not held: a full queue waits for work that others may have to queue.
    runtime_.backend().record_event(begun.start, stream);
    return begun;
  } catch (const Error&) {
    const std::lock_guard lock(mutex_);
    for (const backend::EventHandle event : {begun.start, begun.end}) {
      if (event != nullptr) devices_[static_cast<std::size_t>(stream.device)].free.push_back(event);
    }
    --pending_count_;
    ++left_out_;
    return std::nullopt;
  }
}

void StreamTimes::end(const Begun& begun, std::shared_ptr<const Slice> slice) {
  bool is_recorded = true;
  try {
    runtime_.backend().record_event(begun.end, begun.stream);
  } catch (const Error&) {
    is_recorded = false;
  }
  const std::lock_guard lock(mutex_);
  if (is_recorded) {
    tracks_[{begun.stream.device, begun.stream.handle}].pending.push_back({begun, std::move(slice)});
    return;
  }
  auto& free = devices_[static_cast<std::size_t>(begun.stream.device)].free;
  free.insert(free.end(), {begun.start, begun.end});
  --pending_count_;
  ++left_out_;
}

void StreamTimes::collect(Track& track, std::vector<TimedSlice>& done) {
  backend::Backend& backend = runtime_.backend();
  while (!track.pending.empty() && backend.has_passed(track.pending.front().begun.end)) {
    const auto [begun, slice] = std::move(track.pending.front());
    track.pending.pop_front();
    --pending_count_;
    PerDevice& device = devices_[static_cast<std::size_t>(begun.stream.device)];
    try {
      // Times are computed from one event to the next, as times that are counted from far away are less
      // exact.
      const Known& from = track.last.event == nullptr ? device.base : track.last;
      Microseconds start =
          from.time + backend.elapsed_time(from.event, begun.start) * microseconds_per_millisecond;
      Microseconds end = start + backend.elapsed_time(begun.start, begun.end) * microseconds_per_millisecond;
      // Clocks are compared with an error. What is shown has ended by now, begins when it has been queued,
      // and overlaps nothing.
      const Microseconds late = std::max(0.0, end - now());
      start -= late;
      end -= late;
      const Microseconds shown = std::max({start, begun.queued, track.shown_end});
      const Microseconds duration = std::max(0.0, end - std::max(start, track.shown_end));
      track.shown_end = shown + duration;
      done.push_back({begun.stream, slice, shown, duration});
      if (track.last.event != nullptr) device.free.push_back(track.last.event);
      track.last = {begun.end, end};
    } catch (const Error&) {
      device.free.push_back(begun.end);  // of work that has failed there is no time
      ++left_out_;
    }
    device.free.push_back(begun.start);
  }
}

std::vector<TimedSlice> StreamTimes::collect() {
  std::vector<TimedSlice> done;
  const std::lock_guard lock(mutex_);
  for (auto& [stream, track] : tracks_) collect(track, done);
  return done;
}

std::vector<TimedSlice> StreamTimes::collect_all(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  std::vector<TimedSlice> done;
  for (;;) {
    std::vector<TimedSlice> more = collect();
    done.insert(done.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
    std::unique_lock lock(mutex_);
    if (pending_count_ == 0) return done;
    if (std::chrono::steady_clock::now() >= deadline) {
      left_out_ += pending_count_;
      return done;
    }
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

std::uint64_t StreamTimes::left_out() const {
  const std::lock_guard lock(mutex_);
  return left_out_;
}

}  // namespace tutti::watching
