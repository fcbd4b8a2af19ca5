// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/device.hpp"
#include "tutti/export.hpp"
#include "tutti/list_of.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <string>

namespace tutti {

class Event;

/// A queue of work on one device; work on one stream runs in order, work on different streams concurrently.
///
/// A cheap value that names a stream: copies name the same one, and nothing is destroyed with the last of
/// them. `Stream(device, priority)` takes one of 32 pooled streams per device and priority, round robin.
/// Usable from any thread and whichever device is current; thread-safe.
///
/// The work of a more urgent stream is begun first where a GPU cannot begin all that is ready. Virtual
/// devices keep the priority that a stream was made with and do not go by it: each of their streams has a
/// thread of its own, and the system gives them turns.
class TUTTI_EXPORT Stream {
 public:
  /// A pooled stream. Lower `priority` is more urgent; values outside the device's range are clamped. Throws
  /// Error(invalid_argument) for an unknown device.
  explicit Stream(Device device = Device::current(), int priority = 0);

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] int priority() const noexcept { return priority_; }
  /// The backend's own handle: a `cudaStream_t` on GPUs (see `tutti/cuda_interop.hpp`).
  [[nodiscard]] void* native_handle() const noexcept { return handle_; }

  /// True if all work queued so far is done. Rethrows a pending failure of the device.
  [[nodiscard]] bool query() const;
  /// Blocks the host until all work queued so far is done. Rethrows a pending failure of the device.
  void synchronize() const;
  /// Records a new event here, or `event` again. Returns it.
  [[nodiscard]] Event record_event() const;
  void record_event(Event& event) const;
  /// Later work here waits for what `event` recorded last. An event never recorded is a no-op.
  void wait_event(const Event& event) const;
  /// Later work here waits for everything queued on `other` so far.
  void wait_stream(const Stream& other) const;

  /// Same device and same queue.
  friend bool operator==(const Stream& a, const Stream& b) noexcept {
    return a.handle_ == b.handle_ && a.device_ == b.device_;
  }

 protected:
  Stream(void* handle, int device, int priority) noexcept
      : handle_(handle), device_(device), priority_(priority) {}

 private:
  friend struct StreamAccess;

  void* handle_ = nullptr;
  int device_ = -1;
  int priority_ = 0;
};
using StreamList = ListOf<Stream>;

/// For people: "stream 0x5581f0 of device:1, priority -2", "the default stream of device:0".
[[nodiscard]] TUTTI_EXPORT std::string to_string(const Stream& stream);
TUTTI_EXPORT std::ostream& operator<<(std::ostream& out, const Stream& stream);

/// Wraps a stream made elsewhere (a `cudaStream_t` of `device` on GPUs); never destroys it. The caller keeps
/// it alive while the library uses it: as long as there are tensors that have been used on it. When it is
/// destroyed, its work has to be done: memory that was freed on it is handed out again, without waiting, to a
/// stream that has the same handle.
///
/// `cudaStreamPerThread` is one handle for a stream of each thread, which the allocators take for one stream:
/// use it on one thread, or have what one thread queued done before another allocates there or uses its
/// tensors.
class TUTTI_EXPORT ExternalStream : public Stream {
 public:
  /// Asks for the stream's priority. Throws Error(invalid_argument) for an unknown device, and for a handle
  /// that is none of a stream of this device, as far as it can be told: of virtual devices always; on GPUs
  /// CUDA's driver is asked, which tells streams of other devices and many of those that are destroyed, but
  /// may crash on what never was a stream.
  ExternalStream(void* native_handle, Device device);
};

/// The device's default stream: the legacy default stream on GPUs.
[[nodiscard]] TUTTI_EXPORT Stream default_stream(Device device = Device::current());
/// The calling thread's current stream of `device`. Thread-local, one per device; a new thread starts at the
/// default streams.
[[nodiscard]] TUTTI_EXPORT Stream current_stream(Device device = Device::current());
/// Makes `stream` the current one of its device for the calling thread, and its device the current device.
TUTTI_EXPORT void set_stream(const Stream& stream);

/// Makes a stream, and its device, current for the scope's lifetime; restores both, the previous device and
/// the previous stream of the stream's device. No stream, `std::nullopt`, changes and restores nothing. Use
/// on the thread that created it.
class TUTTI_EXPORT StreamGuard {
 public:
  explicit StreamGuard(const Stream& stream);
  explicit StreamGuard(const std::optional<Stream>& stream);
  StreamGuard(const StreamGuard&) = delete;
  StreamGuard& operator=(const StreamGuard&) = delete;
  ~StreamGuard();

 private:
  DeviceGuard device_guard_;
  std::optional<Stream> previous_;  ///< nothing if the guard does nothing
  std::uint64_t generation_ = 0;    ///< of the devices
};

}  // namespace tutti

template <>
struct std::hash<tutti::Stream> {
  std::size_t operator()(const tutti::Stream& stream) const noexcept {
    return std::hash<void*>{}(stream.native_handle()) * 31 + static_cast<std::size_t>(stream.device());
  }
};
