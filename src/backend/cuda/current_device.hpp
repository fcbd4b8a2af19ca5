// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/cuda_error.hpp"
#include "backend/device_calls.hpp"
#include "tutti/error.hpp"

#include <array>
#include <cstddef>
#include <optional>

#include <cuda_runtime_api.h>

namespace tutti::backend::cuda {

/// Returns the calling thread's current device and context. Throws what CUDA reports.
[[nodiscard]] NativePlace ask_place();
/// Returns true if the calling thread has a context, or the driver does not tell.
[[nodiscard]] bool has_context() noexcept;
/// Makes the context that all of CUDA's runtime uses on `device` current for the calling thread, without
/// changing what the runtime takes where a thread has no context: so `restore_place` can bring that back.
void enter_context(int device);
/// Restores what `ask_place` returned. If that was no context, the thread has none again: `cudaSetDevice`
/// would make one on the device it was to use, which takes memory of a GPU that the process need never touch.
void restore_place(const NativePlace& previous) noexcept;
/// Returns the device of a stream other than a default stream; nothing if the driver knows no such stream.
[[nodiscard]] std::optional<int> device_of_stream(cudaStream_t stream, int device);

/// Tracks the calling thread's current device. While a scope is open the device is remembered, and stays as
/// set last; the outermost scope restores the caller's.
class ThreadDevice {
 public:
  void open_scope() {
    if (scopes_ == 0) {
      callers_ = ask_place();
      current_ = callers_.device;
    }
    ++scopes_;
  }
  void close_scope() noexcept {
    --scopes_;
    if (scopes_ == 0 && current_ != callers_.device) restore_place(callers_);
  }
  [[nodiscard]] bool in_scope() const noexcept { return scopes_ > 0; }

  [[nodiscard]] int get() { return in_scope() ? current_ : ask().device; }
  /// Returns the device that the caller of the library has current.
  [[nodiscard]] int callers() { return in_scope() ? callers_.device : ask().device; }
  /// Sets the device until a scope ends, or `restore` is called.
  void enter(int device) {
    current_ = -1;  // unknown if this fails
    enter_context(device);
    current_ = device;
  }
  void restore(const NativePlace& previous) noexcept {
    restore_place(previous);
    current_ = previous.device;
  }
  /// Sets the device permanently, as the caller asks for it.
  void set(int device) {
    current_ = -1;
    check(cudaSetDevice(device), "cudaSetDevice", device);
    current_ = device;
  }

 private:
  friend NativePlace ask_place();

  /// Asks the driver, and CUDA's runtime only if the current context is none of those seen lately. A thread
  /// without a context, for which the runtime takes a microsecond to return the device, gets that device's
  /// context if the library has it anyway, as any work of the runtime would do.
  [[nodiscard]] NativePlace ask();
  void see(const NativePlace& place) noexcept {
    seen_[static_cast<std::size_t>(place.device) % seen_.size()] = place;
  }

  int scopes_ = 0;
  NativePlace callers_;  ///< valid in a scope only, as is the next
  int current_ = 0;
  /// The contexts of the runtime that were current lately, which keep their devices, by device.
  std::array<NativePlace, 4> seen_{};
};

extern thread_local constinit ThreadDevice thread_device;

/// Makes a device current for the calling thread and restores the caller's. In a scope the scope restores it
/// at its end; objects that exist at the same time must be of one device there. The runtime keeps the current
/// device per thread, and asking for it costs some twenty nanoseconds.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) {
    if (thread_device.get() == device) return;
    if (!thread_device.in_scope()) previous_ = ask_place();
    thread_device.enter(device);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() {
    if (previous_.device >= 0) thread_device.restore(previous_);
  }

 private:
  NativePlace previous_;  ///< no device if nothing is to be restored
};

/// Gives the calling thread a context, if it has none, for calls that need one of any device: that of `used`,
/// a device in use (-1: there is none). Otherwise CUDA would make a context on the thread's current device,
/// and so take memory of a GPU that the process may never use.
class AnyContext {
 public:
  explicit AnyContext(int used) noexcept {
    if (used < 0 || thread_device.in_scope() || has_context()) return;
    try {
      current_.emplace(used);
    } catch (const Error&) {
      current_.reset();  // the call itself will find that too
    }
  }
  AnyContext(const AnyContext&) = delete;
  AnyContext& operator=(const AnyContext&) = delete;
  ~AnyContext() = default;

 private:
  std::optional<CurrentDevice> current_;
};

}  // namespace tutti::backend::cuda
