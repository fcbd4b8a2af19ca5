#pragma once

#include "tutti/export.hpp"
#include "tutti/stream.hpp"

#include <functional>
#include <memory>

namespace tutti {

/// Work recorded once and launched many times: an instantiated CUDA graph. Virtual devices have none.
///
/// A launch repeats the same operations on the same addresses; values that the host computed, such as shapes,
/// are constants of the graph. Tensors that recorded collectives use stay alive as long as the graph; those
/// of other work are the caller's to keep.
///
/// Move-only. Launches of one graph run one after another. May be launched from any thread, by one at a time.
/// Destroying it does not wait: what was launched still completes.
class TUTTI_EXPORT Graph {
 public:
  /// Calls `work` with `stream` current on its device, and records what it queues there, and on streams that
  /// it joins to it by events, instead of running it. `stream` is not a device's default stream.
  ///
  /// Throws Error(unsupported) on virtual devices, and if `work` does what cannot be recorded, such as
  /// waiting for the device; and what `work` throws. Then nothing has been recorded or run.
  [[nodiscard]] static Graph capture(const Stream& stream, const std::function<void()>& work);
  /// The same with several `streams`, of each device's the first current during `work`: the others join the
  /// first of all before it, and come back to it after it. What is queued on one waits for nothing on another
  /// in between, unless `work` has it wait: so is a graph made of calls of a communicator with several own
  /// members. The first is the one to launch on. Throws Error(invalid_argument) if `streams` is empty.
  [[nodiscard]] static Graph capture(StreamList streams, const std::function<void()>& work);

  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  /// Enqueues one run on a stream of the device it was captured on: it follows the work queued there before,
  /// and later work there follows it. Throws Error(invalid_argument) for a stream of another device.
  void launch(const Stream& stream) const;

 private:
  class Impl;
  explicit Graph(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti
