// SPDX-License-Identifier: Apache-2.0
#include "graph/launchable_graph.hpp"

#include "tutti/error.hpp"

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti {

LaunchableGraph::~LaunchableGraph() {
  if (fork_mark_.is_in_child()) return;
  if (is_orphaned()) {
    passed_.forget();
    return;
  }
  runtime_.backend().destroy_graph(graph_);
  // What it owns may be used by others when its launches are done.
  LateReleases::One& last = retirement_.front();
  if (passed_.handle() != nullptr) last.marks.push_back(std::move(passed_));
  last.resource = std::move(resources_);
  runtime_.late_releases().add(std::move(retirement_));
  if (!runtime_.backend().is_in_stream_work()) runtime_.release_collected();
}

bool LaunchableGraph::is_orphaned() const noexcept {
  const Runtime* const current = Runtime::get_if_initialized();
  return current != nullptr && current->generation() > generation_;
}

void LaunchableGraph::launch(const Stream& stream, std::string_view function) {
  if (is_orphaned()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: the graph belongs to devices that have been replaced, expected one of the "
                            "devices in use",
                            function));
  }
  if (stream.device() != device_) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: stream is one of device {}, expected device {}, on which it was captured",
                            function, stream.device(), device_));
  }
  const backend::StreamRef queue = StreamAccess::ref(stream);
  if (const auto larger = runtime_.captures().of(queue)) return become_part_of(*larger, queue, function);
  remember(queue);
  if (!resources_->draws().empty()) {
    // Launches come one after another, but what is written for this one would not wait for the last.
    if (has_launched_ && (latest_ != queue || runtime_.backend().is_of_calling_thread(queue)))
      runtime_.wait_event(queue, passed_.handle());
    resources_->draws().begin_launch(queue);
  }
  runtime_.backend().launch_graph(graph_, queue);
  if (passed_.handle() == nullptr) return;
  passed_.record(queue);
  latest_ = queue;
  has_launched_ = true;
}

void LaunchableGraph::become_part_of(GraphResources& larger, backend::StreamRef queue,
                                     std::string_view function) {
  if (!resources_->draws().empty()) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{}: stream is being captured, and this graph draws random numbers: it cannot be "
                            "part of another graph",
                            function));
  }
  larger.keep(resources_);
  runtime_.backend().launch_graph(graph_, queue);
}

void LaunchableGraph::remember(backend::StreamRef queue) {
  std::vector<backend::StreamRef>& streams = retirement_.front().streams;
  if (passed_.handle() == nullptr && (!resources_->draws().empty() || !runtime_.owns(queue)))
    passed_ = PooledEvent(runtime_.events(), device_);
  retirement_.front().marks.reserve(1);  // for the destructor
  if (passed_.handle() == nullptr && std::ranges::find(streams, queue) == streams.end())
    streams.push_back(queue);
}

}  // namespace tutti
