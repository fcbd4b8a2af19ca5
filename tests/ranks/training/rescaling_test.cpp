// SPDX-License-Identifier: Apache-2.0
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/collectives.hpp"
#include "tutti/data_parallel.hpp"
#include "tutti/sharded_optimizer.hpp"

#include <chrono>
#include <csignal>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

/// What trainers are made of goes on with the ranks that are left.
namespace tutti::test {
namespace {

using namespace std::chrono_literals;

CommunicatorOptions one_device(const Exchange& exchange) {
  return {.devices = {Device(exchange.rank() % device_count())}, .determinism = Determinism::bitwise};
}

/// Rank 1 of three is killed; the others go on.
void lose_rank_1(Exchange& exchange, Communicator& communicator) {
  transport::team::synchronize(exchange);
  if (exchange.rank() == 1) std::raise(SIGKILL);
  EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
  communicator = communicator.shrink();
}

void expect_that_two_go_on(const Ranks::Body& body) {
  Ranks ranks(3, body);
  EXPECT_EQ(ranks.wait(), (std::vector<Ending>{all_right, killed, all_right}));
}

std::vector<Tensor> ranked_gradients(const Communicator& communicator) {
  const TensorOptions options{.dtype = DType::float32, .device = communicator.devices().front()};
  return {full({100}, communicator.rank() + 1, options), full({7, 3}, communicator.rank() + 1, options)};
}

TEST(Rescaling, GradientBucketsForgetAnIterationThatALossHasInterrupted) {
  expect_that_two_go_on([](Exchange& exchange) {
    Communicator communicator(exchange, one_device(exchange));
    const std::vector<Tensor> gradients = ranked_gradients(communicator);
    GradientBuckets buckets(communicator, gradients, {.bucket_bytes = 1, .operation = ReduceOp::sum});
    const Stream stream = buckets.streams().front();
    buckets.ready(0, 1);
    transport::team::synchronize(exchange);
    lose_rank_1(exchange, communicator);
    buckets.rescale(communicator);
    EXPECT_EQ(buckets.streams().front(), stream);
    EXPECT_EQ(buckets.started(), 0);
    for (const Tensor& gradient : gradients) gradient.fill_(communicator.rank() + 1);
    for (const int index : {1, 0}) buckets.ready(0, index);
    buckets.synchronize();
    EXPECT_EQ(gradients[0].to_vector<float>(), std::vector<float>(100, 3.0F));
    EXPECT_EQ(gradients[1].to_vector<float>(), std::vector<float>(21, 3.0F));
    communicator.check();
  });
}

TEST(Rescaling, GradientBucketsKeepTheirGuards) {
  expect_all_right(1, [](Exchange& exchange) {
    Communicator communicator(exchange, one_device(exchange));
    const std::vector<Tensor> gradients = ranked_gradients(communicator);
    GradientBuckets buckets(communicator, gradients);
    {
      const NoSyncGuard no_sync = buckets.no_sync();
      buckets.ready(0, 0);
      communicator = communicator.shrink();
      buckets.rescale(communicator);
      for (const int index : {0, 1}) buckets.ready(0, index);
      EXPECT_EQ(buckets.started(), 0);
    }
    for (const int index : {0, 1}) buckets.ready(0, index);
    EXPECT_EQ(buckets.started(), 1);
    buckets.synchronize();
    communicator.check();
  });
}

/// A step with momentum: halves it, adds the gradient, and subtracts an eighth of the result.
void momentum_step(ShardedOptimizer& optimizer, const Communicator& communicator) {
  for (const Tensor& gradient : optimizer.gradients(0)) gradient.fill_(communicator.rank() + 1);
  optimizer.step([](const ParameterShard& shard) {
    reduce({shard.state[0], shard.gradients}, shard.state[0], ReduceOp::premul_sum({0.5, 1.0}));
    reduce({shard.parameters, shard.state[0]}, shard.parameters, ReduceOp::premul_sum({1.0, -0.125}));
  });
}

void expect_parameters(const ShardedOptimizer& optimizer, float value) {
  EXPECT_EQ(optimizer.parameters(0)[0].to_vector<float>(), std::vector<float>(40, value));
  EXPECT_EQ(optimizer.parameters(0)[1].to_vector<float>(), std::vector<float>(3, value));
}

TEST(Rescaling, ShardedOptimizerCutsItsStateAnew) {
  expect_that_two_go_on([](Exchange& exchange) {
    Communicator communicator(exchange, one_device(exchange));
    const TensorOptions options{.dtype = DType::float32, .device = communicator.devices().front()};
    ShardedOptimizer optimizer(communicator, {full({40}, 1, options), full({3}, 1, options)},
                               {.operation = ReduceOp::sum, .state_count = 1});
    for (int i = 0; i < 2; ++i) momentum_step(optimizer, communicator);
    expect_parameters(optimizer, -0.875F);  // with a momentum of 9
    EXPECT_EQ(optimizer.shards()[0].state[0].numel(), 32);
    EXPECT_EQ(optimizer.flat_parameters(0).numel(), 96);
    lose_rank_1(exchange, communicator);
    EXPECT_THROW(
        optimizer.rescale(communicator, [](const ParameterShard&) { throw std::runtime_error("no"); }),
        std::runtime_error);
    EXPECT_EQ(optimizer.flat_parameters(0).numel(), 96) << "nothing has changed";
    optimizer.rescale(communicator, [&](const ParameterShard& shard) {
      EXPECT_EQ(shard.begin, 32 * communicator.rank());
      EXPECT_EQ(shard.state[0].to_vector<float>(), std::vector<float>(32, 0.0F));
      shard.state[0].fill_(9);
    });
    EXPECT_EQ(optimizer.flat_parameters(0).numel(), 64);
    momentum_step(optimizer, communicator);
    expect_parameters(optimizer, -1.8125F);
    optimizer.rescale(communicator);
    momentum_step(optimizer, communicator);
    expect_parameters(optimizer, -2.1875F);  // without the momentum
    communicator.check();
  });
}

}  // namespace
}  // namespace tutti::test
