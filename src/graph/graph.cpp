// SPDX-License-Identifier: Apache-2.0
#include "tutti/graph.hpp"

#include "allocator/graph_pools/private_pool.hpp"
#include "device/current_device.hpp"
#include "graph/graph_recorder.hpp"
#include "graph/launchable_graph.hpp"
#include "stream/current_streams.hpp"
#include "stream/stream_access.hpp"
#include "stream/streams.hpp"
#include "stream/thread_streams.hpp"
#include "tutti/error.hpp"

#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace tutti {
Graph Graph::capture(const Stream& stream, const std::function<void()>& work, const CaptureOptions& options) {
  return capture(std::span(&stream, 1), work, options);
}

Graph Graph::capture(StreamList streams, const std::function<void()>& work, const CaptureOptions& options) {
  if (streams.empty()) {
    throw Error(ErrorCode::invalid_argument, "Graph::capture: streams is empty, expected at least one");
  }
  Runtime& runtime = Runtime::get();
  const backend::StreamRef captured = StreamAccess::ref(streams.front());
  const std::span<const Stream> others = streams.subspan(1);
  const CurrentStreams current(streams);
  GraphRecorder recorder(runtime, "Graph::capture", captured, options);
  for (const Stream& stream : others) runtime.part<Streams>().order(captured, StreamAccess::ref(stream));
  work();
  for (const Stream& stream : others) runtime.part<Streams>().order(StreamAccess::ref(stream), captured);
  return Graph(recorder.end(nullptr));
}

Graph::Graph(std::unique_ptr<LaunchableGraph> graph) noexcept : graph_(std::move(graph)) {}
Graph::Graph(Graph&&) noexcept = default;
Graph& Graph::operator=(Graph&&) noexcept = default;
Graph::~Graph() = default;

void Graph::launch(const Stream& stream) const {
  graph_->launch(stream, "Graph::launch");
}

GraphPoolHandle Graph::pool() const {
  return GraphPoolAccess::make(graph_->pool());
}

bool is_current_stream_capturing() {
  Runtime* const runtime = Runtime::get_if_initialized();
  if (runtime == nullptr || runtime->device_count() == 0) return false;
  return runtime->backend().is_capturing(current_stream_ref(*runtime, current_index(*runtime)));
}

}  // namespace tutti
