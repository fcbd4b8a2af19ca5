// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/local_rendezvous.hpp"
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "support/timing.hpp"
#include "tutti/communicator.hpp"
#include "tutti/tensor.hpp"

#include <chrono>
#include <vector>

#include <gtest/gtest.h>

/// Ranks that let new ones in, and processes that become such.
namespace tutti::test::ranks {

/// Returns a meeting point where nobody listens yet. Call it before there are ranks.
inline MeetingPoint some_meeting_point() {
  return {.port = Listener().port(), .secret = "0123456789abcdef", .job = "a test"};
}

/// Joins the ranks that let processes in at the point, with one device.
inline Communicator join(const MeetingPoint& point,
                         std::chrono::milliseconds limit = std::chrono::seconds(60)) {
  return Communicator::join({.meeting_point = point, .timeout = limit},
                            {.devices = {Device(0)}, .timeout = std::chrono::seconds(60)});
}

/// Checks that the communicator works, and has so many ranks, of which this is number `rank`.
inline void expect_works(Communicator& communicator, int rank, int count) {
  EXPECT_EQ(communicator.rank(), rank);
  EXPECT_EQ(communicator.rank_count(), count);
  for (const std::int64_t elements : {16, 10'000, 1'000'000}) {
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

}  // namespace tutti::test::ranks
