// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/capture_error_mode.hpp"
#include "tutti/export.hpp"
#include "tutti/stream.hpp"

#include <cstdint>
#include <functional>
#include <memory>

namespace tutti {

class LaunchableGraph;

/// Names a private pool of memory, which graphs share that are captured with it: what one has let go of
/// during its capture, those captured later on the same stream may use. So they must be launched in the order
/// in which they were captured, one behind the other; and one's results may be gone when another has run,
/// unless their tensors were alive at its capture.
///
/// A cheap value: copies name the same pool, which lives as long as a handle or a graph that has it. Thread-
/// safe as a `std::shared_ptr`.
class TUTTI_EXPORT GraphPoolHandle {
 public:
  GraphPoolHandle() = default;  ///< names none: a graph that is captured with it gets a pool of its own

  [[nodiscard]] bool defined() const noexcept { return pool_ != nullptr; }
  /// As `MemorySegment::graph_pool` has it; 0 if it names none.
  [[nodiscard]] std::uint64_t id() const noexcept;
  friend bool operator==(const GraphPoolHandle& a, const GraphPoolHandle& b) noexcept {
    return a.pool_ == b.pool_;
  }

 private:
  friend struct GraphPoolAccess;
  std::shared_ptr<void> pool_;
};

/// A new pool, for graphs to share.
[[nodiscard]] TUTTI_EXPORT GraphPoolHandle graph_pool_handle();

/// Whether the current stream of the current device is being captured, by whatever means, also if the capture
/// has become invalid. False as long as the library has not been used.
[[nodiscard]] TUTTI_EXPORT bool is_current_stream_capturing();

/// How a graph is captured.
struct CaptureOptions {
  GraphPoolHandle pool = {};  ///< to be shared with others
  CaptureErrorMode error_mode = CaptureErrorMode::thread;
};

/// Work recorded once and launched many times: an instantiated CUDA graph, or on virtual devices the same by
/// their own means.
///
/// A launch repeats the same operations on the same addresses; values that the host computed, such as shapes,
/// are constants of the graph. Random numbers are not: each launch draws new ones (`tutti/rng.hpp`).
///
/// Memory that is allocated for a captured stream during the capture is the graph's own, that of outputs that
/// collectives make on other devices too: when its tensors are gone, the capture may use it again, and nobody
/// else does before the graph is gone and its launches are done (`tutti/memory.hpp`), but for graphs that
/// share its pool (`GraphPoolHandle`). Tensors made in a capture may outlive the graph, and other work may
/// use them: so does one graph take what another, with a pool of its own, has made, and is launched behind
/// it. Memory of a foreign pool is therefore no error in a capture: nobody could tell a tensor that is to be
/// read there from one that is not. Other memory that a launch uses stays with the graph as long if recorded
/// collectives use it, if `record_stream` names a captured stream, as copies to and from pinned memory do
/// without waiting, or if the capturing thread lets go of it during the capture. Tensors of other work that
/// are let go of after the capture are the caller's to keep.
///
/// A capture takes its memory from the device, not from what `memory_reserved` says is cached: where that is
/// most of the device's, call `empty_cache` before.
///
/// Graphs that are captured by CUDA's own calls own memory in the same way, but for what the capturing thread
/// lets go of. While one is captured on a non-blocking stream that the program made, have an `ExternalStream`
/// of it current in some thread: the library knows of no other, and would spoil the capture where memory goes
/// back to the device, in `empty_cache` for instance.
///
/// Move-only. Launches of one graph run one after another. May be launched from any thread, by one at a time.
/// Destroying it does not wait: what was launched still completes.
class TUTTI_EXPORT Graph {
 public:
  /// Calls `work` with `stream` current on its device, and records what it queues there, and on streams that
  /// it joins to it by events, instead of running it. `stream` is not a device's default stream.
  ///
  /// Throws Error(unsupported) if `work` does what cannot be recorded, such as waiting for the device or for
  /// an event recorded outside the capture, or leaves a stream that has joined the capture without having
  /// `stream` wait for it; Error(invalid_argument) for a default stream, and for a pool that another capture
  /// is using or that belongs to devices that are gone; and what `work` throws. Then nothing has been
  /// recorded or run.
  [[nodiscard]] static Graph capture(const Stream& stream, const std::function<void()>& work,
                                     const CaptureOptions& options = {});
  /// The same with several `streams`, of each device's the first current during `work`: the others join the
  /// first of all before it, and come back to it after it. What is queued on one waits for nothing on another
  /// in between, unless `work` has it wait: so is a graph made of calls of a communicator with several own
  /// members. The first is the one to launch on. Throws Error(invalid_argument) if `streams` is empty.
  [[nodiscard]] static Graph capture(StreamList streams, const std::function<void()>& work,
                                     const CaptureOptions& options = {});

  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  /// Enqueues one run on a stream of the device it was captured on: it follows the work queued there before,
  /// and later work there follows it. Throws Error(invalid_argument) for a stream of another device, and
  /// Error(unsupported) if `stream` is being captured and this graph draws random numbers.
  void launch(const Stream& stream) const;
  /// Of the private pool its memory is from, to share it with graphs that are captured later.
  [[nodiscard]] GraphPoolHandle pool() const;

 private:
  explicit Graph(std::unique_ptr<LaunchableGraph> graph) noexcept;
  std::unique_ptr<LaunchableGraph> graph_;
};

}  // namespace tutti
