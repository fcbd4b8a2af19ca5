// SPDX-License-Identifier: Apache-2.0
#include "backend/host/queues/host_graph.hpp"

#include "backend/host/queues/stream_worker.hpp"

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace tutti::backend::host {

namespace {

/// Escapes text for a quoted string of DOT.
std::string escaped(std::string_view name) {
  std::string text;
  for (const char letter : name) {
    if (letter == '"' || letter == '\\') text += '\\';
    text += letter;
  }
  return text;
}

}  // namespace

std::string describe(const Recording& recording) {
  const std::size_t lanes = recording.lane_devices.size();
  std::string text = "digraph tutti {\n  node [shape=box];\n";
  std::string arrows;
  // By lane: after so many entries, whose work comes last; a lane that has joined follows what it waited for.
  using Latest = std::vector<std::size_t>;
  std::vector<std::vector<Latest>> latest(lanes, {Latest{}});
  std::vector<std::string> boxes(lanes);
  for (std::size_t i = 0; i < recording.entries.size(); ++i) {
    const GraphEntry& entry = recording.entries[i];
    Latest now = latest[entry.lane].back();
    if (entry.task == nullptr) {
      const Latest& awaited = latest[entry.awaited_lane][static_cast<std::size_t>(entry.awaited)];
      now.insert(now.end(), awaited.begin(), awaited.end());
    } else {
      boxes[entry.lane] += fmt::format("    n{} [label=\"{}\"];\n", i, escaped(entry.task->name()));
      for (const std::size_t earlier : now) arrows += fmt::format("  n{} -> n{};\n", earlier, i);
      now.assign(1, i);
    }
    latest[entry.lane].push_back(std::move(now));
  }
  for (std::size_t lane = 0; lane < lanes; ++lane) {
    text += fmt::format("  subgraph cluster{0} {{\n    label=\"stream {0} of device {1}\";\n{2}  }}\n", lane,
                        recording.lane_devices[lane], boxes[lane]);
  }
  return text + arrows + "}\n";
}

Capture::Capture(std::uint64_t id, StreamWorker& origin, std::thread::id ends_on)
    : id_(id), ends_on_(ends_on) {
  static_cast<void>(add_lane(origin.device(), &origin));
}

bool Capture::involves(int device) const noexcept {
  return std::ranges::find(recording_.lane_devices, device) != recording_.lane_devices.end();
}

void Capture::invalidate(const std::string& complaint) {
  if (complaint_.empty()) complaint_ = complaint;
}

void Capture::forget(const StreamWorker& stream) noexcept {
  for (StreamWorker*& known : streams_) {
    if (known == &stream) known = nullptr;
  }
}

void Capture::add(const StreamWorker& stream, std::unique_ptr<Task> task) {
  const std::uint32_t lane = lane_of(stream);
  push({.lane = lane, .task = std::move(task)});
  latest_work_[lane] = clocks_[lane][lane];
}

Capture::Mark Capture::mark(const StreamWorker& stream) const {
  const std::uint32_t lane = lane_of(stream);
  return {lane, clocks_[lane]};
}

void Capture::wait(StreamWorker& stream, const Mark& mark) {
  const auto known = std::ranges::find(streams_, &stream);
  const bool is_new = known == streams_.end();
  const std::uint32_t lane =
      is_new ? add_lane(stream.device(), &stream) : static_cast<std::uint32_t>(known - streams_.begin());
  const std::uint64_t awaited = at(mark.before, mark.lane);
  // A stream that has joined has one entry at least: it follows what the launch follows.
  if (!is_new && (lane == mark.lane || at(clocks_[lane], mark.lane) >= awaited)) return;
  push({.lane = lane, .task = nullptr, .awaited_lane = mark.lane, .awaited = awaited});
  merge(lane, mark.before);
}

void Capture::add(const StreamWorker& stream, const std::shared_ptr<const Recording>& graph) {
  const std::uint32_t here = lane_of(stream);
  const std::uint64_t begin = at(clocks_[here], here);
  std::vector<std::uint32_t> lanes{here};
  for (std::size_t lane = 1; lane < graph->lane_devices.size(); ++lane)
    lanes.push_back(add_lane(graph->lane_devices[lane], nullptr));
  for (const GraphEntry& entry : graph->entries) {
    const std::uint32_t lane = lanes[entry.lane];
    push({.lane = lane,
          .task = entry.task == nullptr ? nullptr : entry.task->clone(),
          .awaited_lane = lanes[entry.awaited_lane],
          .awaited = entry.awaited + (entry.awaited_lane == 0 ? begin : 0)});
    if (entry.task != nullptr) latest_work_[lane] = clocks_[lane][lane];
  }
  for (const std::uint32_t lane : lanes) {
    if (lane != here) merge(here, clocks_[lane]);  // the graph has brought them back
  }
  latest_work_[here] = at(clocks_[here], here);  // the graph's, if it has only waits on this lane
  retain(std::const_pointer_cast<Recording>(graph));
}

const StreamWorker* Capture::unjoined() const noexcept {
  for (std::uint32_t lane = 1; lane < streams_.size(); ++lane) {
    if (at(clocks_.front(), lane) < latest_work_[lane]) return streams_[lane];
  }
  return nullptr;
}

Recording Capture::end() {
  is_open_ = false;
  return std::exchange(recording_, {});
}

std::uint32_t Capture::lane_of(const StreamWorker& stream) const {
  return static_cast<std::uint32_t>(std::ranges::find(streams_, &stream) - streams_.begin());
}

std::uint32_t Capture::add_lane(int device, StreamWorker* stream) {
  const auto lane = static_cast<std::uint32_t>(streams_.size());
  recording_.lane_devices.push_back(device);
  streams_.push_back(stream);
  clocks_.emplace_back(lane + 1, 0);
  latest_work_.push_back(0);
  return lane;
}

void Capture::push(GraphEntry entry) {
  const std::uint32_t lane = entry.lane;
  recording_.entries.push_back(std::move(entry));
  ++clocks_[lane][lane];
}

void Capture::merge(std::uint32_t lane, const std::vector<std::uint64_t>& before) {
  std::vector<std::uint64_t>& clock = clocks_[lane];
  if (clock.size() < before.size()) clock.resize(before.size(), 0);
  for (std::size_t other = 0; other < before.size(); ++other) {
    if (other != lane) clock[other] = std::max(clock[other], before[other]);
  }
}

}  // namespace tutti::backend::host
