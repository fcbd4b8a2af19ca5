// SPDX-License-Identifier: Apache-2.0
#include "stream_sanitizer/happens_before.hpp"

#include <algorithm>
#include <utility>

namespace tutti::stream_sanitizer {
namespace {

/// The number of pieces up to which forgetting is not worth a search.
constexpr std::size_t few_pieces = 4096;

}  // namespace

std::pair<Line, std::uint64_t> HappensBefore::new_line() {
  // A line whose work the host has waited for may go on with another stream: all of that follows.
  const auto over = std::ranges::find_if(
      retired_, [this](const Retired& retired) { return host_.at(retired.line) >= retired.time; });
  if (over == retired_.end()) return {lines_++, 0};
  const std::pair<Line, std::uint64_t> line{over->line, over->time};
  *over = std::move(retired_.back());
  retired_.pop_back();
  return line;
}

WatchedStream& HappensBefore::stream(const StreamKey& key, bool is_default, bool is_foreign) {
  const auto [found, is_new] = streams_.try_emplace(key);
  WatchedStream& stream = found->second;
  if (!is_new) return stream;
  const auto [line, time] = new_line();
  stream.key = key;
  stream.is_default = is_default;
  stream.is_foreign = is_foreign;
  stream.line = line;
  stream.clock.advance(line, time);
  if (is_foreign) ++foreign_streams_;
  return stream;
}

WatchedStream* HappensBefore::find(const StreamKey& key) {
  const auto found = streams_.find(key);
  return found == streams_.end() ? nullptr : &found->second;
}

void HappensBefore::retire(const StreamKey& key) {
  const auto found = streams_.find(key);
  if (found == streams_.end()) return;
  WatchedStream& stream = found->second;
  if (stream.is_foreign) --foreign_streams_;
  const std::uint64_t time = stream.clock.at(stream.line);
  retired_.push_back({stream.line, time, key.stream.device, std::move(stream.clock)});
  streams_.erase(found);
}

void HappensBefore::host_waited(const VectorClock& clock) {
  host_.join(clock);
  ++host_version_;
}

void HappensBefore::catch_up(WatchedStream& stream) {
  if (stream.host_seen == host_version_) return;
  stream.host_seen = host_version_;
  stream.clock.join(host_);
}

std::uint64_t HappensBefore::advance_host() {
  host_.advance(host_line, ++host_time_);
  ++host_version_;
  return host_time_;
}

VectorClock HappensBefore::clock_of(int device) const {
  VectorClock clock;
  for (const auto& [key, stream] : streams_) {
    if (key.stream.device == device) clock.join(stream.clock);
  }
  for (const Retired& retired : retired_) {
    if (retired.device == device) clock.join(retired.clock);
  }
  return clock;
}

void HappensBefore::order_legacy(WatchedStream& stream) {
  if (foreign_streams_ == 0 || (!stream.is_default && !stream.is_foreign)) return;
  for (const auto& [key, other] : streams_) {
    const bool is_pair = stream.is_default ? other.is_foreign : other.is_default;
    if (is_pair && key.stream.device == stream.key.stream.device) stream.clock.join(other.clock);
  }
}

bool HappensBefore::tidy() {
  if (memory_.size() < tidy_at_) return false;
  memory_.forget_known(host_);
  const bool is_too_much = memory_.size() > most_pieces_;
  if (is_too_much) memory_.forget_half();
  tidy_at_ = std::max(few_pieces, 2 * memory_.size());
  return is_too_much;
}

}  // namespace tutti::stream_sanitizer
