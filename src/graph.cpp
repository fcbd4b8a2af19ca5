// SPDX-License-Identifier: Apache-2.0
#include "tutti/graph.hpp"

#include "fork_mark.hpp"
#include "runtime.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <deque>
#include <memory>
#include <ranges>
#include <span>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace tutti {
namespace {

/// Makes streams current while it exists, and the first one's device.
class CurrentStreams {
 public:
  explicit CurrentStreams(std::span<const Stream> streams) {
    for (const Stream& stream : streams | std::views::reverse) guards_.emplace_back(stream);
  }
  CurrentStreams(const CurrentStreams&) = delete;
  CurrentStreams& operator=(const CurrentStreams&) = delete;
  ~CurrentStreams() {
    while (!guards_.empty()) guards_.pop_back();  // they nest
  }

 private:
  std::deque<StreamGuard> guards_;
};

}  // namespace

class Graph::Impl {
 public:
  /// Takes over `graph`, whose resources are those of `retirement`.
  Impl(Runtime& runtime, backend::GraphHandle graph, int device, LateReleases::Ones retirement,
       std::shared_ptr<GraphResources> resources)
      : runtime_(runtime),
        graph_(graph),
        device_(device),
        retirement_(std::move(retirement)),
        resources_(std::move(resources)) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (fork_mark_.is_in_child()) return;
    runtime_.backend().destroy_graph(graph_);
    // What it owns may be used by others when its launches are done.
    LateReleases::One& last = retirement_.front();
    if (passed_.handle() != nullptr) last.marks.push_back(std::move(passed_));
    last.resource = std::move(resources_);
    runtime_.late_releases().add(std::move(retirement_));
    if (!runtime_.backend().is_in_stream_work()) runtime_.release_collected();
  }

  void launch(const Stream& stream) {
    if (stream.device() != device_) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format(
              "Graph::launch: stream is one of device {}, expected device {}, on which it was captured",
              stream.device(), device_));
    }
    const backend::StreamRef queue = StreamAccess::ref(stream);
    if (const auto larger = runtime_.captures().of(queue)) return become_part_of(*larger, queue);
    remember(queue);
    if (!resources_->draws().empty()) {
      // Launches come one after another, but what is written for this one would not wait for the last.
      if (has_launched_ && (latest_ != queue || runtime_.backend().is_of_calling_thread(queue)))
        runtime_.wait_event(queue, passed_.handle());
      resources_->draws().begin_launch(queue);
    }
    runtime_.backend().launch_graph(graph_, queue);
    if (passed_.handle() == nullptr) return;
    runtime_.backend().record_event(passed_.handle(), queue);
    latest_ = queue;
    has_launched_ = true;
  }

 private:
  /// Of a graph under capture.
  void become_part_of(GraphResources& larger, backend::StreamRef queue) {
    if (!resources_->draws().empty()) {
      throw Error(
          ErrorCode::unsupported,
          "Graph::launch: stream is being captured, and this graph draws random numbers: it cannot be "
          "part of another graph");
    }
    larger.keep(resources_);
    runtime_.backend().launch_graph(graph_, queue);
  }

  /// Whatever of its work there will be when the graph is destroyed can be waited for then: on the library's
  /// own streams, which live as long; by an event behind the last launch, where one is needed anyway or a
  /// stream is the user's.
  void remember(backend::StreamRef queue) {
    std::vector<backend::StreamRef>& streams = retirement_.front().streams;
    if (passed_.handle() == nullptr && (!resources_->draws().empty() || !runtime_.owns(queue)))
      passed_ = PooledEvent(runtime_.events(), device_);
    retirement_.front().marks.reserve(1);  // for the destructor
    if (passed_.handle() == nullptr && std::ranges::find(streams, queue) == streams.end())
      streams.push_back(queue);
  }

  ForkMark fork_mark_;
  Runtime& runtime_;
  backend::GraphHandle graph_;
  int device_;
  LateReleases::Ones retirement_;  ///< one, with the streams it was launched on
  PooledEvent passed_;             ///< recorded behind the last launch, if there is one
  bool has_launched_ = false;      ///< and so recorded it
  backend::StreamRef latest_;      ///< where it did
  std::shared_ptr<GraphResources> resources_;
};

Graph Graph::capture(const Stream& stream, const std::function<void()>& work) {
  return capture(std::span(&stream, 1), work);
}

Graph Graph::capture(StreamList streams, const std::function<void()>& work) {
  if (streams.empty()) {
    throw Error(ErrorCode::invalid_argument, "Graph::capture: streams is empty, expected at least one");
  }
  Runtime& runtime = Runtime::get();
  backend::Backend& backend = runtime.backend();
  if (!backend.supports_graphs()) {
    throw Error(ErrorCode::unsupported, "Graph::capture: virtual devices have no graphs");
  }
  const backend::StreamRef captured = StreamAccess::ref(streams.front());
  const std::span<const Stream> others = streams.subspan(1);
  const CurrentStreams current(streams);
  LateReleases::Ones retirement(1);
  const auto resources = std::make_shared<GraphResources>(runtime, GraphLaunches::of_library);
  backend.begin_capture(captured);
  try {
    runtime.captures().add(captured, resources);
    const GraphCaptures::Thread capturing(*resources);
    for (const Stream& stream : others) runtime.order(captured, StreamAccess::ref(stream));
    work();
    for (const Stream& stream : others) runtime.order(StreamAccess::ref(stream), captured);
  } catch (...) {
    try {
      backend.destroy_graph(backend.end_capture(captured));
    } catch (const Error&) {
      // A capture that has failed cannot be made a graph of; it has ended.
    }
    throw;
  }
  const backend::GraphHandle graph = backend.end_capture(captured);
  return Graph(std::make_unique<Impl>(runtime, graph, captured.device, std::move(retirement), resources));
}

Graph::Graph(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

void Graph::launch(const Stream& stream) const {
  impl_->launch(stream);
}

}  // namespace tutti
