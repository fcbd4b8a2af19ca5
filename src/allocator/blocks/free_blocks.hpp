// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "base/cache_line.hpp"
#include "tutti/memory.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti {

struct Block;

/// Cached blocks of one memory pool, by size: puts one in, takes one out and finds the best fit in a few
/// steps each, however many there are, without taking memory from the heap.
///
/// Each size class has a list, in ascending order of size. Of the small pool a class is one size, so that
/// there is nothing to look through; of the large pool there are 64 to each doubling. Bit masks tell which
/// lists have blocks. Of equal blocks, that comes out first which went in last.
class FreeBlocks {
 public:
  explicit FreeBlocks(MemoryPool pool) noexcept : pool_(pool) {}

  /// Allocates what `insert` needs; called before the first `insert`. Throws std::bad_alloc.
  void make_room();
  void insert(Block& block) noexcept;
  void remove(Block& block) noexcept;
  /// Takes all blocks of `other`, which is left empty.
  void take_all(FreeBlocks& other) noexcept;
  /// Returns the smallest block of at least `bytes` bytes, nullptr if there is none. The block stays in the
  /// list.
  [[nodiscard]] Block* best_fit(std::size_t bytes) const noexcept;

 private:
  static constexpr std::size_t word_bits = 64;
  static constexpr std::size_t class_count = word_bits * word_bits;

  [[nodiscard]] static std::size_t class_of(MemoryPool pool, std::size_t bytes) noexcept;
  /// Returns the first class from `from` on that has blocks; `class_count` if none has.
  [[nodiscard]] std::size_t next_occupied(std::size_t from) const noexcept;

  MemoryPool pool_;
  std::uint64_t occupied_words_ = 0;                 ///< a bit for each word of `occupied_` that is not 0
  std::array<std::uint64_t, word_bits> occupied_{};  ///< a bit for each class
  std::vector<Block*, CacheLineAllocator<Block*>> first_;  ///< by class
};

}  // namespace tutti
