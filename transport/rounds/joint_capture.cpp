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
  if (!find_captures(streams)) return false;
  require_no_default_stream(runtime_, streams, "Communicator");
  start_anew_elsewhere();
  current_.assign(streams.begin(), streams.end());
  is_open_ = true;
  find_origins(streams);
  for (std::size_t local = 0; local < streams.size(); ++local) {
    if (found_[local] != 0) continue;
    runtime_.part<Streams>().order(origins_.front(), streams[local]);
    brought_in_.push_back(streams[local]);
  }
  for (std::size_t local = 0; local < latest_.size(); ++local) {
    if (is_open_since(local)) runtime_.part<Streams>().order(latest_[local], streams[local]);
  }
  latest_ = current_;  // now that it has begun as a whole
  return true;
}

bool JointCapture::find_captures(std::span<const backend::StreamRef> streams) {
  found_.clear();
  for (const backend::StreamRef stream : streams) found_.push_back(runtime_.backend().capture_id(stream));
  const auto first = std::ranges::find_if(found_, [](std::uint64_t capture) { return capture != 0; });
  if (first == found_.end()) return false;
  const auto other = std::ranges::find_if(
      found_, [first](std::uint64_t capture) { return capture != 0 && capture != *first; });
  const auto none = std::ranges::find(found_, std::uint64_t{0});
  if (other != found_.end() && none != found_.end()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("Communicator: the streams of local members {} and {} are being captured into "
                            "different graphs, and that of {} is not, expected all of them or one graph",
                            first - found_.begin(), other - found_.begin(), none - found_.begin()));
  }
  return true;
}

void JointCapture::start_anew_elsewhere() {
  const std::uint64_t joined = *std::ranges::max_element(found_);
  std::vector<std::uint64_t> captures = found_;
  std::ranges::replace(captures, std::uint64_t{0}, joined);
  if (captures == captures_) return;
  // Calls that come back to the graph that is left would follow none of those before.
  for (std::size_t local = 0; local < latest_.size(); ++local) {
    if (captures[local] != captures_[local] && is_open_since(local)) {
      throw Error(ErrorCode::unsupported,
                  "Communicator: another graph that holds calls of it is still being captured");
    }
  }
  brought_in_.clear();
  latest_.clear();
  captures_ = std::move(captures);
}

void JointCapture::find_origins(std::span<const backend::StreamRef> streams) {
  std::vector<backend::StreamRef> found;
  for (std::size_t local = 0; local < streams.size(); ++local) {
    if (found_[local] == 0 || has_brought_in(streams[local])) continue;
    const bool is_first = std::find(captures_.begin(), captures_.end(), found_[local]) ==
                          captures_.begin() + static_cast<std::ptrdiff_t>(local);
    if (is_first || found.empty()) found.push_back(streams[local]);
  }
  if (!found.empty()) origins_ = std::move(found);  // else it is where the call before returned to
}

bool JointCapture::is_open_since(std::size_t local) const {
  return runtime_.backend().capture_id(latest_[local]) == captures_[local];
}

bool JointCapture::has_brought_in(backend::StreamRef stream) const noexcept {
  return std::ranges::find(brought_in_, stream) != brought_in_.end();
}

void JointCapture::end() {
  if (!std::exchange(is_open_, false)) return;
  for (const backend::StreamRef stream : current_) {
    if (has_brought_in(stream)) runtime_.part<Streams>().order(stream, origins_.front());
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
