// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/joint_capture.hpp"

#include "allocator/graph_pools/graph_captures.hpp"
#include "stream/streams.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <utility>

#include <fmt/format.h>

namespace tutti::transport::team {

bool JointCapture::begin(std::span<const backend::StreamRef> streams) {
  is_open_ = false;
  captures_.clear();
  for (const backend::StreamRef stream : streams) captures_.push_back(runtime_.backend().capture_id(stream));
  const auto first = std::ranges::find_if(captures_, [](std::uint64_t capture) { return capture != 0; });
  if (first == captures_.end()) return false;
  const auto other = std::ranges::find_if(
      captures_, [first](std::uint64_t capture) { return capture != 0 && capture != *first; });
  if (other != captures_.end()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("Communicator: the streams of local members {} and {} are being captured into "
                            "different graphs, and a call can only be part of one",
                            first - captures_.begin(), other - captures_.begin()));
  }

  require_no_default_stream(runtime_, streams, "Communicator");

  if (capture_ != *first) start_anew(*first);
  current_.assign(streams.begin(), streams.end());
  is_open_ = true;
  for (std::size_t local = streams.size(); local-- > 0;) {
    if (captures_[local] != 0 && !has_brought_in(streams[local])) origin_ = streams[local];
  }
  for (std::size_t local = 0; local < streams.size(); ++local) {
    if (captures_[local] != 0) continue;
    runtime_.part<Streams>().order(origin_, streams[local]);
    brought_in_.push_back(streams[local]);
  }
  for (std::size_t local = 0; local < latest_.size(); ++local) {
    if (is_captured(latest_[local])) runtime_.part<Streams>().order(latest_[local], streams[local]);
  }
  latest_ = current_;  // now that it has begun as a whole
  return true;
}

void JointCapture::start_anew(std::uint64_t capture) {
  // Calls that come back to the graph that is left would follow none of those before.
  if (std::ranges::any_of(latest_, [this](backend::StreamRef stream) { return is_captured(stream); })) {
    throw Error(ErrorCode::unsupported,
                "Communicator: another graph that holds calls of it is still being captured");
  }
  brought_in_.clear();
  latest_.clear();
  capture_ = capture;
}

bool JointCapture::is_captured(backend::StreamRef stream) const {
  return runtime_.backend().capture_id(stream) == capture_;
}

bool JointCapture::has_brought_in(backend::StreamRef stream) const noexcept {
  return std::ranges::find(brought_in_, stream) != brought_in_.end();
}

void JointCapture::end() {
  if (!std::exchange(is_open_, false)) return;
  for (const backend::StreamRef stream : current_) {
    if (has_brought_in(stream)) runtime_.part<Streams>().order(stream, origin_);
  }
}

void JointCapture::abandon() noexcept {
  try {
    end();
  } catch (const std::exception&) {
    // Then the capture is invalid, which its end will say.
  }
}

}  // namespace tutti::transport::team
