// SPDX-License-Identifier: Apache-2.0
#include "transport/team/symmetric/released_blocks.hpp"

#include "device/open_captures.hpp"
#include "device/runtime.hpp"

#include <iterator>
#include <memory>
#include <utility>

namespace tutti::transport::team {

ReleasedBlocks::ReleasedBlocks(Runtime& runtime) : reclaimers_(runtime.part<Allocators>().reclaimers()) {}

ReleasedBlocks::~ReleasedBlocks() {
  reclaim();
  for (Released& kept : kept_)
    static_cast<void>(std::make_unique<SymmetricBlocks>(std::move(kept.blocks)).release());
}

void ReleasedBlocks::join() {
  const std::lock_guard lock(mutex_);
  if (!std::exchange(is_reclaimer_, true)) reclaimers_->add(weak_from_this());
}

void ReleasedBlocks::add(std::list<Released>&& released) noexcept {
  const std::lock_guard lock(mutex_);
  kept_.splice(kept_.end(), released);
}

bool ReleasedBlocks::reclaim() {
  const OpenCapture of_no_graph(GraphPool::none);  // they are no part of what this thread captures
  std::list<Released> gone;                        // blocks are freed without the lock
  const std::lock_guard lock(mutex_);
  for (auto kept = kept_.begin(); kept != kept_.end();) {
    const auto next = std::next(kept);
    if (kept->flags->are_all_released()) gone.splice(gone.end(), kept_, kept);
    kept = next;
  }
  return !gone.empty();
}

}  // namespace tutti::transport::team
