// SPDX-License-Identifier: Apache-2.0
#include "tutti/stream.hpp"

#include "device/blocking_call.hpp"
#include "device/current_device.hpp"
#include "device/ended_work.hpp"
#include "device/external_streams.hpp"
#include "device/host_waits.hpp"
#include "stream/late_releases.hpp"
#include "stream/stream_access.hpp"
#include "stream/streams.hpp"
#include "stream/thread_streams.hpp"
#include "tutti/error.hpp"
#include "tutti/event.hpp"

#include <exception>
#include <optional>
#include <ostream>
#include <string>
#include <string_view>

#include <fmt/format.h>

namespace tutti {

namespace {

/// Leaves the current device as it is.
void set_stream_of_device(Runtime& runtime, const Stream& stream) {
  Stream& current = thread_streams(runtime)[stream.device()];
  note_current_stream(StreamAccess::ref(current), StreamAccess::ref(stream));
  current = stream;
}

/// Returns the stream of that handle and device. Throws if there is none, on behalf of `type`.
Stream external_stream(void* native_handle, Device device, std::string_view type) {
  const int index = index_of(Runtime::get(), device, type);
  backend::Backend& backend = Runtime::get().backend();
  const backend::StreamRef stream{static_cast<backend::StreamHandle>(native_handle), index};
  const std::optional<int> owner = backend.device_of(stream);
  if (owner == index) {
    note_external_stream(stream);
    return StreamAccess::make(stream, backend.stream_priority(stream));
  }
  const std::string found = owner ? fmt::format("a stream of device {}", *owner) : "no stream that exists";
  const std::string_view expected =
      backend.kind() == BackendKind::host ? "the native_handle() of a virtual device's stream" : "one";
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: native_handle is {}, {}, expected {} of device {}", type,
                          native_handle == nullptr ? "nullptr" : fmt::format("{}", native_handle), found,
                          expected, index));
}

}  // namespace

Stream::Stream(Device device, int priority) {
  Runtime& runtime = Runtime::get();
  device_ = index_of(runtime, device, "Stream");
  priority_ = runtime.part<Streams>().clamped_priority(device_, priority);
  handle_ = runtime.part<Streams>().pooled_stream(device_, priority_).handle;
}

bool Stream::query() const {
  Runtime& runtime = Runtime::get();
  const bool is_idle = runtime.backend().query_stream(StreamAccess::ref(*this));
  if (is_idle) {
    HostWaits::count_one();
    runtime.part<EndedWork>().report(device_);
  }
  return is_idle;
}

void Stream::synchronize() const {
  const BlockingCall blocks("Stream::synchronize");
  Runtime& runtime = Runtime::get();
  runtime.part<LateReleases>().release();
  runtime.part<Streams>().synchronize(StreamAccess::ref(*this));
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
  Runtime::get().part<Streams>().order(StreamAccess::ref(other), StreamAccess::ref(*this));
}

std::string to_string(const Stream& stream) {
  const std::string device = to_string(Device(stream.device()));
  const Runtime* const runtime = Runtime::get_if_initialized();
  const bool is_known =
      runtime != nullptr && stream.device() >= 0 && stream.device() < runtime->device_count();
  if (is_known && stream == default_stream(stream.device())) return "the default stream of " + device;
  return fmt::format("stream {} of {}, priority {}", fmt::ptr(stream.native_handle()), device,
                     stream.priority());
}

std::ostream& operator<<(std::ostream& out, const Stream& stream) {
  return out << to_string(stream);
}

ExternalStream::ExternalStream(void* native_handle, Device device)
    : Stream(external_stream(native_handle, device, "ExternalStream")) {}

PermanentStream::PermanentStream(void* native_handle, Device device)
    : Stream(external_stream(native_handle, device, "PermanentStream")) {
  Runtime::get().part<Streams>().make_permanent(StreamAccess::ref(*this));
}

Stream default_stream(Device device) {
  Runtime& runtime = Runtime::get();
  return StreamAccess::make(runtime.backend().default_stream(index_of(runtime, device, "default_stream")));
}

Stream current_stream(Device device) {
  Runtime& runtime = Runtime::get();
  const int index = index_of(runtime, device, "current_stream");
  return thread_streams(runtime)[index];
}

void set_stream(const Stream& stream) {
  Runtime& runtime = Runtime::get();
  runtime.require_device(stream.device(), "set_stream");
  if (current_index(runtime) != stream.device()) set_device(stream.device());
  set_stream_of_device(runtime, stream);
}

StreamGuard::StreamGuard(const Stream& stream)
    : device_guard_(stream.device()),
      previous_(current_stream(stream.device())),
      generation_(Runtime::get().generation()) {
  set_stream_of_device(Runtime::get(), stream);
}

StreamGuard::StreamGuard(const std::optional<Stream>& stream)
    : device_guard_(stream ? Device(stream->device()) : Device::host()) {
  if (!stream) return;
  previous_ = current_stream(stream->device());
  generation_ = Runtime::get().generation();
  set_stream_of_device(Runtime::get(), *stream);
}

StreamGuard::~StreamGuard() {
  if (!previous_) return;
  // If the devices were replaced within the scope, nothing is left to restore.
  Runtime* const runtime = Runtime::get_if_initialized();
  if (runtime == nullptr || runtime->generation() != generation_) return;
  try {
    set_stream_of_device(*runtime, *previous_);
  } catch (const std::exception&) {
    // Without memory for the thread's streams it has none.
  }
}

}  // namespace tutti
