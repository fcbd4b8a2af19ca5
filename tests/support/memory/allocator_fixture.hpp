// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "allocator/allocators.hpp"
#include "allocator/caching_allocator.hpp"
#include "device/runtime.hpp"
#include "stream/stream_access.hpp"
#include "support/memory/memory_books.hpp"
#include "tutti/device.hpp"
#include "tutti/memory.hpp"
#include "tutti/stream.hpp"

#include <cstddef>

#include <gtest/gtest.h>

namespace tutti::test {

/// Provides the runtime's allocators. That of device 0 has nothing cached at first, and must have the same
/// amount in use at the end.
class AllocatorTest : public testing::Test {
 protected:
  void SetUp() override {
    synchronize(0);
    empty_cache();
    active_before_ = allocator().bytes_active();
  }
  void TearDown() override {
    allocator().finish_pending();
    EXPECT_EQ(allocator().bytes_active(), active_before_) << "a block was not given back";
    EXPECT_TRUE(books_balance(allocator().stats(), allocator().snapshot()));
  }

  static CachingAllocator& allocator(int device = 0) { return Runtime::get().part<Allocators>().of(device); }
  static Block* allocate(std::size_t bytes, const Stream& stream) {
    return allocator().allocate(bytes, StreamAccess::ref(stream));
  }
  static void record(Block* block, const Stream& stream) {
    allocator().record_stream(block, StreamAccess::ref(stream));
  }

 private:
  std::size_t active_before_ = 0;
};

}  // namespace tutti::test
