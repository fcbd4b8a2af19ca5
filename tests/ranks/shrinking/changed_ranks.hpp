// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/environment.hpp"
#include "support/timing.hpp"
#include "tutti/communicator.hpp"
#include "tutti/error.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// Checks of communicators that have lost or got ranks.
namespace tutti::test::ranks {

/// Checks that the communicator works, and has so many ranks, of which this is number `rank`.
inline void expect_works(Communicator& communicator, int rank, int count) {
  EXPECT_EQ(communicator.rank(), rank);
  EXPECT_EQ(communicator.rank_count(), count);
  for (const std::int64_t elements : {std::int64_t{16}, std::int64_t{10'000}, scaled(1'000'000)}) {
    const Tensor tensor = full({elements}, rank + 1, {.dtype = DType::float32, .device = 0});
    communicator.all_reduce_add({tensor}, {tensor});
    const auto sum = static_cast<float>(count * (count + 1)) / 2;
    EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(static_cast<std::size_t>(elements), sum));
  }
  communicator.check();
}

/// Waits until the communicator has been ended by others.
inline void await_end(const Communicator& communicator) {
  EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
}

/// Makes calls until only the survivors are left, and as many more as all of them make.
inline void go_on_down_to(Communicator& communicator, int survivors) {
  for (int rounds = 0; rounds < 3;) {
    try {
      if (!communicator.is_running()) communicator = communicator.shrink();
      const Tensor sum = full({50'000}, 1, {.dtype = DType::float32, .device = 0});
      communicator.all_reduce_add({sum}, {sum});
      const float value = sum.to_vector<float>().back();
      communicator.check();
      EXPECT_EQ(value, static_cast<float>(communicator.rank_count()));
      if (communicator.rank_count() == survivors) ++rounds;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::peer_unavailable) << error.what();
    }
  }
}

}  // namespace tutti::test::ranks
