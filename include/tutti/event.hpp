// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/stream.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <iosfwd>
#include <string>

namespace tutti {

/// Options of an `Event`.
struct EventOptions {
  bool enable_timing = false;  ///< allows `elapsed_time`; costs a little
  bool blocking = false;       ///< `synchronize` yields the CPU instead of spinning
  /// Lets other processes of the host open it (`ipc_handle`); excludes `enable_timing`. On GPUs, do not
  /// record it again on another stream while the latest record is pending: recording, or waiting for that
  /// stream, has been observed to block until the latest record was reached.
  bool interprocess = false;
};

/// Bytes by which another process of the host opens an event; they may be sent by any means.
struct IpcEventHandle {
  std::array<std::byte, 64> bytes{};
  friend bool operator==(const IpcEventHandle&, const IpcEventHandle&) = default;
};

/// A marker in a stream, for which other streams, any thread and the host can wait.
///
/// It is created at the first `record`, on the recording stream's device. Move-only. Threads may wait and
/// query at the same time, but not while another one records or moves the event.
class TUTTI_EXPORT Event {
 public:
  Event() = default;
  /// Throws Error(invalid_argument) for options that exclude each other.
  explicit Event(EventOptions options);
  /// Opens the event of another process, on the same device, by the handle that `ipc_handle` returned there.
  /// Both processes can wait for and query what either records, until both have destroyed the event or ended.
  /// If a process ends before the work ahead of its mark is done, the mark counts as reached on virtual
  /// devices, because that work will never be done; on GPUs nothing is promised, as CUDA promises nothing.
  /// When the handle is opened, its process must still run and have the event. Throws Error(invalid_argument)
  /// for a handle of this process itself, for one that does not belong to an event of `device`, or that is
  /// corrupted (on GPUs, CUDA checks that); Error(peer_unavailable) if it cannot be opened, on virtual
  /// devices also for processes of other users except root; Error(unsupported) if devices cannot share
  /// events.
  [[nodiscard]] static Event from_ipc_handle(Device device, const IpcEventHandle& handle);
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();

  /// Marks the work queued on `stream` so far, replacing an earlier mark. Throws Error(invalid_argument) if
  /// the event was first recorded on another device.
  void record(const Stream& stream);
  void record() { record(current_stream()); }
  /// Makes later work on `stream`, of any device, wait for the mark. Does nothing if the event was never
  /// recorded.
  void wait(const Stream& stream) const;
  void wait() const { wait(current_stream()); }
  /// Returns whether the marked work is done, or nothing was ever recorded. Rethrows a pending failure of the
  /// device.
  [[nodiscard]] bool query() const;
  /// Blocks the host until the marked work is done. Returns at once if the event was never recorded.
  void synchronize() const;
  /// Returns the milliseconds from this event's mark to `end`'s. Throws Error(invalid_argument) if timing is
  /// off, a mark is unrecorded or not yet reached, or the marks are on different devices; the message says
  /// which.
  [[nodiscard]] float elapsed_time(const Event& end) const;
  /// Returns the handle by which another process opens the event; it is always the same. An event that was
  /// never recorded is created on the current device. Throws Error(invalid_argument) if it was not made with
  /// `interprocess` or comes from another process; Error(unsupported) if devices cannot share events.
  [[nodiscard]] IpcEventHandle ipc_handle();

  [[nodiscard]] bool is_created() const noexcept { return handle_ != nullptr; }
  /// Returns the device of the recording stream, or of the shared event; -1 before the first record, unless
  /// `ipc_handle` or `from_ipc_handle` has created the event.
  [[nodiscard]] int device() const noexcept { return device_; }
  /// Returns the backend's own handle: a `cudaEvent_t` on GPUs, nullptr if `device` is -1.
  [[nodiscard]] void* native_handle() const noexcept { return handle_; }

 private:
  /// Creates the event on `device` now.
  void create(int device);

  EventOptions options_;
  void* handle_ = nullptr;
  int device_ = -1;
  bool is_opened_ = false;  // it comes from another process
  std::uint64_t generation_ =
      0;  // generation of the devices of `handle_`, which `virtual_devices::start` may have replaced
};

/// Describes an event for people: "event 0x5581f0 of device:1", "an event that was never recorded".
[[nodiscard]] TUTTI_EXPORT std::string to_string(const Event& event);
TUTTI_EXPORT std::ostream& operator<<(std::ostream& stream, const Event& event);

}  // namespace tutti
