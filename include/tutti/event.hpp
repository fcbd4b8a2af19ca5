// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/stream.hpp"

#include <cstdint>

namespace tutti {

/// What an `Event` can do.
struct EventOptions {
  bool enable_timing = false;  ///< allows `elapsed_time`; costs a little
  bool blocking = false;       ///< `synchronize` yields the CPU instead of spinning
};

/// A mark in a stream that other streams, any thread and the host can wait for.
///
/// Created lazily at the first `record`, on the recording stream's device. Move-only. Threads may wait and
/// query at the same time, but not while another one records or moves the event.
class TUTTI_EXPORT Event {
 public:
  Event() = default;
  explicit Event(EventOptions options) : options_(options) {}
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

  [[nodiscard]] bool is_created() const noexcept { return handle_ != nullptr; }
  /// The device of the recording stream; -1 before the first record.
  [[nodiscard]] int device() const noexcept { return device_; }
  /// The backend's own handle: a `cudaEvent_t` on GPUs, nullptr before the first record.
  [[nodiscard]] void* native_handle() const noexcept { return handle_; }

 private:
  EventOptions options_;
  void* handle_ = nullptr;
  int device_ = -1;
  std::uint64_t generation_ =
      0;  // of the devices `handle_` belongs to, which `virtual_devices::start` may have replaced
};

}  // namespace tutti
