// SPDX-License-Identifier: Apache-2.0
#include "graph_resources.hpp"

#include "graph_captures.hpp"
#include "runtime.hpp"

#include <atomic>
#include <utility>

namespace tutti {
namespace {

GraphPool next_pool() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return GraphPool{last.fetch_add(1, std::memory_order_relaxed) + 1};
}

}  // namespace

GraphResources::GraphResources(Runtime& runtime, GraphLaunches launches)
    : runtime_(runtime), launches_(launches), pool_(next_pool()), draws_(runtime) {
  for (int device = 0; device < runtime_.device_count(); ++device)
    runtime_.allocator(device).add_graph_pool(pool_);
  runtime_.pinned().add_graph_pool(pool_);
}

GraphResources::~GraphResources() {
  // The calling thread may be capturing another graph, which is not to keep what this one lets go of.
  const GraphCaptures::Thread of_no_graph(GraphPool::none);
  // Whatever of it is memory of the pools goes back to them first.
  draws_.clear();
  storages_.clear();
  resources_.clear();
  const auto work = launches_ == GraphLaunches::of_library ? GraphWork::done : GraphWork::unknown;
  for (int device = 0; device < runtime_.device_count(); ++device)
    runtime_.allocator(device).close_graph_pool(pool_, work);
  runtime_.pinned().close_graph_pool(pool_);
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
