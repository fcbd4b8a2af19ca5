// SPDX-License-Identifier: Apache-2.0
#include "allocator/graph_pools/graph_captures.hpp"

#include "allocator/graph_pools/graph_resources.hpp"
#include "device/runtime.hpp"
#include "stream/late_releases.hpp"
#include "tutti/error.hpp"

#include <utility>

#include <fmt/format.h>

namespace tutti {

GraphCaptures::GraphCaptures(Runtime& runtime)
    : runtime_(runtime), backend_(runtime.backend()), late_releases_(runtime.part<LateReleases>()) {}

void GraphCaptures::add(backend::StreamRef stream, const std::shared_ptr<GraphResources>& resources) {
  const std::uint64_t capture = backend_.capture_id(stream);
  const std::lock_guard lock(mutex_);
  std::erase_if(by_capture_, [](const auto& entry) { return entry.second.expired(); });
  by_capture_[capture] = resources;
}

std::shared_ptr<GraphResources> GraphCaptures::of(backend::StreamRef stream) {
  if (!backend_.is_capturing(stream)) [[likely]]
    return nullptr;
  const std::uint64_t capture = backend_.capture_id(stream);
  if (capture == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  if (const auto known = by_capture_.find(capture); known != by_capture_.end()) {
    if (auto resources = known->second.lock()) return resources;
  }
  std::erase_if(by_capture_, [](const auto& entry) { return entry.second.expired(); });
  auto resources = std::make_shared<GraphResources>(runtime_, GraphLaunches::of_others);
  late_releases_.retain_in_graph(stream, resources);
  by_capture_[capture] = resources;
  return resources;
}

GraphPool GraphCaptures::pool_of_captured(backend::StreamRef stream) {
  const std::shared_ptr<GraphResources> resources = of(stream);
  return resources == nullptr ? GraphPool::none : resources->pool();
}

void GraphCaptures::retain(backend::StreamRef stream, std::shared_ptr<void> resource) {
  const std::shared_ptr<GraphResources> graph = of(stream);
  if (graph != nullptr && graph->launches() == GraphLaunches::of_library) {
    graph->keep(std::move(resource));
  } else {
    late_releases_.retain_in_graph(stream, std::move(resource));
  }
}

void require_no_default_stream(Runtime& runtime, std::span<const backend::StreamRef> streams,
                               std::string_view function) {
  for (const backend::StreamRef stream : streams) {
    if (stream != runtime.backend().default_stream(stream.device)) continue;
    throw Error(
        ErrorCode::unsupported,
        fmt::format("{}: a stream of the call is being captured, but its stream on device {} is the default "
                    "stream, which cannot be captured, expected another current stream there",
                    function, stream.device));
  }
}

bool graph_keeps(Storage& storage, backend::StreamRef stream) {
  Runtime* const runtime = Runtime::get_if_initialized();  // none in a process forked off
  if (runtime == nullptr) return false;
  std::shared_ptr<GraphResources> graph;
  try {
    graph = runtime->part<GraphCaptures>().of(stream);
  } catch (const Error&) {
    // Destructors ask, too: what has failed, or a capture that has become invalid, is told by other calls.
    return false;
  }
  if (graph == nullptr) return false;
  graph->keep(storage);
  return true;
}

}  // namespace tutti
