// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "device/runtime.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::transport::team {

/// This makes a call on several streams, of which some are being captured, part of that capture as a whole.
///
/// Streams on which the user has begun the capture, or which the user has had join it, are only queued to:
/// the user brings them back to where the capture ends. The other streams join the capture when a call
/// begins, and come back to one of the former when it ends. So streams that are all part of the capture do
/// not wait for one another between calls.
class JointCapture {
 public:
  explicit JointCapture(Runtime& runtime) : runtime_(runtime) {}
  JointCapture(const JointCapture&) = delete;
  JointCapture& operator=(const JointCapture&) = delete;

  /// Whether one of the `streams` is being captured: then they all are when it returns, and each follows the
  /// one at its place in the call before, if that belongs to the same capture. Throws Error(unsupported) if
  /// they are being captured into different graphs, one is a default stream, or the call before is captured
  /// into another graph that has not ended; nothing has joined anything then. May be called again for the
  /// same call.
  [[nodiscard]] bool begin(std::span<const backend::StreamRef> streams);
  /// Brings streams back that the call has made join, after everything of it has been queued.
  void end();
  /// Leaves a call that has not come to its end, if there is one: the capture goes on without it.
  void abandon() noexcept;

  /// The stream that those come back to which have joined for the call that began last.
  [[nodiscard]] backend::StreamRef origin() const noexcept { return origin_; }
  /// Whether graphs may hold calls.
  [[nodiscard]] bool has_captured() const noexcept { return capture_ != 0; }

 private:
  void start_anew(std::uint64_t capture);
  [[nodiscard]] bool has_brought_in(backend::StreamRef stream) const noexcept;
  /// Whether the stream is being captured into the graph of the latest captured call.
  [[nodiscard]] bool is_captured(backend::StreamRef stream) const;

  Runtime& runtime_;
  std::uint64_t capture_ = 0;  ///< of the latest captured call
  backend::StreamRef origin_;
  std::vector<backend::StreamRef> brought_in_;  ///< to the capture, by all its calls
  std::vector<backend::StreamRef> latest_;      ///< of the latest call in it that has begun as a whole
  std::vector<backend::StreamRef> current_;     ///< of the call that began last
  std::vector<std::uint64_t> captures_;         ///< of the call's streams, 0 for none
  bool is_open_ = false;                        ///< a call has begun, and not ended
};

}  // namespace tutti::transport::team
