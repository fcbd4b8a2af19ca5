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
/// A `Stream` is a cheap value that names a stream: copies name the same one, and destroying them destroys
/// nothing. `Stream(device, priority)` takes one of 32 pooled streams per device and priority, round robin.
/// Usable from any thread and whichever device is current; thread-safe.
///
/// If a GPU cannot start all work that is ready, it starts that of more urgent streams first. Virtual devices
/// store a stream's priority but ignore it: each stream has a thread of its own, scheduled by the operating
/// system.
class TUTTI_EXPORT Stream {
 public:
  /// Takes a pooled stream. Lower `priority` is more urgent; values outside the device's range are clamped.
  /// Throws Error(invalid_argument) for an unknown device.
  explicit Stream(Device device = Device::current(), int priority = 0);

  [[nodiscard]] int device() const noexcept { return device_; }
  [[nodiscard]] int priority() const noexcept { return priority_; }
  /// Returns the backend's own handle: a `cudaStream_t` on GPUs (see `tutti/cuda_interop.hpp`).
  [[nodiscard]] void* native_handle() const noexcept { return handle_; }

  /// Returns whether all work queued so far is done. Rethrows a pending failure of the device.
  [[nodiscard]] bool query() const;
  /// Blocks the host until all work queued so far is done. Rethrows a pending failure of the device.
  void synchronize() const;
  /// Records a new event, or `event` again, on this stream, and returns it.
  [[nodiscard]] Event record_event() const;
  void record_event(Event& event) const;
  /// Makes later work on this stream wait for what `event` recorded last. Does nothing if it was never
  /// recorded.
  void wait_event(const Event& event) const;
  /// Makes later work on this stream wait for everything queued on `other` so far.
  void wait_stream(const Stream& other) const;

  /// Returns whether both name the same queue of the same device.
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

/// Describes a stream for people: "stream 0x5581f0 of device:1, priority -2", "the default stream of
/// device:0".
[[nodiscard]] TUTTI_EXPORT std::string to_string(const Stream& stream);
TUTTI_EXPORT std::ostream& operator<<(std::ostream& out, const Stream& stream);

/// Wraps a stream made elsewhere (a `cudaStream_t` of `device` on GPUs); never destroys it. The caller keeps
/// it alive while tensors exist that have been used on it, and destroys it only when its work is done: memory
/// that was freed on it may be handed out again, without waiting, to a later stream with the same handle.
///
/// `cudaStreamPerThread` is one handle that means another stream on each thread, but the allocators treat it
/// as one stream: use it on one thread only, or wait for one thread's work before another thread allocates on
/// it or uses the first one's tensors.
class TUTTI_EXPORT ExternalStream : public Stream {
 public:
  /// Reads the stream's priority. Throws Error(invalid_argument) for an unknown device, and for a handle that
  /// is not a stream of this device. Virtual devices always detect that. On GPUs, CUDA's driver is asked: it
  /// detects streams of other devices and many destroyed ones, but may crash on a handle that never was a
  /// stream.
  ExternalStream(void* native_handle, Device device);
};

/// Wraps a stream made elsewhere that its maker never destroys: it lives until the process ends, or virtual
/// devices are replaced. From then on, calls on this stream, whatever object names it, cost what they cost on
/// the library's own streams. Other streams of the program may be gone when the next call comes. So each call
/// of a communicator records an event there, and collectives of one process do not go by rounds.
///
/// While a call is made on such a stream, no other thread makes streams of the call's devices wait for other
/// streams except through the library: the kernels of rounds wait for one another, and a stream that waits
/// for one of them before another has been queued may wait for ever. A communicator's call on another stream
/// waits for all that is queued on this one by then, and throws Error(unsupported) while this one is being
/// captured.
class TUTTI_EXPORT PermanentStream : public Stream {
 public:
  /// Throws what `ExternalStream` throws, and Error(invalid_argument) for `cudaStreamPerThread` and for a
  /// stream that waits for the legacy default stream: one that was made without `cudaStreamNonBlocking`.
  PermanentStream(void* native_handle, Device device);
};

/// Returns the device's default stream: the legacy default stream on GPUs.
[[nodiscard]] TUTTI_EXPORT Stream default_stream(Device device = Device::current());
/// Returns the calling thread's current stream of `device`. It is thread-local, one per device; a new thread
/// starts with the default streams.
[[nodiscard]] TUTTI_EXPORT Stream current_stream(Device device = Device::current());
/// Makes `stream` the current one of its device for the calling thread, and its device the current device.
TUTTI_EXPORT void set_stream(const Stream& stream);

/// Makes a stream and its device current for the scope's lifetime, then restores the previous device and the
/// previous stream of the stream's device. With `std::nullopt` for a stream, it changes and restores nothing.
/// Destroy it on the thread that created it.
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
