#pragma once

#include "runtime.hpp"
#include "tutti/stream.hpp"

#include <chrono>
#include <future>
#include <memory>
#include <thread>

namespace tutti::test {

/// Holds a stream back: work queued on it later starts only once the gate is open. Opens at the latest when
/// destroyed.
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
  /// Opens from another thread, after a while in which the calling thread should have come to wait.
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

/// Whether work queued on the stream so far has run.
class StreamFlag {
 public:
  explicit StreamFlag(const Stream& stream) {
    auto* promise = new std::promise<void>;
    done_ = promise->get_future();
    Runtime::get().backend().launch_host_function(
        StreamAccess::ref(stream),
        [](void* argument) {
          const std::unique_ptr<std::promise<void>> owned(static_cast<std::promise<void>*>(argument));
          owned->set_value();
        },
        promise);
  }
  [[nodiscard]] bool is_set() const {
    return done_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  }
  /// True as soon as it is set, false if that takes longer than anything should.
  [[nodiscard]] bool becomes_set() const {
    return done_.wait_for(std::chrono::seconds(30)) == std::future_status::ready;
  }
  /// True if it stays unset for as long as a wrong order would need to show.
  [[nodiscard]] bool stays_unset() const {
    return done_.wait_for(std::chrono::milliseconds(5)) == std::future_status::timeout;
  }

 private:
  std::future<void> done_;
};

}  // namespace tutti::test
