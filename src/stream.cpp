#include "tutti/stream.hpp"

#include "host_waits.hpp"
#include "thread_current.hpp"
#include "tutti/error.hpp"
#include "tutti/event.hpp"

#include <exception>

#include <fmt/format.h>

namespace tutti {

Stream::Stream(int device, int priority) {
  Runtime& runtime = Runtime::get();
  device_ = device_or_current(runtime, device, "Stream");
  priority_ = runtime.clamped_priority(device_, priority);
  handle_ = runtime.pooled_stream(device_, priority_).handle;
}

bool Stream::query() const {
  const bool is_idle = Runtime::get().backend().query_stream(StreamAccess::ref(*this));
  if (is_idle) HostWaits::count_one();
  return is_idle;
}

void Stream::synchronize() const {
  Runtime& runtime = Runtime::get();
  runtime.release_collected();
  runtime.backend().synchronize_stream(StreamAccess::ref(*this));
  HostWaits::count_one();
}

Event Stream::record_event() const {
  Event event;
  event.record(*this);
  return event;
}

void Stream::record_event(Event& event) const {
  event.record(*this);
}

void Stream::wait_event(const Event& event) const {
  event.wait(*this);
}

void Stream::wait_stream(const Stream& other) const {
  Runtime::get().order(StreamAccess::ref(other), StreamAccess::ref(*this));
}

ExternalStream::ExternalStream(void* native_handle, int device) : Stream(native_handle, device, 0) {
  Runtime& runtime = Runtime::get();
  runtime.require_device(device, "ExternalStream");
  if (native_handle == nullptr && runtime.backend().kind() == BackendKind::host) {
    throw Error(ErrorCode::invalid_argument,
                "ExternalStream: native_handle is nullptr, expected the native_handle() of a virtual "
                "device's stream");
  }
}

Stream default_stream(int device) {
  Runtime& runtime = Runtime::get();
  return StreamAccess::make(
      runtime.backend().default_stream(device_or_current(runtime, device, "default_stream")));
}

Stream current_stream(int device) {
  Runtime& runtime = Runtime::get();
  const int index = device_or_current(runtime, device, "current_stream");
  return thread_current(runtime).streams[index];
}

void set_stream(const Stream& stream) {
  Runtime& runtime = Runtime::get();
  runtime.require_device(stream.device(), "set_stream");
  thread_current(runtime).streams[stream.device()] = stream;
}

StreamGuard::StreamGuard(const Stream& stream)
    : device_guard_(stream.device()),
      previous_(current_stream(stream.device())),
      generation_(Runtime::get().generation()) {
  set_stream(stream);
}

StreamGuard::~StreamGuard() {
  // If the devices were replaced within the scope, nothing is left to restore.
  const Runtime* const runtime = Runtime::get_if_initialized();
  if (runtime == nullptr || runtime->generation() != generation_) return;
  try {
    set_stream(previous_);
  } catch (const std::exception&) {
    // Without memory for the thread's streams it has none.
  }
}

}  // namespace tutti
