// SPDX-License-Identifier: Apache-2.0
#include "allocator/graph_pools/private_pool.hpp"

#include "allocator/allocators.hpp"
#include "allocator/pinned_allocator.hpp"
#include "device/runtime.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tutti {
namespace {

GraphPool next_pool() noexcept {
  static std::atomic<std::uint64_t> last{0};
  return GraphPool{last.fetch_add(1, std::memory_order_relaxed) + 1};
}

}  // namespace

PrivatePool::PrivatePool(Runtime& runtime, GraphLaunches launches)
    : runtime_(runtime), generation_(runtime.generation()), launches_(launches), id_(next_pool()) {
  runtime_.part<Allocators>().add_graph_pool(id_);
  runtime_.part<PinnedAllocator>().add_graph_pool(id_);
}

PrivatePool::~PrivatePool() {
  if (fork_mark_.is_in_child()) return;  // where threads that are gone may hold locks of the allocators
  // A handle may outlive the devices, whose allocators took the pool with them.
  const Runtime* const current = Runtime::get_if_initialized();
  if (current != nullptr && current->generation() > generation_) return;
  const auto work = launches_ == GraphLaunches::of_library ? GraphWork::done : GraphWork::unknown;
  runtime_.part<Allocators>().close_graph_pool(id_, work);
  runtime_.part<PinnedAllocator>().close_graph_pool(id_);
}

Stream PrivatePool::capture_stream(int device) {
  const std::lock_guard lock(mutex_);
  const auto known =
      std::ranges::find_if(capture_streams_, [device](const Stream& one) { return one.device() == device; });
  return known != capture_streams_.end() ? *known : capture_streams_.emplace_back(device);
}

PrivatePool::Use::Use(std::shared_ptr<PrivatePool> pool, std::string_view function) : pool_(std::move(pool)) {
  if (!pool_->is_in_use_.exchange(true)) return;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{}: pool {} is being used by another capture that has not ended, expected one pool "
                  "for one capture at a time",
                  function, static_cast<std::uint64_t>(pool_->id())));
}

std::shared_ptr<PrivatePool> GraphPoolAccess::pool_for(Runtime& runtime, const GraphPoolHandle& handle,
                                                       std::string_view function) {
  if (!handle.defined()) return std::make_shared<PrivatePool>(runtime, GraphLaunches::of_library);
  auto pool = std::static_pointer_cast<PrivatePool>(handle.pool_);
  if (pool->generation() == runtime.generation()) return pool;
  throw Error(
      ErrorCode::invalid_argument,
      fmt::format("{}: pool {} belongs to devices that have been replaced, expected one of the devices "
                  "in use",
                  function, static_cast<std::uint64_t>(pool->id())));
}

std::uint64_t GraphPoolHandle::id() const noexcept {
  return defined() ? static_cast<std::uint64_t>(std::static_pointer_cast<PrivatePool>(pool_)->id()) : 0;
}

GraphPoolHandle graph_pool_handle() {
  return GraphPoolAccess::make(std::make_shared<PrivatePool>(Runtime::get(), GraphLaunches::of_library));
}

}  // namespace tutti
