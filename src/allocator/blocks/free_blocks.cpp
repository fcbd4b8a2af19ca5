// SPDX-License-Identifier: Apache-2.0
#include "allocator/blocks/free_blocks.hpp"

#include "allocator/blocks/block.hpp"

#include <algorithm>
#include <bit>
#include <utility>

namespace tutti {
namespace {

constexpr std::size_t small_step = 512;
constexpr int smallest_large_shift = 20;  // blocks of the large pool are longer than 1 MiB
constexpr int steps_shift = 6;

constexpr std::uint64_t bit(std::size_t index) noexcept {
  return std::uint64_t{1} << (index % 64);
}

}  // namespace

std::size_t FreeBlocks::class_of(MemoryPool pool, std::size_t bytes) noexcept {
  if (pool == MemoryPool::small_pool) return std::min(bytes / small_step, class_count) - 1;
  const int shift = std::max(static_cast<int>(std::bit_width(bytes)) - 1, smallest_large_shift);
  const std::size_t step = (bytes >> (shift - steps_shift)) & (word_bits - 1);
  return (static_cast<std::size_t>(shift - smallest_large_shift) << steps_shift) + step;
}

void FreeBlocks::make_room() {
  first_.resize(class_count);
}

void FreeBlocks::insert(Block& block) noexcept {
  const std::size_t size_class = class_of(pool_, block.bytes);
  Block* before = nullptr;
  Block* after = first_[size_class];
  while (after != nullptr && after->bytes < block.bytes) {
    before = after;
    after = after->next_cached;
  }
  block.previous_cached = before;
  block.next_cached = after;
  if (after != nullptr) after->previous_cached = &block;
  if (before != nullptr) {
    before->next_cached = &block;
    return;
  }
  first_[size_class] = &block;
  occupied_[size_class / word_bits] |= bit(size_class);
  occupied_words_ |= bit(size_class / word_bits);
}

void FreeBlocks::remove(Block& block) noexcept {
  if (block.next_cached != nullptr) block.next_cached->previous_cached = block.previous_cached;
  if (block.previous_cached != nullptr) {
    block.previous_cached->next_cached = block.next_cached;
    return;
  }
  const std::size_t size_class = class_of(pool_, block.bytes);
  first_[size_class] = block.next_cached;
  if (block.next_cached != nullptr) return;
  std::uint64_t& word = occupied_[size_class / word_bits];
  word &= ~bit(size_class);
  if (word == 0) occupied_words_ &= ~bit(size_class / word_bits);
}

void FreeBlocks::take_all(FreeBlocks& other) noexcept {
  if (first_.empty()) return std::swap(*this, other);
  for (std::size_t next = 0; (next = other.next_occupied(next)) != class_count;) {
    Block& block = *other.first_[next];
    other.remove(block);
    insert(block);
  }
}

Block* FreeBlocks::best_fit(std::size_t bytes) const noexcept {
  if (occupied_words_ == 0) return nullptr;
  const std::size_t size_class = class_of(pool_, bytes);
  for (Block* block = first_[size_class]; block != nullptr; block = block->next_cached) {
    if (block->bytes >= bytes) return block;
  }
  const std::size_t larger = next_occupied(size_class + 1);
  return larger == class_count ? nullptr : first_[larger];
}

std::size_t FreeBlocks::next_occupied(std::size_t from) const noexcept {
  if (from >= class_count) return class_count;
  const std::size_t word = from / word_bits;
  const std::uint64_t here = occupied_[word] & (~std::uint64_t{0} << (from % word_bits));
  if (here != 0) return word * word_bits + static_cast<std::size_t>(std::countr_zero(here));
  if (word + 1 == word_bits) return class_count;
  const std::uint64_t words = occupied_words_ & (~std::uint64_t{0} << (word + 1));
  if (words == 0) return class_count;
  const auto next = static_cast<std::size_t>(std::countr_zero(words));
  return next * word_bits + static_cast<std::size_t>(std::countr_zero(occupied_[next]));
}

}  // namespace tutti
