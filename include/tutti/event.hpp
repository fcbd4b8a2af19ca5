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

/// What an `Event` can do.
struct EventOptions {
  bool enable_timing = false;  ///< allows `elapsed_time`; costs a little
  bool blocking = false;       ///< `synchronize` yields the CPU instead of spinning
  /// Other processes of the host may open it (`ipc_handle`); not together with `enable_timing`. On GPUs, do
  /// not record it anew on another stream while the latest record is pending: the calling thread was then
  /// seen not to come back, from recording or from waiting for that stream, until the latest record was
  /// reached.
  bool interprocess = false;
};

/// By which another process of the host opens an event: bytes to be sent there by any means.
struct IpcEventHandle {
  std::array<std::byte, 64> bytes{};
  friend bool operator==(const IpcEventHandle&, const IpcEventHandle&) = default;
};

/// A mark in a stream that other streams, any thread and the host can wait for.
///
/// Created lazily at the first `record`, on the recording stream's device. Move-only. Threads may wait and
/// query at the same time, but not while another one records or moves the event.
class TUTTI_EXPORT Event {
 public:
  Event() = default;
  /// Throws Error(invalid_argument) for options that exclude one another.
  explicit Event(EventOptions options);
  /// The event of another process, on the same device, which `ipc_handle` there has named. What either
  /// process records, both can wait for and query, until both have destroyed the event or ended. If a process
  /// ends before the work is done that is before its mark, the mark counts as reached on virtual devices, as
  /// nothing will come of that work; on GPUs nothing is promised, as CUDA promises nothing. The process that
  /// gave the handle has to be there still, and to have the event. Throws Error(invalid_argument) for a
  /// handle that this process gave itself, or that is none of an event of `device`, or was changed on its way
  /// (on GPUs it is CUDA's own, and CUDA tells); Error(peer_unavailable) if it cannot be opened, on virtual
  /// devices also by processes of other users, but root's; Error(unsupported) where devices cannot share
  /// events.
  [[nodiscard]] static Event from_ipc_handle(Device device, const IpcEventHandle& handle);
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  ~Event();

  /// Marks the work queued on `stream` so far; an earlier mark is forgotten. Throws Error(invalid_argument)
  /// if the event was first recorded on another device.
  void record(const Stream& stream);
  void record() { record(current_stream()); }
  /// Later work on `stream`, of any device, waits for the mark. Never recorded: no-op.
  void wait(const Stream& stream) const;
  void wait() const { wait(current_stream()); }
  /// True if the marked work is done, or nothing was ever recorded. Rethrows a pending failure of the device.
  [[nodiscard]] bool query() const;
  /// Blocks the host until the marked work is done. Never recorded: returns at once.
  void synchronize() const;
  /// Milliseconds from this event's mark to `end`'s. Throws Error(invalid_argument), with a message for each:
  /// timing off, unrecorded, incomplete, recorded on different devices.
  [[nodiscard]] float elapsed_time(const Event& end) const;
  /// What another process needs to open the event; always the same. An event that was never recorded is
  /// created on the current device. Throws Error(invalid_argument) unless it was made with `interprocess`,
  /// and for one that comes from another process; Error(unsupported) where devices cannot share events.
  [[nodiscard]] IpcEventHandle ipc_handle();

  [[nodiscard]] bool is_created() const noexcept { return handle_ != nullptr; }
  /// The device of the recording stream, or of the event that is shared; -1 before the first record, unless
  /// `ipc_handle` or `from_ipc_handle` has created it.
  [[nodiscard]] int device() const noexcept { return device_; }
  /// The backend's own handle: a `cudaEvent_t` on GPUs, nullptr where `device` is -1.
  [[nodiscard]] void* native_handle() const noexcept { return handle_; }

 private:
  /// On `device`, and now.
  void create(int device);

  EventOptions options_;
  void* handle_ = nullptr;
  int device_ = -1;
  bool is_opened_ = false;  // it comes from another process
  std::uint64_t generation_ =
      0;  // of the devices `handle_` belongs to, which `virtual_devices::start` may have replaced
};

/// For people: "event 0x5581f0 of device:1", "an event that was never recorded".
[[nodiscard]] TUTTI_EXPORT std::string to_string(const Event& event);
TUTTI_EXPORT std::ostream& operator<<(std::ostream& stream, const Event& event);

}  // namespace tutti
