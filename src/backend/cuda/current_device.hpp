#pragma once

#include "backend/cuda/cuda_error.hpp"

#include <cuda_runtime_api.h>

namespace tutti::backend::cuda {

/// The calling thread's current device. Where a scope is open it is remembered, and stays whatever it was
/// made last; the outermost scope restores the caller's.
class ThreadDevice {
 public:
  void open_scope() {
    if (scopes_ == 0) current_ = callers_ = ask();
    ++scopes_;
  }
  void close_scope() noexcept {
    --scopes_;
    if (scopes_ == 0 && current_ != callers_) static_cast<void>(cudaSetDevice(callers_));
  }
  [[nodiscard]] bool in_scope() const noexcept { return scopes_ > 0; }

  [[nodiscard]] int get() const { return in_scope() ? current_ : ask(); }
  void set(int device) {
    current_ = -1;  // whichever it is if this fails
    check(cudaSetDevice(device), "cudaSetDevice", device);
    current_ = device;
  }

 private:
  [[nodiscard]] static int ask() {
    int device = 0;
    check(cudaGetDevice(&device), "cudaGetDevice");
    return device;
  }

  int scopes_ = 0;
  int callers_ = 0;  ///< known in a scope only, as is the next
  int current_ = 0;
};

extern thread_local constinit ThreadDevice thread_device;

/// Makes a device current for the calling thread and restores the caller's, but in a scope, which does so in
/// the end: there, those that exist at a time must be of one device. The runtime keeps the current device per
/// thread, and asking for it costs a few nanoseconds.
class CurrentDevice {
 public:
  explicit CurrentDevice(int device) : device_(device), previous_(thread_device.get()) {
    if (previous_ != device_) thread_device.set(device_);
  }
  CurrentDevice(const CurrentDevice&) = delete;
  CurrentDevice& operator=(const CurrentDevice&) = delete;
  ~CurrentDevice() {
    if (previous_ != device_ && !thread_device.in_scope()) static_cast<void>(cudaSetDevice(previous_));
  }

 private:
  int device_;
  int previous_;
};

}  // namespace tutti::backend::cuda
