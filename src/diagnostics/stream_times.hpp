// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::watching {

/// Microseconds on the clock of the trace, which is the host's steady clock.
using Microseconds = double;
[[nodiscard]] Microseconds now() noexcept;

/// A call's entry in the trace.
struct Slice;

/// The execution of a call on a stream, from when the stream comes to it until the stream has done it.
struct TimedSlice {
  backend::StreamRef stream;
  std::shared_ptr<const Slice> slice;
  Microseconds start = 0;
  Microseconds duration = 0;
};

/// Measures when streams begin and end calls, by events with timing. Times on one stream do not overlap. A
/// part of the runtime; thread-safe. Not for streams that are being captured.
class StreamTimes {
 public:
  explicit StreamTimes(Runtime& runtime);
  StreamTimes(const StreamTimes&) = delete;
  StreamTimes& operator=(const StreamTimes&) = delete;
  virtual ~StreamTimes();

  [[nodiscard]] Runtime& runtime() const noexcept { return runtime_; }

  /// The most calls under way that are timed at once; further ones have no times.
  static constexpr std::size_t most_pending = 8192;

  struct Begun {
    backend::StreamRef stream;
    backend::EventHandle start = nullptr;
    backend::EventHandle end = nullptr;
    Microseconds queued = 0;
  };
  /// Marks the beginning of a call. Returns nothing if there are too many calls, or the stream accepts no
  /// work. The first time on a device waits for the device's clock, not for its work.
  [[nodiscard]] std::optional<Begun> begin(backend::StreamRef stream);
  void end(const Begun& begun, std::shared_ptr<const Slice> slice);

  /// Returns the calls that have been completed since the last time.
  [[nodiscard]] std::vector<TimedSlice> collect();
  /// Returns the same, after waiting for at most `patience` for calls under way.
  [[nodiscard]] std::vector<TimedSlice> collect_all(std::chrono::milliseconds patience);
  /// Returns the number of calls that have no times.
  [[nodiscard]] std::uint64_t left_out() const;

 private:
  /// An event and its time.
  struct Known {
    backend::EventHandle event = nullptr;
    Microseconds time = 0;
  };
  struct Pending {
    Begun begun;
    std::shared_ptr<const Slice> slice;
  };
  struct Track {
    Known last{};                ///< the latest end; at first, nothing
    Microseconds shown_end = 0;  ///< of the latest slice
    std::deque<Pending> pending{};
  };
  struct PerDevice {
    Known base{};
    std::vector<backend::EventHandle> free{};
  };

  [[nodiscard]] bool knows_base(int device);
  /// Measures the time of an event of the device.
  void find_base(int device);
  [[nodiscard]] backend::EventHandle take_event(int device);
  void collect(Track& track, std::vector<TimedSlice>& done);

  Runtime& runtime_;
  mutable std::mutex mutex_;
  std::vector<PerDevice> devices_;
  std::map<std::pair<int, backend::StreamHandle>, Track> tracks_;
  std::size_t pending_count_ = 0;
  std::uint64_t left_out_ = 0;
};

}  // namespace tutti::watching
