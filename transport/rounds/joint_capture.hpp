// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "device/runtime.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace tutti::transport::team {

/// Makes a call on several streams part of a capture as a whole, if some of them are being captured.
///
/// Streams on which the user has begun the capture, or which the user has had join it, are only queued to:
/// the user brings them back to where the capture ends. The other streams join the capture when a call
/// begins, and return to one of the former when it ends. So streams that are all part of the capture do not
/// wait for one another between calls.
class JointCapture {
 public:
  explicit JointCapture(Runtime& runtime) : runtime_(runtime) {}
  JointCapture(const JointCapture&) = delete;
  JointCapture& operator=(const JointCapture&) = delete;

  /// Returns true if one of the `streams` is being captured: then they all are when it returns, and each
  /// follows the stream at its place in the call before, if that belongs to the same capture. Throws
  /// Error(unsupported), before any stream has joined, if they are being captured into different graphs, one
  /// is a default stream, or the call before is captured into another graph that has not ended. May be called
  /// again for the same call.
  [[nodiscard]] bool begin(std::span<const backend::StreamRef> streams);
  /// Brings back the streams that the call has made join; all of the call must have been queued.
  void end();
  /// Abandons a call that has not ended, if there is one: the capture goes on without it.
  void abandon() noexcept;

  /// Returns the stream to which those return that have joined for the latest call.
  [[nodiscard]] backend::StreamRef origin() const noexcept { return origin_; }
  /// Returns true if graphs may hold calls.
  [[nodiscard]] bool has_captured() const noexcept { return capture_ != 0; }

 private:
  void start_anew(std::uint64_t capture);
  [[nodiscard]] bool has_brought_in(backend::StreamRef stream) const noexcept;
  /// Returns true if the stream is being captured into the graph of the latest captured call.
  [[nodiscard]] bool is_captured(backend::StreamRef stream) const;

  Runtime& runtime_;
  std::uint64_t capture_ = 0;  ///< of the latest captured call
  backend::StreamRef origin_;
  std::vector<backend::StreamRef> brought_in_;  ///< to the capture, by all its calls
  std::vector<backend::StreamRef> latest_;      ///< of the latest call in it that has begun as a whole
  std::vector<backend::StreamRef> current_;     ///< of the call that began last
  std::vector<std::uint64_t> captures_;         ///< of the call's streams, 0 for none
  bool is_open_ = false;                        ///< a call has begun and not ended
};

}  // namespace tutti::transport::team
