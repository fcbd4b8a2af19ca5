// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/capture_error_mode.hpp"
#include "tutti/export.hpp"
#include "tutti/graph_pool.hpp"
#include "tutti/stream.hpp"

#include <cstdint>
#include <functional>
#include <memory>

namespace tutti {

class LaunchableGraph;

/// Returns whether the current stream of the current device is being captured, by any means, even if the
/// capture has become invalid. Returns false if the library has not been used yet.
[[nodiscard]] TUTTI_EXPORT bool is_current_stream_capturing();

/// Options of a capture.
struct CaptureOptions {
  GraphPoolHandle pool = {};  ///< private pool to share with other graphs
  CaptureErrorMode error_mode = CaptureErrorMode::thread;
};

/// A graph holds work that is recorded once and launched many times: an instantiated CUDA graph, or its
/// counterpart on virtual devices.
///
/// A launch repeats the same operations on the same addresses; values that the host computed, such as shapes,
/// are constants of the graph. Random numbers are not: each launch draws new ones (`tutti/rng.hpp`).
///
/// The graph owns memory that is allocated for a captured stream during the capture, including outputs that
/// collectives make on other devices. When its tensors are gone, the capture may reuse it; nobody else does
/// until the graph is destroyed and its launches are done (`tutti/memory.hpp`), except graphs that share its
/// pool (`GraphPoolHandle`). Tensors made in a capture may outlive the graph, and other work may use them.
/// For instance, a graph with another pool may read them if it is launched after this one; so using memory of
/// another pool in a capture is no error. The graph also keeps other memory that its launches use if recorded
/// collectives use it, if `record_stream` names a captured stream (as non-blocking copies to and from pinned
/// memory do), or if the capturing thread drops it during the capture. The caller must keep all other tensors
/// alive that the recorded work uses.
///
/// A capture takes its memory from the device, not from the cache. If most of the device's memory is cached
/// (`memory_reserved`), call `empty_cache` before.
///
/// Graphs that are captured by CUDA's own calls own memory in the same way, except memory that the capturing
/// thread drops. During such a capture on a non-blocking stream that the program made, an `ExternalStream` of
/// it must be current in some thread: the library knows no other streams, and would break the capture when
/// memory goes back to the device, for instance in `empty_cache`.
///
/// Move-only. Launches of one graph run one after another. Any thread may launch it, one at a time.
/// Destroying it does not wait: launches under way complete.
class TUTTI_EXPORT Graph {
 public:
  /// Calls `work` with `stream` current on its device, and records the work that it queues there, and on
  /// streams that it joins by events, instead of running it. `stream` is not a device's default stream.
  ///
  /// Throws Error(unsupported) if `work` does what cannot be recorded, such as waiting for the device or for
  /// an event recorded outside the capture, or leaves a stream that has joined the capture without having
  /// `stream` wait for it; Error(invalid_argument) for a default stream, and for a pool that another capture
  /// is using or that belongs to devices that are gone; and what `work` throws. Then nothing has been
  /// recorded or run.
  [[nodiscard]] static Graph capture(const Stream& stream, const std::function<void()>& work,
                                     const CaptureOptions& options = {});
  /// Captures several `streams`; of each device, the first one listed is current during `work`. All join the
  /// first stream before `work` and are joined back after it. In between, work on one waits for nothing on
  /// another unless `work` orders them. Use it for calls of a communicator with several local members. Launch
  /// the graph on a stream of the first one's device. Throws Error(invalid_argument) if `streams` is empty.
  [[nodiscard]] static Graph capture(StreamList streams, const std::function<void()>& work,
                                     const CaptureOptions& options = {});

  Graph(Graph&&) noexcept;
  Graph& operator=(Graph&&) noexcept;
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;
  ~Graph();

  /// Enqueues one run on a stream of the device that it was captured on. It runs after the work queued on
  /// that stream before, and before later work there. Throws Error(invalid_argument) for a stream of another
  /// device, and Error(unsupported) if `stream` is being captured and this graph draws random numbers.
  void launch(const Stream& stream) const;
  /// Returns the private pool of its memory, to share it with graphs that are captured later.
  [[nodiscard]] GraphPoolHandle pool() const;

 private:
  explicit Graph(std::unique_ptr<LaunchableGraph> graph) noexcept;
  std::unique_ptr<LaunchableGraph> graph_;
};

}  // namespace tutti
