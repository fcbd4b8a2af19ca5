#include "tutti/graph.hpp"

#include "fork_mark.hpp"
#include "runtime.hpp"
#include "tutti/error.hpp"

#include <deque>
#include <ranges>
#include <span>
#include <utility>

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
  Impl(backend::Backend& backend, backend::GraphHandle graph, int device)
      : backend_(backend), graph_(graph), device_(device) {}
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  ~Impl() {
    if (!fork_mark_.is_in_child()) backend_.destroy_graph(graph_);
  }

  void launch(const Stream& stream) const {
    if (stream.device() != device_) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format(
              "Graph::launch: stream is one of device {}, expected device {}, on which it was captured",
              stream.device(), device_));
    }
    backend_.launch_graph(graph_, StreamAccess::ref(stream));
  }

 private:
  ForkMark fork_mark_;
  backend::Backend& backend_;
  backend::GraphHandle graph_;
  int device_;
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
  backend.begin_capture(captured);
  try {
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
  return Graph(std::make_unique<Impl>(backend, backend.end_capture(captured), captured.device));
}

Graph::Graph(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

void Graph::launch(const Stream& stream) const {
  impl_->launch(stream);
}

}  // namespace tutti
