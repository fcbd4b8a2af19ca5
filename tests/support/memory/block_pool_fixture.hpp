// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/blocks/block_pool.hpp"
#include "support/memory/memory_books.hpp"

#include <cstddef>
#include <cstdint>
#include <stdexcept>

#include <gtest/gtest.h>

namespace tutti::test {

inline constexpr std::size_t mebibyte = std::size_t{1} << 20;

[[nodiscard]] inline backend::StreamRef stream_of(int device, std::uintptr_t handle) {
  return {reinterpret_cast<backend::StreamHandle>(handle), device};
}
inline const backend::StreamRef first_stream = stream_of(0, 1);
inline const backend::StreamRef other_stream = stream_of(0, 2);

/// A pool over addresses that are never touched.
class BlockPoolTest : public testing::Test {
 protected:
  Block& take(std::size_t bytes, backend::StreamRef of = first_stream,
              GraphPool graph_pool = GraphPool::none) {
    Block* block = pool_.take(bytes, of, graph_pool);
    if (block == nullptr) {
      next_address_ += 64 * mebibyte;
      pool_.add_segment(reinterpret_cast<std::byte*>(next_address_), BlockPool::segment_bytes(bytes),
                        BlockPool::pool_of(bytes), of, graph_pool);
      block = pool_.take(bytes, of, graph_pool);
    }
    if (block == nullptr)
      throw std::logic_error("a fresh segment does not serve the request it was made for");
    return *block;
  }
  void give_back(Block& block) {
    pool_.release(block);
    pool_.give_back(block);
  }
  void TearDown() override { EXPECT_TRUE(books_balance(pool_.stats(), pool_.snapshot())); }

  BlockPool pool_{0};

 private:
  std::uintptr_t next_address_ = std::uintptr_t{1} << 40;
};

}  // namespace tutti::test
