// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/cuda/cuda_error.hpp"
#include "backend/device_calls.hpp"
#include "tutti/error.hpp"

#include <optional>

#include <cuda_runtime_api.h>

namespace tutti::backend::cuda {

/// What the calling thread has current. Throws what CUDA reports.
[[nodiscard]] NativePlace ask_place();
/// Whether the calling thread has a context; true if the driver does not say.
[[nodiscard]] bool has_context() noexcept;
/// Makes the context that all of CUDA's runtime uses on `device` current for the calling thread, without
/// changing what the runtime takes where a thread has no context: so `restore_place` can bring that back.
void enter_context(int device);
/// Brings back what `ask_place` said. Where that was no context the thread has none again: `cudaSetDevice`
/// would make one on the device it was to use, which takes memory of a GPU that the process need never touch.
void restore_place(const NativePlace& previous) noexcept;
/// The device of a stream that is no default stream; nothing if the driver knows no such stream.
[[nodiscard]] std::optional<int> device_of_stream(cudaStream_t stream, int device);

/// The calling thread's current device. Where a scope is open it is remembered, and stays whatever it was
/// made last; the outermost scope restores the caller's.
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
  /// What the caller of the library has current.
  [[nodiscard]] int callers() { return in_scope() ? callers_.device : ask().device; }
  /// Until a scope ends, or `restore`.
  void enter(int device) {
    current_ = -1;  // whichever it is if this fails
    enter_context(device);
    current_ = device;
  }
  void restore(const NativePlace& previous) noexcept {
    restore_place(previous);
    current_ = previous.device;
  }
  /// For good, as the caller asks for it.
  void set(int device) {
    current_ = -1;
    check(cudaSetDevice(device), "cudaSetDevice", device);
    current_ = device;
  }

 private:
  friend NativePlace ask_place();

  /// Asks the driver, and CUDA's runtime only where the current context is not the one that was seen last. A
  /// thread without a context, of which the runtime takes a microsecond to tell the device, is given that
  /// device's if the library has it anyway, as any work of the runtime's would do.
  [[nodiscard]] NativePlace ask();

  int scopes_ = 0;
  NativePlace callers_;  ///< known in a scope only, as is the next
  int current_ = 0;
  NativePlace
      seen_;  ///< a context that the runtime uses, which keeps its device; of no context if none was seen
};

extern thread_local constinit ThreadDevice thread_device;

/// Makes a device current for the calling thread and restores the caller's, but in a scope, which does so in
/// the end: there, those that exist at a time must be of one device. The runtime keeps the current device per
/// thread, and asking for it costs some twenty nanoseconds.
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
  NativePlace previous_;  ///< of no device if nothing is to be restored
};

/// Some context for calls that want one and not a particular one: where the calling thread has none yet, that
/// of `used`, a device in use (-1: there is none). CUDA would else make one on the thread's current device,
/// which takes memory of a GPU that the process need never touch.
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
