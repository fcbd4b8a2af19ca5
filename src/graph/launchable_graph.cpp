// SPDX-License-Identifier: Apache-2.0
#include "graph/launchable_graph.hpp"

#include "allocator/graph_pools/graph_captures.hpp"
#include "allocator/graph_pools/graph_resources.hpp"
#include "rng/random_draws.hpp"
#include "stream/event_pool.hpp"
#include "stream/late_releases.hpp"
#include "stream/stream_access.hpp"
#include "stream/streams.hpp"
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
  runtime_.part<LateReleases>().add(std::move(retirement_));
  if (!runtime_.backend().is_in_stream_work()) runtime_.part<LateReleases>().release();
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
  if (const auto larger = runtime_.part<GraphCaptures>().of(queue))
    return become_part_of(*larger, queue, function);
  remember(queue);
  if (RandomDraws* const draws = random_draws()) {
    // Launches come one after another, but what is written for this one would not wait for the last.
    if (has_launched_ && (latest_ != queue || runtime_.backend().is_of_calling_thread(queue)))
      runtime_.part<Streams>().wait_event(queue, passed_.handle());
    draws->begin_launch(queue);
  }
  runtime_.backend().launch_graph(graph_, queue);
  if (passed_.handle() == nullptr) return;
  passed_.record(queue);
  latest_ = queue;
  has_launched_ = true;
}

void LaunchableGraph::become_part_of(GraphResources& larger, backend::StreamRef queue,
                                     std::string_view function) {
  if (random_draws() != nullptr) {
    throw Error(ErrorCode::unsupported,
                fmt::format("{}: stream is being captured, and this graph draws random numbers: it cannot be "
                            "part of another graph",
                            function));
  }
  larger.keep(resources_);
  runtime_.backend().launch_graph(graph_, queue);
}

RandomDraws* LaunchableGraph::random_draws() const {
  auto* const draws = resources_->find_attached<RandomDraws>();
  return draws != nullptr && !draws->empty() ? draws : nullptr;
}

void LaunchableGraph::remember(backend::StreamRef queue) {
  std::vector<backend::StreamRef>& streams = retirement_.front().streams;
  if (passed_.handle() == nullptr && (random_draws() != nullptr || !runtime_.part<Streams>().lasts(queue)))
    passed_ = PooledEvent(runtime_.part<EventPool>(), device_);
  retirement_.front().marks.reserve(1);  // for the destructor
  if (passed_.handle() == nullptr && std::ranges::find(streams, queue) == streams.end())
    streams.push_back(queue);
}

}  // namespace tutti
