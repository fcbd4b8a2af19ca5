// SPDX-License-Identifier: Apache-2.0
#include "tutti/event.hpp"

#include "device/blocking_call.hpp"
#include "device/current_device.hpp"
#include "device/ended_work.hpp"
#include "device/host_waits.hpp"
#include "stream/stream_access.hpp"
#include "stream/streams.hpp"
#include "tutti/error.hpp"

#include <ostream>
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

/// Returns true if `virtual_devices::start` has replaced the devices that an event was created on.
bool are_replaced(std::uint64_t generation) {
  return Runtime::get().generation() != generation;
}

}  // namespace

Event::Event(EventOptions options) : options_(options) {
  if (options.interprocess && options.enable_timing) {
    refuse(
        "Event: options.interprocess and options.enable_timing are both set, expected one of them at most");
  }
}

Event Event::from_ipc_handle(Device device, const IpcEventHandle& handle) {
  Runtime& runtime = Runtime::get();
  const int index = index_of(runtime, device, "Event::from_ipc_handle");
  Event event({.interprocess = true});
  event.handle_ = runtime.backend().open_event(index, {handle.bytes});
  event.device_ = index;
  event.is_opened_ = true;
  event.generation_ = runtime.generation();
  return event;
}

IpcEventHandle Event::ipc_handle() {
  if (!options_.interprocess) {
    refuse("Event::ipc_handle: the event was made without options.interprocess, expected one made with it");
  }
  if (is_opened_) {
    refuse(
        "Event::ipc_handle: the event comes from another process, expected one of this process: pass on the "
        "handle that it was opened by");
  }
  if (!is_created()) create(current_index(Runtime::get()));
  if (are_replaced(generation_))
    refuse("Event::ipc_handle: the event belongs to devices that have been replaced");
  return {Runtime::get().backend().share_event(handle_of(*this)).bytes};
}

Event::Event(Event&& other) noexcept
    : options_(other.options_),
      handle_(std::exchange(other.handle_, nullptr)),
      device_(std::exchange(other.device_, -1)),
      is_opened_(std::exchange(other.is_opened_, false)),
      generation_(std::exchange(other.generation_, 0)) {}

Event& Event::operator=(Event&& other) noexcept {
  Event taken(std::move(other));  // its destructor releases what this event was
  std::swap(options_, taken.options_);
  std::swap(handle_, taken.handle_);
  std::swap(device_, taken.device_);
  std::swap(is_opened_, taken.is_opened_);
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
  if (is_created() && !are_replaced(generation_)) {
    if (stream.device() != device_) {
      refuse(fmt::format(
          "Event::record: stream is on device {}, expected device {}, where the event was first recorded",
          stream.device(), device_));
    }
    backend.record_event(handle_of(*this), StreamAccess::ref(stream));
    return;
  }
  create(stream.device());
  try {
    backend.record_event(handle_of(*this), StreamAccess::ref(stream));
  } catch (...) {
    // An event that exists is one that was recorded, or shared.
    backend.destroy_event(handle_of(*this));
    handle_ = nullptr;
    device_ = -1;
    throw;
  }
}

void Event::create(int device) {
  Runtime& runtime = Runtime::get();
  backend::Backend& backend = runtime.backend();
  const auto timing = options_.enable_timing ? backend::EventTiming::on : backend::EventTiming::off;
  const auto wait = options_.blocking ? backend::EventWait::block : backend::EventWait::spin;
  handle_ = options_.interprocess ? backend.create_shared_event(device, wait)
                                  : backend.create_event(device, timing, wait);
  device_ = device;
  generation_ = runtime.generation();
}

void Event::wait(const Stream& stream) const {
  if (!is_created() || are_replaced(generation_)) return;
  Runtime::get().part<Streams>().wait_event(StreamAccess::ref(stream), handle_of(*this));
}

bool Event::query() const {
  if (!is_created() || are_replaced(generation_)) return true;
  Runtime& runtime = Runtime::get();
  const bool is_complete = runtime.backend().query_event(handle_of(*this));
  if (is_complete) {
    HostWaits::count_one();
    runtime.part<EndedWork>().report(device_);
  }
  return is_complete;
}

void Event::synchronize() const {
  if (!is_created() || are_replaced(generation_)) return;
  const BlockingCall blocks("Event::synchronize");
  Runtime& runtime = Runtime::get();
  runtime.backend().synchronize_event(handle_of(*this));
  HostWaits::count_one();
  runtime.part<EndedWork>().report(device_);
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
    if (are_replaced(event.generation_)) {
      refuse(
          fmt::format("Event::elapsed_time: the {} event belongs to devices that have been replaced", which));
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

std::string to_string(const Event& event) {
  if (!event.is_created()) return "an event that was never recorded";
  return fmt::format("event {} of {}", fmt::ptr(event.native_handle()), to_string(Device(event.device())));
}

std::ostream& operator<<(std::ostream& stream, const Event& event) {
  return stream << to_string(event);
}

}  // namespace tutti
