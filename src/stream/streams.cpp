// SPDX-License-Identifier: Apache-2.0
#include "stream/streams.hpp"

#include "device/ended_work.hpp"
#include "device/host_waits.hpp"
#include "device/runtime.hpp"
#include "stream/event_pool.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

#include <fmt/format.h>

namespace tutti {

struct Streams::Pool {
  static constexpr std::size_t streams_per_priority = 32;
  struct Level {
    std::array<backend::StreamRef, streams_per_priority> streams;
    std::size_t created = 0;
    std::size_t next = 0;
  };
  std::mutex mutex;
  std::vector<Level> levels;  ///< one for each priority, most urgent first
};

Streams::Streams(Runtime& runtime)
    : backend_(runtime.backend()),
      events_(runtime.part<EventPool>()),
      ended_work_(runtime.part<EndedWork>()),
      launch_gates_(static_cast<std::size_t>(runtime.device_count())) {
  for (int device = 0; device < runtime.device_count(); ++device) pools_.push_back(std::make_unique<Pool>());
}

Streams::~Streams() {
  for (const auto& pool : pools_) {
    for (const Pool::Level& level : pool->levels) {
      for (std::size_t i = 0; i < level.created; ++i) backend_.destroy_stream(level.streams[i]);
    }
  }
}

int Streams::clamped_priority(int device, int priority) const {
  const auto [least, greatest] = backend_.stream_priority_range(device);
  return std::clamp(priority, greatest, least);
}

backend::StreamRef Streams::pooled_stream(int device, int priority) {
  const auto [least, greatest] = backend_.stream_priority_range(device);
  const int clamped = clamped_priority(device, priority);
  Pool& pool = *pools_[static_cast<std::size_t>(device)];
  const std::lock_guard lock(pool.mutex);
  pool.levels.resize(static_cast<std::size_t>(least - greatest + 1));
  Pool::Level& level = pool.levels[static_cast<std::size_t>(clamped - greatest)];
  if (level.next == level.created) {
    level.streams[level.created] = backend_.create_stream(device, clamped);
    ++level.created;
  }
  const backend::StreamRef stream = level.streams[level.next];
  level.next = (level.next + 1) % Pool::streams_per_priority;
  return stream;
}

bool Streams::lasts(backend::StreamRef stream) {
  if (stream == backend_.default_stream(stream.device) || is_permanent(stream)) return true;
  Pool& pool = *pools_[static_cast<std::size_t>(stream.device)];
  const std::lock_guard lock(pool.mutex);
  return std::ranges::any_of(pool.levels, [stream](const Pool::Level& level) {
    return std::ranges::find(level.streams, stream) != level.streams.end();
  });
}

void Streams::make_permanent(backend::StreamRef stream) {
  if (lasts(stream)) return;
  const auto refuse = [stream](std::string_view what) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("PermanentStream: native_handle is {}, {}", fmt::ptr(stream.handle), what));
  };
  if (backend_.is_of_calling_thread(stream))
    refuse("another stream in each thread, expected one that is the same in all");
  if (backend_.waits_for_default_stream(stream)) {
    refuse(
        "a stream that waits for the legacy default stream, expected one that was made with "
        "cudaStreamNonBlocking");
  }
  const std::lock_guard lock(permanent_mutex_);
  if (std::ranges::find(permanent_, stream) == permanent_.end()) permanent_.push_back(stream);
  are_some_permanent_.store(true, std::memory_order_release);
}

bool Streams::is_permanent(backend::StreamRef stream) const {
  if (!are_some_permanent_.load(std::memory_order_acquire)) return false;
  const std::shared_lock lock(permanent_mutex_);
  return std::ranges::find(permanent_, stream) != permanent_.end();
}

Streams::LaunchLocks Streams::launch_together(std::span<const int> devices) {
  LaunchLocks locks;
  locks.reserve(devices.size());
  // In ascending order, as all others lock them.
  for (std::size_t device = 0; device < launch_gates_.size(); ++device) {
    if (std::ranges::find(devices, static_cast<int>(device)) != devices.end())
      locks.emplace_back(launch_gates_[device].mutex);
  }
  return locks;
}

void Streams::wait_event(backend::StreamRef stream, backend::EventHandle event) {
  const std::shared_lock gate(launch_gates_[static_cast<std::size_t>(stream.device)].mutex);
  backend_.wait_event(stream, event);
}

void Streams::wait_signals(backend::StreamRef stream, std::span<backend::SharedFlag> flags,
                           std::uint32_t value) {
  const std::shared_lock gate(launch_gates_[static_cast<std::size_t>(stream.device)].mutex);
  backend_.wait_signals(stream, flags, value);
}

void Streams::order(backend::StreamRef earlier, backend::StreamRef later) {
  if (earlier == later) return;
  PooledEvent event(events_, earlier.device);
  event.record(earlier);
  wait_event(later, event.handle());  // keeps to this mark, whatever is recorded next
}

void Streams::synchronize(backend::StreamRef stream) {
  backend_.synchronize_stream(stream);
  HostWaits::count_one();
  ended_work_.report(stream.device);
}

void Streams::finish(backend::StreamRef stream) {
  PooledEvent event(events_, stream.device);
  event.record(stream);
  backend_.synchronize_event(event.handle());
  HostWaits::count_one();
  ended_work_.report(stream.device);
}

}  // namespace tutti
