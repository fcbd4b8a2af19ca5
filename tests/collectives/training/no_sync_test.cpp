// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/backward_pass.hpp"
#include "support/collectives/stream_order.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "tutti/data_parallel.hpp"
#include "tutti/graph.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Iterations of several backward passes, of which only the last is reduced.
namespace tutti {
namespace {

using test::BackwardPass;
using test::operations_enqueued;
using test::refuses;

class NoSyncTest : public testing::Test {
 protected:
  [[nodiscard]] GradientBuckets make(const GradientBucketOptions& options) {
    return {communicator_, pass_.gradients(), options};
  }

  Communicator communicator_{
      CommunicatorOptions{.devices = test::first_devices(3), .determinism = Determinism::bitwise}};
  test::PooledStreams pooled_;
  BackwardPass pass_{communicator_};
};

TEST_F(NoSyncTest, ReducesOnlyTheFirstIterationBehindIt) {
  GradientBuckets buckets = make(BackwardPass::small_buckets());
  const auto before = operations_enqueued();
  {
    const NoSyncGuard no_sync = buckets.no_sync();
    for (int part = 0; part < 2; ++part) {
      const NoSyncGuard nested = buckets.no_sync();
      for (int local = 0; local < pass_.locals(); ++local) {
        for (int index = pass_.count(); index-- > 0;) buckets.ready(local, index);
      }
      buckets.synchronize();
    }
    EXPECT_TRUE(
        refuses([&] { buckets.ready(0, pass_.count()); }, ErrorCode::invalid_argument, {"index is 10"}));
    EXPECT_EQ(buckets.started(), 0);
  }
  EXPECT_EQ(operations_enqueued(), before);
  pass_.run(buckets, 6, 0);
  EXPECT_TRUE(refuses([&] { static_cast<void>(buckets.no_sync()); }, ErrorCode::invalid_argument,
                      {"GradientBuckets::no_sync", "expected synchronize before"}));
  buckets.synchronize();
  EXPECT_TRUE(pass_.holds(6));
}

TEST_F(NoSyncTest, LeavesSumsThatAreReducedWithoutAnotherBackwardPass) {
  for (const UnusedGradients unused : {UnusedGradients::error, UnusedGradients::zero}) {
    GradientBucketOptions options = BackwardPass::small_buckets();
    options.unused = unused;
    GradientBuckets buckets = make(options);
    for (std::uint64_t iteration = 0; iteration < 2; ++iteration) {
      {
        const NoSyncGuard no_sync = buckets.no_sync();
        pass_.run(buckets, 10 + iteration, 0);
        buckets.synchronize();
      }
      EXPECT_EQ(buckets.started(), 0);
      buckets.synchronize();
      ASSERT_TRUE(pass_.holds(10 + iteration));
    }
  }
}

TEST_F(NoSyncTest, KeepsWhatWasUsedInItAlone) {
  GradientBucketOptions options = BackwardPass::small_buckets(ReduceOp::sum);
  options.unused = UnusedGradients::zero;
  GradientBuckets buckets = make(options);
  const auto report = [&](const auto& is_used) {
    for (int local = 0; local < pass_.locals(); ++local) {
      for (int index = pass_.count(); index-- > 0;) {
        if (is_used(local, index)) buckets.ready(local, index);
      }
    }
  };
  for (int local = 0; local < pass_.locals(); ++local) {
    for (int index = 0; index < pass_.count(); ++index) pass_.write(local, index, 11);
  }
  {
    const NoSyncGuard no_sync = buckets.no_sync();
    report([](int, int index) { return index % 2 == 1; });
  }
  {
    const NoSyncGuard no_sync = buckets.no_sync();
    report([](int local, int index) { return local == 0 && index == 8; });
  }
  report([](int local, int index) { return index % 2 == 0 && (local != 0 || index != 8); });
  buckets.synchronize();
  EXPECT_TRUE(pass_.holds(11, ReduceOp::sum)) << "an odd gradient, or one of member 0, was taken for unused";

  report([](int, int index) { return index != 1; });
  buckets.synchronize();
  EXPECT_EQ(pass_.gradients()[0][1].to_vector<float>(), std::vector<float>(17 * 91, 0.0F))
      << "it was used in the iteration before";
}

TEST_F(NoSyncTest, IsWaitedForOnTheStreamsThatAddedUp) {
  GradientBuckets buckets = make(BackwardPass::small_buckets());
  for (std::uint64_t iteration = 0; iteration < 3; ++iteration) {
    for (int local = 0; local < pass_.locals(); ++local) {
      const NoSyncGuard no_sync = buckets.no_sync();
      const Device device = communicator_.devices()[static_cast<std::size_t>(local)];
      const Stream main = current_stream(device);
      for (int index = pass_.count(); index-- > 0;) {
        const Stream other(device);
        other.wait_stream(main);
        const StreamGuard guard(other);
        test::keep_busy(other);
        pass_.write(local, index, iteration);
        buckets.ready(local, index);
      }
    }
    buckets.synchronize();
    ASSERT_TRUE(pass_.holds(iteration));
  }
}

TEST_F(NoSyncTest, CanBeCapturedWithItsIteration) {
  GradientBuckets buckets = make(BackwardPass::small_buckets());
  pass_.run(buckets, 1, 0);
  buckets.synchronize();
  test::synchronize_all();
  std::vector<Stream> streams;
  for (const Device device : communicator_.devices()) streams.push_back(current_stream(device));
  const auto run = [&](int remainder) {
    for (int local = 0; local < pass_.locals(); ++local) {
      for (int index = pass_.count(); index-- > 0;) {
        if (index % 2 != remainder) continue;
        pass_.copy(local, index);
        buckets.ready(local, index);
      }
    }
  };
  const Graph graph = Graph::capture(streams, [&] {
    {
      const NoSyncGuard no_sync = buckets.no_sync();
      run(0);
    }
    run(1);
    buckets.synchronize();
  });
  for (std::uint64_t seed = 7; seed < 9; ++seed) {
    pass_.prepare(seed);
    graph.launch(streams[0]);
    streams[0].synchronize();
    ASSERT_TRUE(pass_.holds(seed));
  }
}

TEST_F(NoSyncTest, SparesGradientsThatWereUsedInItFromBeingNamed) {
  GradientBuckets buckets = make(BackwardPass::small_buckets());
  const auto run = [&](int first, int end) {
    for (int local = 0; local < pass_.locals(); ++local) {
      for (int index = first; index < end; ++index) {
        pass_.write(local, index, 12);
        buckets.ready(local, index);
      }
    }
  };
  {
    const NoSyncGuard no_sync = buckets.no_sync();
    run(0, 4);
  }
  run(4, 9);
  const auto refuses_synchronize = [&](const std::string& fragment) {
    return refuses([&] { buckets.synchronize(); }, ErrorCode::invalid_argument, {fragment});
  };
  EXPECT_TRUE(refuses_synchronize("reported in this iteration: gradients[0][9]"));
  run(9, 10);
  buckets.synchronize();
  EXPECT_TRUE(pass_.holds(12));
  EXPECT_TRUE(refuses_synchronize("reported in this iteration: gradients[0][0]"));
}

}  // namespace
}  // namespace tutti
