// SPDX-License-Identifier: Apache-2.0
#include "allocator/graph_pools/graph_resources.hpp"

#include "device/open_captures.hpp"

#include <algorithm>
#include <utility>

namespace tutti {

GraphResources::GraphResources(Runtime& runtime, GraphLaunches launches)
    : runtime_(runtime), launches_(launches), pool_(std::make_shared<PrivatePool>(runtime, launches)) {}

GraphResources::GraphResources(Runtime& runtime, std::shared_ptr<PrivatePool> pool)
    : runtime_(runtime), launches_(GraphLaunches::of_library), pool_(std::move(pool)) {}

GraphResources::~GraphResources() {
  // The calling thread may be capturing another graph, which is not to keep what this one lets go of.
  const OpenCapture of_no_graph(GraphPool::none);
  // Whatever of it is memory of the pools goes back to them first.
  attached_.clear();
  storages_.clear();
  resources_.clear();
  pool_.reset();
}

void GraphResources::keep(Storage& storage) {
  const std::lock_guard lock(mutex_);
  const auto [entry, is_new] = storages_.try_emplace(&storage);
  if (!is_new) return;
  entry->second = detail::IntrusivePtr<Storage>::share(&storage);
}

void GraphResources::keep(std::shared_ptr<void> resource) {
  const std::lock_guard lock(mutex_);
  resources_.push_back(std::move(resource));
}

void* GraphResources::find_or_attach(std::type_index type, Make make) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::ranges::find_if(attached_, [type](const auto& entry) { return entry.first == type; });
  if (found != attached_.end()) return found->second.get();
  return make == nullptr ? nullptr : attached_.emplace_back(type, make(*this)).second.get();
}

}  // namespace tutti
