// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/block_memory.hpp"
#include "perf/operations/foreign_memory.hpp"

#include <cstddef>
#include <vector>

namespace tutti::perf {

/// The memory of tutti's operands if that is not to be tutti's own. A block is allocated once, for the
/// largest operands: communicators that have it open must be gone before it is freed.
class OperandArena final : public BlockMemory {
 public:
  /// Blocks have at most `most` bytes, unless a single case takes more.
  OperandArena(MemoryChoice choice, const std::vector<Device>& devices, std::size_t most)
      : BlockMemory(devices), choice_(choice), most_(most) {}

  /// Announces that so many bytes of a block will be needed.
  void foresee(std::size_t bytes) noexcept;
  /// Makes room for `sets` sets of `bytes_of_set` in each block. Throws Error(out_of_memory), also if the
  /// block is there already and has less room, and what `register_memory` throws.
  void reserve(std::size_t sets, std::size_t bytes_of_set);

 private:
  [[nodiscard]] std::byte* block(std::size_t local) const override { return blocks_[local].data(); }

  MemoryChoice choice_;
  std::size_t most_;
  std::size_t foreseen_ = 0;
  std::size_t bytes_ = 0;  ///< of a block
  std::vector<ForeignMemory> blocks_;
};

}  // namespace tutti::perf
