// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "stream/stream_access.hpp"
#include "tutti/stream.hpp"

#include <chrono>
#include <future>
#include <memory>
#include <thread>

namespace tutti::test {

/// Holds a stream back: work that is queued on it later starts only once the gate is open. It opens at the
/// latest when destroyed.
class StreamGate {
 public:
  explicit StreamGate(const Stream& stream) {
    auto* closed = new std::shared_future<void>(opened_.get_future().share());
    Runtime::get().backend().launch_host_function(
        StreamAccess::ref(stream),
        [](void* argument) {
          const std::unique_ptr<std::shared_future<void>> future(
              static_cast<std::shared_future<void>*>(argument));
          future->wait();
        },
        closed);
  }
  StreamGate(const StreamGate&) = delete;
  StreamGate& operator=(const StreamGate&) = delete;
  ~StreamGate() {
    if (opener_.joinable()) {
      opener_.join();
    } else {
      open();
    }
  }

  void open() {
    if (!is_open_) opened_.set_value();
    is_open_ = true;
  }
  /// Opens the gate from another thread, after a while in which the calling thread should have begun to wait.
  void open_soon() {
    is_open_ = true;
    opener_ = std::thread([this] {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      opened_.set_value();
    });
  }

 private:
  std::promise<void> opened_;
  bool is_open_ = false;
  std::thread opener_;
};

/// Tells whether the work queued on the stream so far has run. It uses an event, not a host function: CUDA
/// runs the host functions of all streams on one thread, where a closed gate would block this flag too.
class StreamFlag {
 public:
  explicit StreamFlag(const Stream& stream)
      : event_(backend().create_event(stream.device(), backend::EventTiming::off, backend::EventWait::spin)) {
    backend().record_event(event_, StreamAccess::ref(stream));
  }
  StreamFlag(const StreamFlag&) = delete;
  StreamFlag& operator=(const StreamFlag&) = delete;
  ~StreamFlag() { backend().destroy_event(event_); }

  [[nodiscard]] bool is_set() const { return backend().query_event(event_); }
  /// Waits until the flag is set. Returns false if that takes longer than anything should.
  [[nodiscard]] bool becomes_set() const { return is_set_within(std::chrono::seconds(30)); }
  /// Returns whether the flag stays unset for as long as a wrong order would need to show.
  [[nodiscard]] bool stays_unset() const { return !is_set_within(std::chrono::milliseconds(5)); }

 private:
  [[nodiscard]] static backend::Backend& backend() { return Runtime::get().backend(); }
  [[nodiscard]] bool is_set_within(std::chrono::milliseconds limit) const {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!is_set()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    return true;
  }

  backend::EventHandle event_;
};

}  // namespace tutti::test
