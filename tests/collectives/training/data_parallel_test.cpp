// SPDX-License-Identifier: Apache-2.0
#include "tutti/data_parallel.hpp"

#include "support/collectives/backward_pass.hpp"
#include "support/collectives/stream_order.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/stream_gate.hpp"
#include "tutti/graph.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Gradient buckets of one process. (Their `no_sync`: no_sync_test.cpp; between processes:
/// ranks/data_parallel_ranks_test.cpp.)
namespace tutti {
namespace {

using test::BackwardPass;
using test::first_devices;
using test::operations_enqueued;
using test::refuses;
using test::StreamFlag;
using test::StreamGate;

class GradientBucketsTest : public testing::Test {
 protected:
  [[nodiscard]] GradientBuckets make(const GradientBucketOptions& options) {
    return {communicator_, pass_.gradients(), options};
  }

  Communicator communicator_{
      CommunicatorOptions{.devices = first_devices(3), .determinism = Determinism::bitwise}};
  test::PooledStreams pooled_;
  BackwardPass pass_{communicator_};
};

TEST_F(GradientBucketsTest, ArePackedFromTheLastGradientToTheFirstByType) {
  const GradientBuckets buckets = make(BackwardPass::small_buckets());
  const std::vector<std::vector<int>> expected{{9, 8}, {7}, {4}, {6, 2}, {5, 3, 1}, {0}};
  EXPECT_EQ(buckets.buckets(), expected);
  const GradientBuckets large = make({});
  const std::vector<std::vector<int>> by_type{{4}, {6, 2}, {9, 8, 7, 5, 3, 1, 0}};
  EXPECT_EQ(large.buckets(), by_type);
  const GradientBuckets alike = make({.bucket_bytes = 6000, .first_bucket_bytes = 0});
  EXPECT_EQ(alike.buckets().front(), (std::vector<int>{9, 8, 7}));
}

TEST_F(GradientBucketsTest, HoldWhatTheReferenceSaysInWhateverOrderGradientsCome) {
  test::for_each_interleaving(2, [this](std::uint64_t seed) {
    const ReduceOp operation = seed % 2 == 0 ? ReduceOp::avg : ReduceOp::sum;
    GradientBuckets buckets = make(BackwardPass::small_buckets(operation));
    for (std::uint64_t iteration = 0; iteration < 2; ++iteration) {
      pass_.run(buckets, seed + iteration, iteration == 0 ? 0 : seed);
      buckets.synchronize();
    }
    ASSERT_TRUE(pass_.holds(seed + 1, operation));
  });
}

TEST_F(GradientBucketsTest, StartInOrderAndOnlyWhenAllMembersAreThere) {
  GradientBuckets buckets = make(BackwardPass::small_buckets());
  const auto report = [&](int local, const std::vector<int>& indices) {
    for (const int index : indices) {
      pass_.write(local, index, 1);
      buckets.ready(local, index);
    }
  };
  for (int local = 0; local < pass_.locals(); ++local) report(local, {0, 7, 4, 2, 6});
  EXPECT_EQ(buckets.started(), 0) << "the first bucket is not full";
  for (int local = 0; local < pass_.locals(); ++local) {
    EXPECT_EQ(buckets.started(), 0);
    report(local, {8, 9});
  }
  EXPECT_EQ(buckets.started(), 4) << "up to the one that lacks 5, 3 and 1";
  for (int local = 0; local < pass_.locals(); ++local) report(local, {1, 3, 5});
  EXPECT_EQ(buckets.started(), 6);
  buckets.synchronize();
  EXPECT_EQ(buckets.started(), 0);
  EXPECT_TRUE(pass_.holds(1));
}

TEST_F(GradientBucketsTest, OverlapWithTheRestOfTheBackwardPass) {
  GradientBuckets buckets = make(BackwardPass::small_buckets());
  pass_.run(buckets, 1, 0);  // the first time, kernels are loaded and memory is made
  buckets.synchronize();
  pass_.prepare(2);
  const std::vector<int>& first = buckets.buckets().front();
  for (int local = 0; local < pass_.locals(); ++local) {
    for (const int index : first) {
      pass_.copy(local, index);
      buckets.ready(local, index);
    }
  }
  // What follows on the compute streams has not begun when the first all-reduce is done.
  std::optional<StreamGate> gate(std::in_place, current_stream(communicator_.devices()[0]));
  std::vector<int> others;
  for (int index = pass_.count(); index-- > 0;) {
    if (std::ranges::find(first, index) == first.end()) others.push_back(index);
  }
  for (const int index : others) pass_.copy(0, index);
  const StreamFlag computed(current_stream(communicator_.devices()[0]));
  for (const Stream& stream : buckets.streams()) {
    EXPECT_TRUE(StreamFlag(stream).becomes_set()) << "it waits for more than its own gradients";
  }
  EXPECT_FALSE(computed.is_set());
  for (const int index : others) {
    buckets.ready(0, index);
    for (int local = 1; local < pass_.locals(); ++local) {
      pass_.copy(local, index);
      buckets.ready(local, index);
    }
  }
  EXPECT_FALSE(StreamFlag(buckets.streams()[0]).is_set()) << "it does not wait for its gradients";
  buckets.synchronize();
  gate.reset();
  EXPECT_TRUE(pass_.holds(2));
}

TEST_F(GradientBucketsTest, WaitForGradientsOfSeveralStreams) {
  GradientBuckets buckets = make(BackwardPass::small_buckets());
  for (std::uint64_t iteration = 0; iteration < 3; ++iteration) {
    for (int local = 0; local < pass_.locals(); ++local) {
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

TEST_F(GradientBucketsTest, TakeGradientsFromAThreadForEachMember) {
  GradientBuckets buckets = make(BackwardPass::small_buckets());
  for (std::uint64_t iteration = 0; iteration < 3; ++iteration) {
    std::vector<std::thread> threads;
    for (int local = 0; local < pass_.locals(); ++local) {
      const Stream compute = current_stream(communicator_.devices()[static_cast<std::size_t>(local)]);
      threads.emplace_back([&, local, compute] {
        const StreamGuard guard(compute);
        for (int index = pass_.count(); index-- > 0;) {
          pass_.write(local, index, iteration);
          buckets.ready(local, index);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    buckets.synchronize();
    ASSERT_TRUE(pass_.holds(iteration));
  }
}

TEST_F(GradientBucketsTest, CanBeCaptured) {
  GradientBuckets buckets = make(BackwardPass::small_buckets());
  pass_.run(buckets, 1, 0);
  buckets.synchronize();
  test::synchronize_all();
  std::vector<Stream> streams;
  for (const Device device : communicator_.devices()) streams.push_back(current_stream(device));
  const Graph graph = Graph::capture(streams, [&] {
    for (int local = 0; local < pass_.locals(); ++local) {
      for (int index = pass_.count(); index-- > 0;) {
        pass_.copy(local, index);
        buckets.ready(local, index);
      }
    }
    buckets.synchronize();
  });
  for (std::uint64_t seed = 7; seed < 10; ++seed) {
    pass_.prepare(seed);
    graph.launch(streams[0]);
    streams[0].synchronize();
    ASSERT_TRUE(pass_.holds(seed));
  }
  pass_.run(buckets, 20, 0);  // and once more without
  buckets.synchronize();
  EXPECT_TRUE(pass_.holds(20));
}

TEST_F(GradientBucketsTest, KeepGradientsThatAllReducesStillUse) {
  if (pass_.locals() == 1) GTEST_SKIP() << "there is one device, and nothing to reduce";
  std::optional<GradientBuckets> buckets;
  std::vector<std::vector<Tensor>> gradients;
  std::vector<const void*> addresses;
  constexpr std::int64_t elements = 1 << 16;
  for (const Device device : communicator_.devices()) {
    gradients.push_back({ones({elements}, {.device = device})});
    addresses.push_back(gradients.back()[0].data());
  }
  buckets.emplace(communicator_, gradients);
  const auto report = [&] {
    for (int local = 0; local < pass_.locals(); ++local) buckets->ready(local, 0);
  };
  report();  // the first time, kernels are loaded
  buckets->synchronize();
  test::synchronize_all();
  const StreamGate gate(buckets->streams()[0]);
  report();
  EXPECT_EQ(buckets->started(), 1);
  buckets.reset();
  gradients.clear();
  for (std::size_t i = 0; i < addresses.size(); ++i) {
    const Tensor next = empty({elements}, {.device = communicator_.devices()[i]});
    EXPECT_NE(next.data(), addresses[i]) << "memory that the all-reduce has still to write";
  }
}

TEST_F(GradientBucketsTest, NameGradientsThatWereNotReported) {
  GradientBuckets buckets = make(BackwardPass::small_buckets());
  const int last = pass_.locals() - 1;
  for (int local = 0; local < pass_.locals(); ++local) {
    for (int index = pass_.count(); index-- > 0;) {
      pass_.write(local, index, 3);
      if (local != last || (index != 2 && index != 5)) buckets.ready(local, index);
    }
  }
  const auto before = operations_enqueued();
  const std::string list = "gradients[" + std::to_string(last) + "]";
  EXPECT_TRUE(refuses([&] { buckets.synchronize(); }, ErrorCode::invalid_argument,
                      {"GradientBuckets::synchronize", "2 of", list + "[2], " + list + "[5];"}));
  EXPECT_EQ(operations_enqueued(), before);
  buckets.ready(last, 5);
  buckets.ready(last, 2);
  buckets.synchronize();
  EXPECT_TRUE(pass_.holds(3));
  EXPECT_TRUE(refuses([&] { buckets.synchronize(); }, ErrorCode::invalid_argument, {" and ", " more"}));
}

TEST_F(GradientBucketsTest, TakeUnusedGradientsForZeroIfTheyAreTold) {
  GradientBucketOptions options = BackwardPass::small_buckets(ReduceOp::sum);
  options.unused = UnusedGradients::zero;
  GradientBuckets buckets = make(options);
  const int last = pass_.locals() - 1;
  for (int local = 0; local < pass_.locals(); ++local) {
    for (int index = pass_.count(); index-- > 0;) {
      pass_.write(local, index, 4);  // what is not reported does not count
      if (index != 1 && (index != 7 || local != last)) buckets.ready(local, index);
    }
  }
  buckets.synchronize();
  for (int local = 0; local < pass_.locals(); ++local) {
    const std::vector<Tensor>& list = pass_.gradients()[static_cast<std::size_t>(local)];
    EXPECT_EQ(list[1].to_vector<float>(), std::vector<float>(17 * 91, 0.0F));
  }
  pass_.run(buckets, 5, 0);
  buckets.synchronize();
  EXPECT_TRUE(pass_.holds(5, ReduceOp::sum));
}

TEST_F(GradientBucketsTest, RefuseWhatIsNotThereAndWhatComesTwice) {
  GradientBuckets buckets = make(BackwardPass::small_buckets());
  buckets.ready(0, 3);
  const auto before = operations_enqueued();
  const auto refuses_ready = [&](int member, int index, const std::vector<std::string>& fragments) {
    return refuses([&] { buckets.ready(member, index); }, ErrorCode::invalid_argument, fragments);
  };
  EXPECT_TRUE(refuses_ready(-1, 0, {"GradientBuckets::ready", "member is -1, expected 0 to"}));
  EXPECT_TRUE(refuses_ready(pass_.locals(), 0, {"member is", "expected 0 to"}));
  EXPECT_TRUE(refuses_ready(0, -1, {"index is -1, expected 0 to 9"}));
  EXPECT_TRUE(refuses_ready(0, 10, {"index is 10, expected 0 to 9"}));
  EXPECT_TRUE(refuses_ready(0, 3, {"index is 3", "local member 0", "expected each once"}));
  EXPECT_EQ(operations_enqueued(), before);
  EXPECT_EQ(buckets.started(), 0);
}

TEST_F(GradientBucketsTest, PassOnHowTheCommunicatorHasEnded) {
  GradientBuckets buckets = make({.bucket_bytes = 1, .first_bucket_bytes = 1});
  communicator_.abort("the program has had enough");
  const auto is_told = [](const std::function<void()>& call) {
    return refuses(call, ErrorCode::aborted, {"the program has had enough"});
  };
  for (int local = 0; local + 1 < pass_.locals(); ++local) buckets.ready(local, 9);
  EXPECT_TRUE(is_told([&] { buckets.ready(pass_.locals() - 1, 9); }));
  for (int local = 0; local < pass_.locals(); ++local) {
    for (int index = 9; index-- > 0;) EXPECT_TRUE(is_told([&] { buckets.ready(local, index); }));
  }
  EXPECT_EQ(buckets.started(), 0);
  EXPECT_TRUE(is_told([&] { buckets.synchronize(); }));
}

TEST(GradientBucketsOfOneMember, TakeAPlainListOrOneInBraces) {
  Communicator communicator({.devices = {Device(0)}});
  const BackwardPass pass(communicator);
  const std::vector<Tensor>& list = pass.gradients().front();
  GradientBuckets plain(communicator, list, BackwardPass::small_buckets());
  pass.run(plain, 1, 0);
  plain.synchronize();
  EXPECT_TRUE(pass.holds(1));
  EXPECT_EQ(GradientBuckets(communicator, {list}, BackwardPass::small_buckets()).buckets(), plain.buckets());
  const std::vector<std::vector<int>> one_bucket{{1, 0}};
  EXPECT_EQ(GradientBuckets(communicator, {list[0], list[1]}).buckets(), one_bucket);
}

TEST_F(GradientBucketsTest, RefuseAPlainListWhereThereAreMoreMembers) {
  if (pass_.locals() == 1) GTEST_SKIP() << "one member takes it";
  EXPECT_TRUE(refuses([&] { const GradientBuckets buckets(communicator_, pass_.gradients().front()); },
                      ErrorCode::invalid_argument, {"gradients has 1 lists, expected one per local member"}));
}

TEST_F(GradientBucketsTest, RefuseGradientsThatDoNotFitTogether) {
  const auto before = operations_enqueued();
  const auto refuses_lists = [&](const std::vector<std::vector<Tensor>>& gradients,
                                 const std::vector<std::string>& fragments,
                                 const GradientBucketOptions& options = {}) {
    return refuses([&] { const GradientBuckets buckets(communicator_, gradients, options); },
                   ErrorCode::invalid_argument, fragments);
  };
  const auto good = pass_.gradients();
  EXPECT_TRUE(refuses_lists({}, {"GradientBuckets", "gradients has 0 lists", "one per local member"}));
  EXPECT_TRUE(refuses_lists(good, {"options.bucket_bytes is 0"}, {.bucket_bytes = 0}));
  EXPECT_TRUE(refuses_lists(good, {"op has 17 factors"},
                            {.operation = ReduceOp::premul_sum(std::vector<double>(17, 1.0))}));
  EXPECT_TRUE(refuses_lists(good, {"op is band", "float32"}, {.operation = ReduceOp::band}));
  auto lists = good;
  lists[0].clear();
  EXPECT_TRUE(refuses_lists(lists, {"gradients[0] has no tensors"}));
  lists = good;
  lists[0][9] = lists[0][8].narrow(0, 5, 10);
  EXPECT_TRUE(refuses_lists(lists, {"gradients[0][9]", "gradients[0][8]", "overlap"}));
  lists = good;
  lists[0][1] = Tensor();
  EXPECT_TRUE(refuses_lists(lists, {"gradients[0][1]"}));
  if (good.size() == 1) return;
  lists = good;
  lists[1].pop_back();
  EXPECT_TRUE(refuses_lists(lists, {"gradients[1] has 9 tensors, expected 10 as gradients[0]"}));
  lists = good;
  lists[1][4] = good[0][4];
  EXPECT_TRUE(refuses_lists(lists, {"gradients[1][4] is on device:0, expected device:1", "local member 1"}));
  lists = good;
  lists[1][2] = lists[1][6];
  EXPECT_TRUE(refuses_lists(lists, {"gradients[1][2] has sizes"}));
  lists = good;
  lists[1][2] = lists[1][4];
  EXPECT_TRUE(refuses_lists(lists, {"gradients[1][2] has element type int64"}));
  EXPECT_EQ(operations_enqueued(), before);
}

}  // namespace
}  // namespace tutti
