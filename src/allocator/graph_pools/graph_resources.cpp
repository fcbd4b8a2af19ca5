// SPDX-License-Identifier: Apache-2.0
#include "allocator/graph_pools/graph_resources.hpp"

#include "allocator/graph_pools/graph_captures.hpp"
#include "device/runtime.hpp"

#include <utility>

namespace tutti {

GraphResources::GraphResources(Runtime& runtime, GraphLaunches launches)
    : launches_(launches),
      pool_(std::make_shared<PrivatePool>(runtime, launches)),
      draws_(runtime, launches) {}

GraphResources::GraphResources(Runtime& runtime, std::shared_ptr<PrivatePool> pool)
    : launches_(GraphLaunches::of_library), pool_(std::move(pool)), draws_(runtime, launches_) {}

GraphResources::~GraphResources() {
  // The calling thread may be capturing another graph, which is not to keep what this one lets go of.
  const GraphCaptures::Thread of_no_graph(GraphPool::none);
  // Whatever of it is memory of the pools goes back to them first.
  draws_.clear();
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

}  // namespace tutti
