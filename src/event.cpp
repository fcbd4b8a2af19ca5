// SPDX-License-Identifier: Apache-2.0
#include "tutti/event.hpp"

#include "host_waits.hpp"
#include "runtime.hpp"
#include "tutti/error.hpp"

#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tutti {
namespace {

backend::EventHandle handle_of(const Event& event) noexcept {
  return static_cast<backend::EventHandle>(event.native_handle());
}

[[noreturn]] void refuse(const std::string& message) {
  throw Error(ErrorCode::invalid_argument, message);
}

}  // namespace

Event::Event(Event&& other) noexcept
    : options_(other.options_),
      handle_(std::exchange(other.handle_, nullptr)),
      device_(std::exchange(other.device_, -1)),
      generation_(std::exchange(other.generation_, 0)) {}

Event& Event::operator=(Event&& other) noexcept {
  Event taken(std::move(other));  // its destructor releases what this event was
  std::swap(options_, taken.options_);
  std::swap(handle_, taken.handle_);
  std::swap(device_, taken.device_);
  std::swap(generation_, taken.generation_);
  return *this;
}

Event::~Event() {
  Runtime* runtime = Runtime::get_if_initialized();
  // Replaced devices took their events with them.
  if (handle_ != nullptr && runtime != nullptr && runtime->generation() == generation_) {
    runtime->backend().destroy_event(handle_of(*this));
  }
}

void Event::record(const Stream& stream) {
  Runtime& runtime = Runtime::get();
  backend::Backend& backend = runtime.backend();
  if (is_created()) {
    if (stream.device() != device_) {
      refuse(fmt::format(
          "Event::record: stream is on device {}, expected device {}, where the event was first recorded",
          stream.device(), device_));
    }
    backend.record_event(handle_of(*this), StreamAccess::ref(stream));
    return;
  }
  const auto timing = options_.enable_timing ? backend::EventTiming::on : backend::EventTiming::off;
  const auto wait = options_.blocking ? backend::EventWait::block : backend::EventWait::spin;
  const backend::EventHandle created = backend.create_event(stream.device(), timing, wait);
  try {
    backend.record_event(created, StreamAccess::ref(stream));
  } catch (...) {
    backend.destroy_event(created);  // an event that exists is one that was recorded
    throw;
  }
  handle_ = created;
  device_ = stream.device();
  generation_ = runtime.generation();
}

void Event::wait(const Stream& stream) const {
  if (is_created()) Runtime::get().wait_event(StreamAccess::ref(stream), handle_of(*this));
}

bool Event::query() const {
  if (!is_created()) return true;
  Runtime& runtime = Runtime::get();
  const bool is_complete = runtime.backend().query_event(handle_of(*this));
  if (is_complete) {
    HostWaits::count_one();
    runtime.ended_work().report(device_);
  }
  return is_complete;
}

void Event::synchronize() const {
  if (!is_created()) return;
  Runtime& runtime = Runtime::get();
  runtime.backend().synchronize_event(handle_of(*this));
  HostWaits::count_one();
  runtime.ended_work().report(device_);
}

float Event::elapsed_time(const Event& end) const {
  const auto require = [&](const Event& event, std::string_view which) {
    if (!event.options_.enable_timing) {
      refuse(fmt::format(
          "Event::elapsed_time: the {} event was made without timing, expected enable_timing = true", which));
    }
    if (!event.is_created()) {
      refuse(fmt::format("Event::elapsed_time: the {} event was never recorded", which));
    }
  };
  require(*this, "start");
  require(end, "end");
  if (device_ != end.device_) {
    refuse(fmt::format(
        "Event::elapsed_time: the start event is on device {} and the end event on device {}, expected "
        "one device",
        device_, end.device_));
  }
  if (!query()) refuse("Event::elapsed_time: the start event is not complete yet; synchronize it first");
  if (!end.query()) refuse("Event::elapsed_time: the end event is not complete yet; synchronize it first");
  return Runtime::get().backend().elapsed_time(handle_of(*this), handle_of(end));
}

}  // namespace tutti
