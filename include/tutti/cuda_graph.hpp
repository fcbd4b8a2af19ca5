// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/graph.hpp"
#include "tutti/stream.hpp"

#include <memory>
#include <optional>
#include <string>

namespace tutti {

/// A graph that is captured between two calls, instead of by a function as with `Graph::capture`, and may be
/// captured again. It corresponds to PyTorch's class of this name, and works on virtual devices too. See
/// `Graph` for what a graph is and which memory it owns.
///
/// Not thread-safe; different graphs may be used on different threads. Neither copied nor moved.
class TUTTI_EXPORT CUDAGraph {
 public:
  CUDAGraph();
  CUDAGraph(const CUDAGraph&) = delete;
  CUDAGraph& operator=(const CUDAGraph&) = delete;
  /// Does not wait: launches under way complete. Abandons a capture that has not ended; this must be on the
  /// thread that began it.
  ~CUDAGraph();

  /// Starts recording the work queued on the current stream, and on streams that join it by events, instead
  /// of running it.
  ///
  /// Throws Error(invalid_argument) if the current stream is a default stream, if this graph is being
  /// captured or holds something already (`reset` it), and for a pool that another capture is using or that
  /// belongs to devices that are gone. The default error mode lets other threads go on, whereas PyTorch's
  /// makes their calls fail.
  void capture_begin(const CaptureOptions& options = {});
  /// Ends the capture, after which the graph can be replayed. Call it on the thread that began the capture;
  /// any stream may be current. Throws Error(invalid_argument) if nothing is being captured, and
  /// Error(unsupported) if something could not be recorded, or a stream that has joined has not been joined
  /// back: the graph is empty then.
  void capture_end();
  /// Enqueues one run on the current stream of the device it was captured on, as `Graph::launch` does, and
  /// throws what that throws. Throws Error(invalid_argument) if it holds nothing, with the reason if a
  /// `GraphGuard` could not capture it.
  void replay();
  /// Releases the graph as its destruction does; it may be captured anew. Throws Error(invalid_argument)
  /// while it is being captured.
  void reset();
  /// Returns the private pool of its memory, from `capture_begin` on. Throws Error(invalid_argument) before.
  [[nodiscard]] GraphPoolHandle pool() const;

  /// Makes later captures keep a description for `debug_dump`.
  void enable_debug_mode() noexcept;
  /// Writes the graph to a file in Graphviz's language DOT: on GPUs the output of `cudaGraphDebugDotPrint`,
  /// on virtual devices the operations by stream, with their dependencies. Throws Error(invalid_argument) if
  /// it holds nothing or was captured without debug mode, and if the file cannot be written. An existing file
  /// is replaced as a whole; a device or a pipe is written to in place.
  void debug_dump(const std::string& path) const;

 private:
  friend class GraphGuard;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// Options of a `GraphGuard`.
struct GraphGuardOptions {
  GraphPoolHandle pool = {};  ///< private pool to share with other graphs
  /// Stream to capture on, not a default stream. Empty: a pooled stream of the current device. Guards with
  /// the same pool use the same one, so that they share its memory.
  std::optional<Stream> stream = {};
  CaptureErrorMode error_mode = CaptureErrorMode::thread;
};

/// Captures the work that is queued during its lifetime. It corresponds to PyTorch's context manager `graph`.
///
/// It first waits for the stream's device and gives cached memory back, to make room for the graph's own.
/// (Devices with a stream that is being captured already cannot be waited for and are left out.) Then it
/// makes the stream current and begins the capture. The graph must outlive the guard and stay as it is
/// meanwhile. Destroy the guard on the thread that created it.
class TUTTI_EXPORT GraphGuard {
 public:
  /// Begins the capture. Throws what waiting and `CUDAGraph::capture_begin` throw.
  explicit GraphGuard(CUDAGraph& graph, const GraphGuardOptions& options = {});
  GraphGuard(const GraphGuard&) = delete;
  GraphGuard& operator=(const GraphGuard&) = delete;
  /// Ends the capture, unless `end` has, and restores the previous stream and device. `replay` reports a
  /// failure. If an exception is being unwound, the capture is abandoned.
  ~GraphGuard();

  /// Ends the capture now. Throws what `CUDAGraph::capture_end` throws.
  void end();

 private:
  CUDAGraph& graph_;
  int exceptions_;
  bool is_open_ = false;
  std::optional<StreamGuard> current_;
};

}  // namespace tutti
