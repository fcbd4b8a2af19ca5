// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/graph.hpp"
#include "tutti/stream.hpp"

#include <memory>
#include <optional>
#include <string>

namespace tutti {

/// A graph that is captured between two calls, where `Graph::capture` takes a function, and may be captured
/// again: the documented class of this name, on virtual devices too. What a graph is, and who owns which
/// memory, `Graph` says.
///
/// Not thread-safe; different graphs may be used on different threads. Neither copied nor moved.
class TUTTI_EXPORT CUDAGraph {
 public:
  CUDAGraph();
  CUDAGraph(const CUDAGraph&) = delete;
  CUDAGraph& operator=(const CUDAGraph&) = delete;
  /// Waits for nothing: what has been launched completes. A capture that has not ended is given up; this must
  /// be on the thread that began it.
  ~CUDAGraph();

  /// Records from now on what is queued on the current stream, and on streams that join it by events, instead
  /// of running it.
  ///
  /// Throws Error(invalid_argument) if the current stream is a default stream, if this graph is being
  /// captured or holds something already (`reset` it), and for a pool that another capture is using or that
  /// belongs to devices that are gone. The error mode is one that lets other threads go on, unlike the
  /// documented one, which fails them.
  void capture_begin(const CaptureOptions& options = {});
  /// Ends the capture; the graph can be replayed. On the thread that began it, whichever stream is current
  /// then. Throws Error(invalid_argument) if nothing is being captured, and Error(unsupported) if something
  /// could not be recorded, or a stream that has joined has not come back: then the graph is empty.
  void capture_end();
  /// Enqueues one run on the current stream of the device it was captured on, as `Graph::launch` does, and
  /// throws what that does. Throws Error(invalid_argument) if it holds nothing, with the reason if a
  /// `GraphGuard` could not capture it.
  void replay();
  /// Lets go of what it holds, as destroying it does; it may be captured anew. Throws Error(invalid_argument)
  /// while it is being captured.
  void reset();
  /// Of the pool that its memory is from, from `capture_begin` on. Throws Error(invalid_argument) before.
  [[nodiscard]] GraphPoolHandle pool() const;

  /// Captures from now on keep a description, for `debug_dump`.
  void enable_debug_mode() noexcept;
  /// Writes what it holds to a file, in the language DOT of Graphviz: on GPUs what `cudaGraphDebugDotPrint`
  /// says, on virtual devices the operations, by stream, with what they wait for. Throws
  /// Error(invalid_argument) if it holds nothing or was captured without debug mode, and if the file cannot
  /// be written. An older file is replaced as a whole; a device or a pipe is written where it is.
  void debug_dump(const std::string& path) const;

 private:
  friend class GraphGuard;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// How a `GraphGuard` captures.
struct GraphGuardOptions {
  GraphPoolHandle pool = {};  ///< to be shared with others
  /// To capture on, not a default stream; nothing: a pooled one of the current device, for all guards that
  /// are given the same pool the same one, so that they share its memory.
  std::optional<Stream> stream = {};
  CaptureErrorMode error_mode = CaptureErrorMode::thread;
};

/// Captures what is queued while it exists: the documented context manager `graph`.
///
/// It first waits for the stream's device and gives cached memory back, so that there is room for the graph's
/// own (not of devices of which a stream is being captured already, for which nobody can wait); then it makes
/// the stream current and begins the capture. The graph is to be destroyed or captured anew after it. Use on
/// the thread that created it.
class TUTTI_EXPORT GraphGuard {
 public:
  /// Throws what waiting does and `CUDAGraph::capture_begin`.
  explicit GraphGuard(CUDAGraph& graph, const GraphGuardOptions& options = {});
  GraphGuard(const GraphGuard&) = delete;
  GraphGuard& operator=(const GraphGuard&) = delete;
  /// Ends the capture, unless `end` has, and makes current what was before. What goes wrong, `replay` says.
  /// While an exception is on its way, the capture is given up.
  ~GraphGuard();

  /// Ends the capture now; throws what `CUDAGraph::capture_end` does.
  void end();

 private:
  CUDAGraph& graph_;
  int exceptions_;
  bool is_open_ = false;
  std::optional<StreamGuard> current_;
};

}  // namespace tutti
