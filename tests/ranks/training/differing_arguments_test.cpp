// SPDX-License-Identifier: Apache-2.0
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "tutti/communicator.hpp"
#include "tutti/data_parallel.hpp"
#include "tutti/device.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/sharded_optimizer.hpp"

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Ranks that give trainers' constructors other arguments than the others: all hear of it, with the same
/// words, and can go on.
namespace tutti::test {
namespace {

using Lists = std::vector<std::vector<Tensor>>;

Tensor of(std::vector<std::int64_t> sizes, DType dtype = DType::float32) {
  return zeros(sizes, {.dtype = dtype, .device = 0});
}

struct Difference {
  const char* name;
  /// `is_odd`: on rank 1.
  std::function<void(Communicator&, bool is_odd)> make;
  std::vector<std::string> mentions;
};

void make_optimizer(Communicator& communicator, const std::vector<Tensor>& parameters,
                    const ShardedOptimizerOptions& options = {}) {
  const ShardedOptimizer optimizer(communicator, Lists{parameters}, options);
}

void make_buckets(Communicator& communicator, const std::vector<Tensor>& gradients,
                  const GradientBucketOptions& options = {}) {
  const GradientBuckets buckets(communicator, Lists{gradients}, options);
}

void expect_refusals(const std::vector<Difference>& differences) {
  for (const Difference& difference : differences) {
    SCOPED_TRACE(difference.name);
    expect_all_right(3, [&](Exchange& exchange) {
      Communicator communicator(exchange, {.devices = {0}});
      EXPECT_TRUE(refuses([&] { difference.make(communicator, exchange.rank() == 1); },
                          ErrorCode::invalid_argument, difference.mentions));
      EXPECT_EQ(communicator.all_reduce(ones({1}, {.device = 0})).to_vector<float>()[0], 3);
      communicator.check();
    });
  }
}

TEST(DifferingArguments, OfOptimizersAreRefusedOnAllRanks) {
  expect_refusals({
      {"order",
       [](Communicator& communicator, bool is_odd) {
         is_odd ? make_optimizer(communicator, {of({5}), of({3})})
                : make_optimizer(communicator, {of({3}), of({5})});
       },
       {"ShardedOptimizer: parameters[0][0] is float32 [5] on rank 1, and float32 [3] on rank 0"}},
      {"shapes",
       [](Communicator& communicator, bool is_odd) {
         make_optimizer(communicator, {of({2}), is_odd ? of({5, 3}) : of({3, 5})});
       },
       {"ShardedOptimizer: parameters[0][1] is float32 [5, 3] on rank 1, and float32 [3, 5] on rank 0"}},
      {"elements within the pads",
       [](Communicator& communicator, bool is_odd) {
         make_optimizer(communicator, {of({is_odd ? 100 : 110})});
       },
       {"parameters[0][0] is float32 [100] on rank 1, and float32 [110] on rank 0"}},
      {"count",
       [](Communicator& communicator, bool is_odd) {
         is_odd ? make_optimizer(communicator, {of({16})})
                : make_optimizer(communicator, {of({16}), of({0})});
       },
       {"parameters[0] is a list of 1 on rank 1, and a list of 2 on rank 0"}},
      {"element types",
       [](Communicator& communicator, bool is_odd) {
         make_optimizer(communicator, {of({16}, is_odd ? DType::int32 : DType::float32)},
                        {.operation = ReduceOp::sum});
       },
       {"parameters[0][0] is int32 [16] on rank 1, and float32 [16] on rank 0"}},
      {"operation",
       [](Communicator& communicator, bool is_odd) {
         make_optimizer(communicator, {of({16})}, {.operation = ReduceOp::premul_sum(is_odd ? 0.5 : 0.25)});
       },
       {"options.operation is premul_sum with factor 0.5 on rank 1, and premul_sum with factor 0.25"}},
      {"type of gradients",
       [](Communicator& communicator, bool is_odd) {
         make_optimizer(communicator, {of({16})},
                        {.gradient_dtype = is_odd ? DType::float16 : DType::float32});
       },
       {"options.gradient_dtype is float16 on rank 1, and float32 on rank 0"}},
      {"state",
       [](Communicator& communicator, bool is_odd) {
         make_optimizer(communicator, {of({16})}, {.state_count = is_odd ? 1U : 2U});
       },
       {"options.state_count is 1 on rank 1, and 2 on rank 0"}},
  });
}

TEST(DifferingArguments, AreAlikeInBothFormsOfReplicate) {
  expect_all_right(3, [](Exchange& exchange) {
    Communicator communicator(exchange, {.devices = {0}});
    const std::vector<Tensor> parameters{of({3}).fill_(exchange.rank()), of({5})};
    std::vector<std::vector<Tensor>> replicas{parameters};
    if (exchange.rank() == 1) {
      replicate(communicator, Lists{parameters}, 2);
    } else {
      replicas = replicate(communicator, parameters, 2);
    }
    EXPECT_EQ(replicas[0][0].to_vector<float>(), std::vector<float>(3, 2));
  });
}

TEST(DifferingArguments, OfBucketsAreRefusedOnAllRanks) {
  expect_refusals({
      {"shapes",
       [](Communicator& communicator, bool is_odd) {
         make_buckets(communicator, {is_odd ? of({5, 3}) : of({3, 5})});
       },
       {"GradientBuckets: gradients[0][0] is float32 [5, 3] on rank 1, and float32 [3, 5] on rank 0"}},
      {"bytes",
       [](Communicator& communicator, bool is_odd) {
         make_buckets(communicator, {of({4})}, {.bucket_bytes = is_odd ? 1U : 2U});
       },
       {"options.bucket_bytes is 1 on rank 1, and 2 on rank 0"}},
      {"operation",
       [](Communicator& communicator, bool is_odd) {
         make_buckets(communicator, {of({4})}, {.operation = is_odd ? ReduceOp::sum : ReduceOp::avg});
       },
       {"options.operation is sum on rank 1, and avg on rank 0"}},
  });
}

TEST(DifferingArguments, OfReplicasAreRefusedOnAllRanks) {
  expect_refusals({
      {"shapes in place",
       [](Communicator& communicator, bool is_odd) {
         replicate(communicator, {{is_odd ? of({5, 3}) : of({3, 5})}});
       },
       {"replicate: parameters[0][0] is float32 [5, 3] on rank 1, and float32 [3, 5] on rank 0"}},
      {"shapes",
       [](Communicator& communicator, bool is_odd) {
         static_cast<void>(replicate(communicator, {is_odd ? of({5, 3}) : of({3, 5})}));
       },
       {"replicate: parameters[0] is float32 [5, 3] on rank 1, and float32 [3, 5] on rank 0"}},
      {"root",
       [](Communicator& communicator, bool is_odd) {
         static_cast<void>(replicate(communicator, {of({4})}, is_odd ? 1 : 0));
       },
       {"replicate: root is 1 on rank 1, and 0 on rank 0"}},
  });
}

TEST(DifferingArguments, ThatOneRankRefusesAreRefusedOnAll) {
  const auto tied = [](bool is_odd) {
    const Tensor shared = of({4});
    return std::vector<Tensor>{shared, is_odd ? shared : of({4})};
  };
  expect_refusals({
      {"parameters",
       [&](Communicator& communicator, bool is_odd) { make_optimizer(communicator, tied(is_odd)); },
       {"ShardedOptimizer: parameters[0][0] overlaps parameters[0][1], expected separate memory"}},
      {"gradients",
       [&](Communicator& communicator, bool is_odd) { make_buckets(communicator, tied(is_odd)); },
       {"GradientBuckets: gradients[0][0] overlaps gradients[0][1], expected separate memory"}},
      {"replicas",
       [&](Communicator& communicator, bool is_odd) {
         static_cast<void>(replicate(communicator, tied(is_odd)));
       },
       {"replicate: parameters[0] overlaps parameters[1], expected separate memory"}},
      {"replicas in place",
       [&](Communicator& communicator, bool is_odd) { replicate(communicator, {tied(is_odd)}); },
       {"replicate: parameters[0][0] overlaps parameters[0][1], expected separate memory"}},
  });
}

TEST(DifferingArguments, ThatOthersCompareEndACommunicatorWhoseRankCallsSomethingElse) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator(exchange, {.devices = {0}});
    const auto differ = [&] {
      if (exchange.rank() == 0) return make_buckets(communicator, {of({4})});
      make_optimizer(communicator, {of({4})});
    };
    EXPECT_TRUE(
        refuses(differ, ErrorCode::invalid_argument,
                {"does not match", "all_gather for GradientBuckets", "all_gather for ShardedOptimizer"}));
  });
}

}  // namespace
}  // namespace tutti::test
