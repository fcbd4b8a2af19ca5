// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "tutti/capture_error_mode.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace tutti::backend {

/// Records work once as a graph and launches it many times.
///
/// Between `begin_capture` and `end_capture`, work enqueued on `stream`, and on streams joined to it by
/// events, is recorded instead of run.
class GraphCalls {
 public:
  GraphCalls(const GraphCalls&) = delete;
  GraphCalls& operator=(const GraphCalls&) = delete;

  [[nodiscard]] virtual bool is_capturing(StreamRef stream) = 0;
  /// Returns the id of the capture that `stream` is part of, unique in the process; 0 if it is part of none.
  /// Throws if the capture has become invalid.
  [[nodiscard]] virtual std::uint64_t capture_id(StreamRef stream) = 0;
  /// Returns true if a stream of the device is being captured: then nobody may wait for the device, as that
  /// would make the capture invalid. Streams of others count if they wait for the default stream, or if their
  /// capture was begun here.
  [[nodiscard]] virtual bool has_capture_on(int device) = 0;
  virtual void begin_capture(StreamRef stream, CaptureErrorMode mode) = 0;
  /// Ends the capture and returns the instantiated graph, and its description in the language DOT, if
  /// `description` is given. After a failure inside the capture, throws and leaves nothing captured.
  [[nodiscard]] virtual GraphHandle end_capture(StreamRef stream, std::string* description) = 0;
  virtual void launch_graph(GraphHandle graph, StreamRef stream) = 0;
  virtual void destroy_graph(GraphHandle graph) noexcept = 0;
  /// Keeps `resource` alive until the graph under capture, and everything made from it, is destroyed;
  /// `stream` must be being captured.
  virtual void retain_until_graph_destroyed(StreamRef stream, std::shared_ptr<void> resource) = 0;

 protected:
  GraphCalls() = default;
  ~GraphCalls() = default;
};

}  // namespace tutti::backend
