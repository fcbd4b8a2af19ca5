// SPDX-License-Identifier: Apache-2.0
#include "allocator/blocks/repeating_pool.hpp"

namespace tutti {

Block* RepeatingPool::take_first(std::size_t requested_bytes, backend::StreamRef stream,
                                 GraphPool graph_pool) {
  end_repeats();
  block_ = pool_.take(requested_bytes, stream, graph_pool);
  requested_bytes_ = requested_bytes;
  stream_ = stream;
  graph_pool_ = graph_pool;
  return block_;
}

Block* RepeatingPool::take_again() {
  Block* const block = pool_.take(requested_bytes_, stream_, graph_pool_);
  is_idle_ = false;
  ++repeats_;
  if (repeats_ == 1) allocated_by_first_ = pool_.counts().allocated(block->segment->pool);
  return block;
}

void RepeatingPool::free_entered(Block& block) noexcept {
  if (&block == block_) {
    is_idle_ = true;
  } else {
    end_repeats();
  }
  pool_.release(block);
  pool_.give_back(block);
}

void RepeatingPool::end_repeats() noexcept {
  if (repeats_ >= entered_repeats) {
    pool_.counts().repeat_since(allocated_by_first_, block_->segment->pool, repeats_ - entered_repeats);
    if (is_idle_) {
      pool_.release(*block_);
      pool_.give_back(*block_);
    }
  }
  block_ = nullptr;
  is_idle_ = false;
  repeats_ = 0;
}

}  // namespace tutti
