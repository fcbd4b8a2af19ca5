// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "base/cache_line.hpp"
#include "device/runtime_part.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <vector>

namespace tutti {

class EndedWork;
class EventPool;
class Runtime;

/// A runtime's pooled streams, and the order between streams. Thread-safe.
///
/// All waits of one stream for another go through here, to keep them out of launches whose kernels wait for
/// one another. Suppose kernel A of stream 1 waits for kernel B of stream 2: if stream 2 were made to wait
/// for stream 1 after A is queued and before B is, B would never start, and A would never end.
class Streams final : public RuntimePart {
 public:
  static constexpr PartSlot slot = PartSlot::streams;

  explicit Streams(Runtime& runtime);
  ~Streams() override;

  /// Returns the priority that a stream of `device` gets if it asks for `priority`: the nearest one in the
  /// device's range.
  [[nodiscard]] int clamped_priority(int device, int priority) const;
  /// Returns the next pooled stream of `device` at `priority` (clamped), round robin over 32, made on first
  /// use.
  [[nodiscard]] backend::StreamRef pooled_stream(int device, int priority);
  /// Returns whether `stream` lives as long as the runtime: a default stream, a pooled one, or a permanent
  /// one of the program.
  [[nodiscard]] bool lasts(backend::StreamRef stream);
  /// Makes a stream of the program permanent (`PermanentStream`); does nothing if it lasts anyway. Throws
  /// Error(invalid_argument) if it is another one in each thread, or waits for the default stream.
  void make_permanent(backend::StreamRef stream);
  /// Returns whether the program has made the stream permanent. Costs next to nothing if there is none.
  [[nodiscard]] bool is_permanent(backend::StreamRef stream) const;

  /// Locks of `launch_together`.
  using LaunchLocks = std::vector<std::unique_lock<std::shared_mutex>>;
  /// Returns locks that are held while kernels on streams of these devices that wait for one another are
  /// queued, one by one. Queuing may wait for other kernels, and for the threads that launch these on other
  /// devices: those are not held up. Does not wait for streams.
  [[nodiscard]] LaunchLocks launch_together(std::span<const int> devices);
  /// Makes the backend's call, for all other code; not from a thread that holds `launch_together`.
  void wait_event(backend::StreamRef stream, backend::EventHandle event);
  void wait_signals(backend::StreamRef stream, std::span<backend::SharedFlag> flags, std::uint32_t value);
  /// Makes work queued later on `later` wait for work queued so far on `earlier`. Does nothing if they are
  /// one stream.
  void order(backend::StreamRef earlier, backend::StreamRef later);
  /// Waits for a stream on behalf of the program: throws what has failed on its device, or has been ended.
  void synchronize(backend::StreamRef stream);
  /// Waits for the work queued so far on `stream`, and for nothing else.
  void finish(backend::StreamRef stream);

 private:
  struct Pool;

  backend::Backend& backend_;
  EventPool& events_;
  EndedWork& ended_work_;
  std::vector<std::unique_ptr<Pool>> pools_;  ///< by device
  mutable std::shared_mutex permanent_mutex_;
  std::vector<backend::StreamRef> permanent_;  ///< guarded by `permanent_mutex_`
  std::atomic<bool> are_some_permanent_ = false;
  /// Written at every wait: nothing else that is read often is beside it.
  struct alignas(cache_line_bytes) LaunchGate {
    std::shared_mutex mutex;
  };
  std::vector<LaunchGate> launch_gates_;  ///< by device of the stream that is made to wait
};

}  // namespace tutti
