// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "tutti/capture_error_mode.hpp"

#include <cstdint>
#include <memory>
#include <string>

namespace tutti::backend {

/// Work that is recorded once and launched many times.
///
/// Between `begin_capture` and `end_capture`, work enqueued on `stream`, and on streams joined to it by
/// events, is recorded instead of run.
class GraphCalls {
 public:
  GraphCalls(const GraphCalls&) = delete;
  GraphCalls& operator=(const GraphCalls&) = delete;

  [[nodiscard]] virtual bool is_capturing(StreamRef stream) = 0;
  /// Of the capture that `stream` is part of: different for every one of the process. 0 if it is part of
  /// none. Throws if the capture has become invalid.
  [[nodiscard]] virtual std::uint64_t capture_id(StreamRef stream) = 0;
  /// Whether a stream of the device is being captured: then nobody can wait for the device, whose capture
  /// would become invalid. Of others' streams, those that wait for the default one, or began to be here.
  [[nodiscard]] virtual bool has_capture_on(int device) = 0;
  virtual void begin_capture(StreamRef stream, CaptureErrorMode mode) = 0;
  /// The instantiated graph, and what it holds in the language DOT, if `description` is given. After a
  /// failure inside the capture, throws and leaves nothing captured.
  [[nodiscard]] virtual GraphHandle end_capture(StreamRef stream, std::string* description) = 0;
  virtual void launch_graph(GraphHandle graph, StreamRef stream) = 0;
  virtual void destroy_graph(GraphHandle graph) noexcept = 0;
  /// While `stream` is being captured: keeps `resource` alive until the graph under capture, and everything
  /// made from it, is destroyed.
  virtual void retain_until_graph_destroyed(StreamRef stream, std::shared_ptr<void> resource) = 0;

 protected:
  GraphCalls() = default;
  ~GraphCalls() = default;
};

}  // namespace tutti::backend
