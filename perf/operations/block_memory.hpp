// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/case.hpp"
#include "perf/operations/foreign_memory.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace tutti::perf {

/// Memory for operands in one block for each local member, which is cut into sets: tensors made in the same
/// order lie at the same place of each block.
class BlockMemory : public OperandMemory {
 public:
  void start_set(std::size_t set) override;
  [[nodiscard]] Tensor make(const std::vector<std::int64_t>& sizes, DType dtype, std::size_t local) override;

 protected:
  explicit BlockMemory(std::vector<Device> devices) : devices_(std::move(devices)), used_(devices_.size()) {}

  [[nodiscard]] const std::vector<Device>& devices() const noexcept { return devices_; }
  [[nodiscard]] virtual std::byte* block(std::size_t local) const = 0;
  /// Sets of tensors made from now on have so many bytes in each block.
  void cut(std::size_t bytes_of_set) noexcept { bytes_of_set_ = bytes_of_set; }

 private:
  std::vector<Device> devices_;    ///< of the local members
  std::vector<std::size_t> used_;  ///< of the set, in each block
  std::size_t bytes_of_set_ = 0;
  std::size_t set_ = 0;
};

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
