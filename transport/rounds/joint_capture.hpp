// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/backend.hpp"
#include "device/runtime.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::transport::team {

/// Makes a call on several streams part of a capture as a whole, if some of them are being captured.
///
/// Streams on which the user has begun the capture, or which the user has had join it, are only queued to:
/// the user brings them back to where the capture ends. The other streams join the capture when a call
/// begins, and return to one of the former when it ends. So streams that are all part of the capture do not
/// wait for one another between calls. Where the user captures each of the streams, they may be in different
/// graphs: each graph then holds its streams' part of the call.
class JointCapture {
 public:
  explicit JointCapture(Runtime& runtime) : runtime_(runtime) {}
  JointCapture(const JointCapture&) = delete;
  JointCapture& operator=(const JointCapture&) = delete;

  /// Returns true if one of the `streams` is being captured: then they all are when it returns, and each
  /// follows the stream at its place in the call before, if that belongs to the same capture. Throws
  /// Error(unsupported), before any stream has joined, if one is a default stream, some are being captured
  /// into different graphs and others are not, or the call before is captured into another graph that has not
  /// ended. May be called again for the same call.
  [[nodiscard]] bool begin(std::span<const backend::StreamRef> streams);
  /// Brings back the streams that the call has made join; all of the call must have been queued.
  void end();
  /// Abandons a call that has not ended, if there is one: the capture goes on without it.
  void abandon() noexcept;

  /// Returns a stream of each graph that holds a part of the latest call: one to which streams return that
  /// have joined, or several that the user captures.
  [[nodiscard]] std::span<const backend::StreamRef> origins() const noexcept { return origins_; }
  /// Returns true if graphs may hold calls.
  [[nodiscard]] bool has_captured() const noexcept { return !captures_.empty(); }

 private:
  /// Looks which graphs the streams are captured into. Returns false if they are into none.
  [[nodiscard]] bool find_captures(std::span<const backend::StreamRef> streams);
  /// Forgets the calls before if they belong to other graphs.
  void start_anew_elsewhere();
  /// Finds the stream to which others return, or those of each graph.
  void find_origins(std::span<const backend::StreamRef> streams);
  [[nodiscard]] bool has_brought_in(backend::StreamRef stream) const noexcept;
  /// Returns true if the stream of a local member in the call before is being captured as it was then.
  [[nodiscard]] bool is_open_since(std::size_t local) const;

  Runtime& runtime_;
  std::vector<std::uint64_t> captures_;         ///< graphs of the latest captured call, by stream
  std::vector<backend::StreamRef> origins_;     ///< a stream of each of them
  std::vector<backend::StreamRef> brought_in_;  ///< to the capture, by all its calls
  std::vector<backend::StreamRef> latest_;      ///< of the latest call in it that has begun as a whole
  std::vector<backend::StreamRef> current_;     ///< of the call that began last
  std::vector<std::uint64_t> found_;            ///< graphs of its streams, 0 for those that are to join
  bool is_open_ = false;                        ///< a call has begun and not ended
};

}  // namespace tutti::transport::team
