// SPDX-License-Identifier: Apache-2.0
#include "types/layout_pool.hpp"

#include "tutti/tensor.hpp"

#include <cstdint>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using Sizes = std::vector<std::int64_t>;

TEST(LayoutPool, GivesEqualLayoutsAsOne) {
  LayoutPool pool(16);
  const LayoutPtr first = pool.find_or_make(Layout(DType::float32, Sizes{2, 3}));
  EXPECT_EQ(pool.find_or_make(Layout(DType::float32, Sizes{2, 3})), first);
  EXPECT_EQ(pool.find_or_make(Layout(DType::float32, Sizes{2, 3}, Sizes{3, 1})), first);
  EXPECT_EQ(*first, Layout(DType::float32, Sizes{2, 3}));
}

TEST(LayoutPool, TellsApartWhatDiffersInAnything) {
  LayoutPool pool(64);
  const std::vector<LayoutPtr> layouts{
      pool.find_or_make(Layout(DType::float32, Sizes{2, 3})),
      pool.find_or_make(Layout(DType::int32, Sizes{2, 3})),
      pool.find_or_make(Layout(DType::float32, Sizes{3, 2})),
      pool.find_or_make(Layout(DType::float32, Sizes{6})),
      pool.find_or_make(Layout(DType::float32, Sizes{2, 3, 1})),
      pool.find_or_make(Layout(DType::float32, Sizes{2, 3}, Sizes{1, 2})),
      pool.find_or_make(Layout(DType::float32, Sizes{2, 3}, Sizes{4, 1})),
      pool.find_or_make(Layout(DType::float32, Sizes{2, 3, 1}, Sizes{3, 1, 7})),
      pool.find_or_make(Layout(DType::float32, Sizes{2, 3, 1}, Sizes{3, 1, 8})),
      pool.find_or_make(Layout(DType::float32, Sizes{})),
      pool.find_or_make(Layout(DType::float32, Sizes{0})),
  };
  std::set<const Layout*> different;
  for (const LayoutPtr& layout : layouts) different.insert(layout.get());
  EXPECT_EQ(different.size(), layouts.size());
  EXPECT_EQ(layouts[7]->strides()[2], 7);
  EXPECT_EQ(layouts[8]->strides()[2], 8);
}

TEST(LayoutPool, FullMakesLayoutsThatTheirOwnersKeep) {
  LayoutPool pool(4);
  std::vector<LayoutPtr> kept;
  for (std::int64_t size = 0; size < 4; ++size) {
    kept.push_back(pool.find_or_make(Layout(DType::int8, Sizes{size})));
  }
  const LayoutPtr one_more = pool.find_or_make(Layout(DType::int8, Sizes{4}));
  EXPECT_EQ(one_more->sizes()[0], 4);
  EXPECT_NE(pool.find_or_make(Layout(DType::int8, Sizes{4})), one_more);  // the second goes at once
  for (std::int64_t size = 0; size < 4; ++size) {
    EXPECT_EQ(pool.find_or_make(Layout(DType::int8, Sizes{size})), kept[static_cast<std::size_t>(size)]);
  }
}

TEST(LayoutPool, OfNoRoomMakesLayouts) {
  LayoutPool pool(0);
  EXPECT_EQ(pool.find_or_make(Layout(DType::int8, Sizes{4}))->nbytes(), 4U);
}

TEST(LayoutPool, AgreesBetweenThreads) {
  constexpr std::int64_t shapes = 500;
  constexpr std::size_t thread_count = 4;
  LayoutPool pool(shapes + thread_count);  // each may hold a place for what another is just adding
  std::vector<std::vector<LayoutPtr>> found(thread_count);
  {
    std::vector<std::jthread> threads;
    for (std::vector<LayoutPtr>& mine : found) {
      threads.emplace_back([&pool, &mine] {
        for (std::int64_t size = 0; size < shapes; ++size) {
          mine.push_back(pool.find_or_make(Layout(DType::float32, Sizes{size, 2})));
        }
      });
    }
  }
  std::set<const Layout*> different;
  for (const LayoutPtr& layout : found[0]) different.insert(layout.get());
  EXPECT_EQ(different.size(), static_cast<std::size_t>(shapes));
  for (const std::vector<LayoutPtr>& theirs : found) EXPECT_EQ(theirs, found[0]);
}

TEST(LayoutPool, IsWhereTensorsHaveTheirLayoutsFrom) {
  const Tensor tensor = empty({3, 5}, {.device = Device::host()});
  EXPECT_EQ(empty({3, 5}, {.device = Device::host()}).layout(), tensor.layout());
  EXPECT_EQ(make_layout(tensor.dtype(), tensor.sizes()), tensor.layout());
  EXPECT_EQ(tensor.transpose(0, 1).transpose(0, 1).layout(), tensor.layout());
}

}  // namespace
}  // namespace tutti
