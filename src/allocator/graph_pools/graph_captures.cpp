// SPDX-License-Identifier: Apache-2.0
#include "allocator/graph_pools/graph_captures.hpp"

#include "device/runtime.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tutti {

thread_local constinit GraphCaptures::OpenHere GraphCaptures::open_here;

void GraphCaptures::OpenHere::remove(std::uint64_t number) noexcept {
  const auto begin = pools.begin();
  const auto end = begin + static_cast<std::ptrdiff_t>(count);
  const auto removed = std::find_if(begin, end, [number](const Open& open) { return open.number == number; });
  if (removed == end) return;
  std::move(removed + 1, end, removed);
  --count;
}

void GraphCaptures::add(backend::StreamRef stream, const std::shared_ptr<GraphResources>& resources) {
  const std::uint64_t capture = runtime_.backend().capture_id(stream);
  const std::lock_guard lock(mutex_);
  std::erase_if(by_capture_, [](const auto& entry) { return entry.second.expired(); });
  by_capture_[capture] = resources;
}

std::shared_ptr<GraphResources> GraphCaptures::of(backend::StreamRef stream) {
  backend::Backend& backend = runtime_.backend();
  if (!backend.is_capturing(stream)) [[likely]]
    return nullptr;
  const std::uint64_t capture = backend.capture_id(stream);
  if (capture == 0) return nullptr;
  const std::lock_guard lock(mutex_);
  if (const auto known = by_capture_.find(capture); known != by_capture_.end()) {
    if (auto resources = known->second.lock()) return resources;
  }
  std::erase_if(by_capture_, [](const auto& entry) { return entry.second.expired(); });
  auto resources = std::make_shared<GraphResources>(runtime_, GraphLaunches::of_others);
  runtime_.retain_in_graph(stream, resources);
  by_capture_[capture] = resources;
  return resources;
}

GraphPool GraphCaptures::pool_of(backend::StreamRef stream) {
  if (!runtime_.backend().is_capturing(stream)) [[likely]]
    return GraphPool::none;
  const std::shared_ptr<GraphResources> resources = of(stream);
  return resources == nullptr ? GraphPool::none : resources->pool();
}

void require_no_default_stream(Runtime& runtime, std::span<const backend::StreamRef> streams,
                               std::string_view function) {
  for (const backend::StreamRef stream : streams) {
    if (stream != runtime.backend().default_stream(stream.device)) continue;
    throw Error(
        ErrorCode::unsupported,
        fmt::format("{}: a stream of the call is being captured, and the one on device {} is the default "
                    "stream, which cannot be part of a capture, expected another one: make one current "
                    "there before",
                    function, stream.device));
  }
}

bool graph_keeps(Storage& storage, backend::StreamRef stream) {
  Runtime* const runtime = Runtime::get_if_initialized();  // none in a process forked off
  if (runtime == nullptr) return false;
  std::shared_ptr<GraphResources> graph;
  try {
    graph = runtime->captures().of(stream);
  } catch (const Error&) {
    // Destructors ask, too: what has failed, or a capture that has become invalid, is told by other calls.
    return false;
  }
  if (graph == nullptr) return false;
  graph->keep(storage);
  return true;
}

}  // namespace tutti
