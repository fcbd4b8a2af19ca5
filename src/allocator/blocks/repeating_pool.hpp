// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/blocks/block_pool.hpp"

#include <cstddef>

namespace tutti {

/// A block pool in which a repeated request costs a few instructions.
///
/// A request repeats the previous one if that one's block has been freed and nothing else has happened in
/// between: it gets the same block. From the second repeat on, each repeat leaves the pool's state as it
/// found it. So repeats are only counted, and their block, while it is idle, is neither cached nor joined
/// with its neighbours. Every other call first brings the state up to date, so the difference is not
/// observable. Not synchronised.
class RepeatingPool {
 public:
  explicit RepeatingPool(int device, SegmentIndex* index = nullptr,
                         std::size_t max_split_bytes = AllocatorSettings::no_limit)
      : pool_(device, index, max_split_bytes) {}

  /// Works as `BlockPool::take`.
  [[nodiscard]] Block* take(std::size_t requested_bytes, backend::StreamRef stream,
                            GraphPool graph_pool = GraphPool::none) {
    const bool is_repeat =
        is_idle_ && requested_bytes == requested_bytes_ && stream == stream_ && graph_pool == graph_pool_;
    if (!is_repeat) return take_first(requested_bytes, stream, graph_pool);
    if (repeats_ < entered_repeats) return take_again();
    ++repeats_;
    is_idle_ = false;
    block_->state = BlockState::in_use;
    return block_;
  }
  /// Works as `BlockPool::release` followed by `give_back`.
  void free(Block& block) noexcept {
    if (&block != block_ || repeats_ < entered_repeats) return free_entered(block);
    is_idle_ = true;
    block.is_raw = false;
    block.state = BlockState::awaiting_free;
  }
  /// Gives access to all other calls of the pool, with counts that are up to date.
  [[nodiscard]] BlockPool* operator->() noexcept {
    end_repeats();
    return &pool_;
  }

 private:
  /// The number of repeats after which the counts are known to be where they were before.
  static constexpr std::size_t entered_repeats = 2;

  [[nodiscard]] Block* take_first(std::size_t requested_bytes, backend::StreamRef stream,
                                  GraphPool graph_pool);
  [[nodiscard]] Block* take_again();
  void free_entered(Block& block) noexcept;
  /// Brings the state up to date. The next request does not count as a repeat.
  void end_repeats() noexcept;

  Block* block_ = nullptr;  ///< of the last request, nullptr if something else has happened since
  bool is_idle_ = false;    ///< it has been given back
  std::size_t requested_bytes_ = 0;
  backend::StreamRef stream_;
  GraphPool graph_pool_ = GraphPool::none;
  std::size_t repeats_ = 0;  ///< of the last request; the books have `entered_repeats` at most
  MemoryCounts::Figures allocated_by_first_{};  ///< what had been allocated when the first was served
  BlockPool pool_;
};

}  // namespace tutti
