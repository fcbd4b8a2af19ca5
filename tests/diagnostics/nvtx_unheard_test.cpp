// SPDX-License-Identifier: Apache-2.0
#include "diagnostics/watching.hpp"
#include "tutti/nvtx.hpp"

#include <cstdlib>
#include <thread>

#include <gtest/gtest.h>

namespace tutti {
namespace {

TEST(Nvtx, RangesAreCountedAndNothingIsToldWhereNobodyListens) {
  EXPECT_EQ(nvtx::range_pop(), -1);
  EXPECT_EQ(nvtx::range_push("outer"), 0);
  {
    const nvtx::Range range("inner");
    EXPECT_EQ(range.depth(), 1);
    EXPECT_EQ(nvtx::range_push("innermost"), 2);
    nvtx::mark("a moment");
    EXPECT_EQ(nvtx::range_pop(), 2);
    std::thread([] { EXPECT_EQ(nvtx::range_push("of another thread"), 0); }).join();
  }
  EXPECT_EQ(nvtx::range_pop(), 0);
  EXPECT_EQ(nvtx::range_pop(), -1);

  const bool is_traced = std::getenv("TUTTI_TRACE") != nullptr;
  // A tool that is named hears what it likes.
  if (std::getenv("NVTX_INJECTION64_PATH") == nullptr || is_traced) {
    EXPECT_EQ(watching::is_watched(), is_traced);
  }
}

}  // namespace
}  // namespace tutti
