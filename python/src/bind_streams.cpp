// SPDX-License-Identifier: Apache-2.0
#include "arguments.hpp"
#include "bind.hpp"
#include "interrupts.hpp"
#include "scopes.hpp"
#include "tutti/event.hpp"
#include "tutti/stream.hpp"

#include <cstdint>
#include <memory>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

namespace tutti::python {
namespace {

using SharedEvent = std::shared_ptr<Event>;

std::uintptr_t number_of(const void* handle) {
  return reinterpret_cast<std::uintptr_t>(handle);
}

void bind_stream(nb::module_& module) {
  nb::class_<Stream>(module, "Stream", "A queue of work on one device; work on one stream runs in order.")
      .def(
          "__init__",
          [](Stream* self, const DeviceArgument& device, int priority) {
            new (self) Stream(device.get(), priority);
          },
          nb::arg("device") = nb::none(), nb::arg("priority") = 0,
          "Takes one of 32 pooled streams per device and priority. Lower priorities are more urgent.")
      .def_prop_ro("device", [](const Stream& stream) { return Device(stream.device()); })
      .def_prop_ro("priority", &Stream::priority)
      .def_prop_ro(
          "cuda_stream", [](const Stream& stream) { return number_of(stream.native_handle()); },
          "The native handle as a number: a cudaStream_t on GPUs.")
      .def(
          "__cuda_stream__",
          [](const Stream& stream) { return nb::make_tuple(0, number_of(stream.native_handle())); },
          "(version, handle), by which other libraries take the stream.")
      .def("query", &Stream::query, "Whether all work queued so far is done.")
      .def(
          "synchronize", [](const Stream& stream) { wait_interruptibly([stream] { stream.synchronize(); }); },
          "Waits for all work queued so far. Ctrl-C ends the wait. Raises a pending failure of the device.")
      .def(
          "record_event",
          [](const Stream& stream, SharedEvent event) {
            if (event == nullptr) event = std::make_shared<Event>();
            stream.record_event(*event);
            return event;
          },
          nb::arg("event") = nb::none(), "Records an event, a new one unless given, and returns it.")
      .def(
          "wait_event", [](const Stream& stream, const Event& event) { stream.wait_event(event); },
          nb::arg("event"), "Makes later work wait for what the event recorded last.")
      .def(
          "wait_stream",
          [](const Stream& stream, const StreamArgument& other) {
            stream.wait_stream(other.get(Device(stream.device())));
          },
          nb::arg("stream"), "Makes later work wait for everything queued on the other stream so far.")
      .def("__eq__", [](const Stream& a,
                        nb::handle b) { return nb::isinstance<Stream>(b) && a == nb::cast<Stream&>(b); })
      .def("__hash__", [](const Stream& stream) { return std::hash<Stream>{}(stream); })
      .def("__repr__", [](const Stream& stream) { return to_string(stream); });
}

void bind_event(nb::module_& module) {
  nb::class_<Event>(module, "Event",
                    "A marker in a stream, for which streams, threads and the host can wait.")
      .def(
          "__init__",
          [](Event* self, bool enable_timing, bool blocking, bool interprocess) {
            new (self) Event(EventOptions{
                .enable_timing = enable_timing, .blocking = blocking, .interprocess = interprocess});
          },
          nb::arg("enable_timing") = false, nb::arg("blocking") = false, nb::arg("interprocess") = false)
      .def(
          "record",
          [](Event& event, nb::object stream) {
            event.record(stream.is_none() ? current_stream() : StreamArgument{stream}.get(Device::current()));
          },
          nb::arg("stream") = nb::none(), "Marks the work queued so far, on the current stream unless given.")
      .def(
          "wait",
          [](const Event& event, nb::object stream) {
            event.wait(stream.is_none() ? current_stream() : StreamArgument{stream}.get(Device::current()));
          },
          nb::arg("stream") = nb::none(), "Makes later work on the stream wait for the mark.")
      .def("query", &Event::query, "Whether the marked work is done, or nothing was recorded.")
      .def(
          "synchronize", [](SharedEvent event) { wait_interruptibly([event] { event->synchronize(); }); },
          "Waits for the marked work. Ctrl-C ends the wait.")
      .def("elapsed_time", &Event::elapsed_time, nb::arg("end_event"),
           "Milliseconds from this mark to the other.")
      .def_prop_ro("cuda_event", [](const Event& event) { return number_of(event.native_handle()); })
      .def("__repr__", [](const Event& event) { return to_string(event); });
}

}  // namespace

void bind_streams(nb::module_& module) {
  bind_stream(module);
  bind_event(module);
  module.def(
      "ExternalStream",
      [](std::uintptr_t handle, const DeviceArgument& device) -> Stream {
        return ExternalStream(reinterpret_cast<void*>(handle), device.get());
      },
      nb::arg("stream_ptr"), nb::arg("device") = nb::none(),
      "Wraps a stream made elsewhere, which its maker keeps alive.");
  module.def(
      "PermanentStream",
      [](const StreamArgument& stream, const DeviceArgument& device) -> Stream {
        const Stream named = stream.get(device.get());
        return PermanentStream(named.native_handle(), named.device());
      },
      nb::arg("stream"), nb::arg("device") = nb::none(),
      "Wraps a stream made elsewhere that is never destroyed. Calls on it then cost what they cost on "
      "tutti's own "
      "streams. While one is made, no other thread makes streams of the same devices wait for other streams "
      "except through tutti: the call may wait for ever otherwise.");
  module.def(
      "current_stream", [](const DeviceArgument& device) { return current_stream(device.get()); },
      nb::arg("device") = nb::none(), "The calling thread's current stream of the device.");
  module.def(
      "default_stream", [](const DeviceArgument& device) { return default_stream(device.get()); },
      nb::arg("device") = nb::none(), "The device's default stream.");
  module.def(
      "set_stream", [](const StreamArgument& stream) { set_stream(stream.get(Device::current())); },
      nb::arg("stream"), "Makes a stream the current one of its device, and the device current.");
  bind_scope<StreamArgument>(
      module, "stream", "Makes a stream and its device current within a `with` block; None does nothing.",
      [](const StreamArgument& stream) -> std::shared_ptr<void> {
        if (stream.object.is_none()) return nullptr;
        return std::make_shared<StreamGuard>(stream.get(Device::current()));
      });
}

}  // namespace tutti::python
