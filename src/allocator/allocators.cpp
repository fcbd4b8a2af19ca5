// SPDX-License-Identifier: Apache-2.0
#include "allocator/allocators.hpp"

#include "device/runtime.hpp"
#include "settings/environment.hpp"
#include "stream/event_pool.hpp"
#include "tutti/error.hpp"

#include <fmt/format.h>

namespace tutti {

void Reclaimers::add(std::weak_ptr<Reclaimer> reclaimer) {
  const std::lock_guard lock(mutex_);
  std::erase_if(reclaimers_, [](const auto& each) { return each.expired(); });
  reclaimers_.push_back(std::move(reclaimer));
}

bool Reclaimers::reclaim() {
  std::vector<std::weak_ptr<Reclaimer>> all;  // asked without the lock: they free memory
  {
    const std::lock_guard lock(mutex_);
    all = reclaimers_;
  }
  bool has_reclaimed = false;
  for (const auto& each : all) {
    if (const std::shared_ptr<Reclaimer> reclaimer = each.lock()) has_reclaimed |= reclaimer->reclaim();
  }
  return has_reclaimed;
}

Allocators::Allocators(Runtime& runtime)
    : late_releases_(runtime.part<LateReleases>()), registered_(runtime.backend()) {
  auto& events = runtime.part<EventPool>();
  for (int device = 0; device < runtime.device_count(); ++device) {
    by_device_.push_back(std::make_unique<CachingAllocator>(runtime.backend(), events, device, &segments_,
                                                            Environment::get().allocators));
  }
}

Allocators::~Allocators() = default;

CachingAllocator::Extent Allocators::memory_around(int device, const void* address) {
  const CachingAllocator::Extent segment = of(device).segment_of(address);
  return segment.address != nullptr ? segment : registered_.allocation_of(device, address);
}

void Allocators::add_graph_pool(GraphPool graph_pool) {
  for (const auto& allocator : by_device_) allocator->add_graph_pool(graph_pool);
  const std::lock_guard lock(mutex_);
  graph_pools_.push_back(graph_pool);
  for (GraphPoolKeeper* const keeper : keepers_) keeper->add_graph_pool(graph_pool);
}

void Allocators::close_graph_pool(GraphPool graph_pool, GraphWork work) noexcept {
  for (const auto& allocator : by_device_) allocator->close_graph_pool(graph_pool, work);
  {
    const std::lock_guard lock(mutex_);
    std::erase(graph_pools_, graph_pool);
  }
  // Keepers are told without the lock: what they free may call functions of the program.
  for (std::size_t next = 0; GraphPoolKeeper* const keeper = keeper_at(next); ++next)
    keeper->close_graph_pool(graph_pool);
}

GraphPoolKeeper* Allocators::keeper_at(std::size_t index) noexcept {
  const std::lock_guard lock(mutex_);
  return index < keepers_.size() ? keepers_[index] : nullptr;
}

void Allocators::add_keeper(GraphPoolKeeper& keeper) {
  const std::lock_guard lock(mutex_);
  for (const GraphPool graph_pool : graph_pools_) keeper.add_graph_pool(graph_pool);
  keepers_.push_back(&keeper);
}

void Allocators::remove_keeper(GraphPoolKeeper& keeper) noexcept {
  const std::lock_guard lock(mutex_);
  std::erase(keepers_, &keeper);
}

bool Allocators::reclaim() {
  const bool has_released = late_releases_.release();
  return reclaimers_->reclaim() || has_released;
}

void Allocators::require_unused() {
  if (const std::size_t count = registered_.count(); count != 0) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("virtual_devices::start: {} ranges of memory are still registered, expected none: "
                    "end their registrations first",
                    count));
  }
  for (std::size_t device = 0; device < by_device_.size(); ++device) {
    CachingAllocator& allocator = *by_device_[device];
    try {
      allocator.finish_pending();
    } catch (const Error&) {
      // Failures of work on devices that are about to be replaced.
    }
    if (const std::size_t active = allocator.bytes_active(); active != 0) {
      throw Error(
          ErrorCode::invalid_argument,
          fmt::format("virtual_devices::start: {} bytes of device {} are still allocated, expected none: "
                      "destroy all tensors first",
                      active, device));
    }
  }
}

}  // namespace tutti
