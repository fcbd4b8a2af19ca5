// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/local_rendezvous.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/shared_object.hpp"
#include "support/temporary_folder.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/collectives.hpp"
#include "tutti/data_parallel.hpp"
#include "tutti/sharded_optimizer.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
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

/// An optimiser of 43 parameters with momentum that keeps replicas.
ShardedOptimizer optimizer_with_replicas(Communicator& communicator, float parameter = 1,
                                         std::int64_t steps_per_replica = 1) {
  const TensorOptions options{.dtype = DType::float32, .device = communicator.devices().front()};
  return {communicator,
          {full({40}, parameter, options), full({3}, parameter, options)},
          {.operation = ReduceOp::sum, .state_count = 1, .steps_per_replica = steps_per_replica}};
}

/// The parameters and the momentum after so many steps of three ranks.
struct Expected {
  float parameter = 1;
  float momentum = 0;
};
Expected after(std::int64_t steps, float gradients = 6) {
  Expected expected;
  for (std::int64_t i = 0; i < steps; ++i) {
    expected.momentum = expected.momentum * 0.5F + gradients;
    expected.parameter -= expected.momentum * 0.125F;
  }
  return expected;
}

void expect_state(const ShardedOptimizer& optimizer, const Expected& expected) {
  expect_parameters(optimizer, expected.parameter);
  const ParameterShard& shard = optimizer.shards()[0];
  const std::vector<float> momentum = shard.state[0].to_vector<float>();
  for (std::size_t i = 0; i < momentum.size(); ++i) {
    const std::int64_t place = shard.begin + static_cast<std::int64_t>(i);
    const bool is_padding = (place >= 40 && place < 48) || place >= 51;
    EXPECT_EQ(momentum[i], is_padding ? 0 : expected.momentum) << place;
  }
}

/// Makes steps until the communicator ends.
void step_until_loss(ShardedOptimizer& optimizer, const Communicator& communicator) {
  try {
    for (;;) {
      momentum_step(optimizer, communicator);
      synchronize(communicator.devices().front());
      communicator.check();
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::peer_unavailable) << error.what();
  }
}

TEST(Rescaling, ReplicasBringBackTheShardsOfALostRank) {
  for (const std::int64_t steps_per_replica : {1, 3}) {
    expect_that_two_go_on([&](Exchange& exchange) {
      Communicator communicator(exchange, one_device(exchange));
      ShardedOptimizer optimizer = optimizer_with_replicas(communicator, 1, steps_per_replica);
      if (communicator.rank() == 1) {
        for (int i = 0; i < 7; ++i) momentum_step(optimizer, communicator);
        synchronize(communicator.devices().front());
        std::raise(SIGKILL);
      }
      step_until_loss(optimizer, communicator);
      communicator = communicator.shrink();
      const bool is_restored =
          optimizer.rescale(communicator, [](const ParameterShard&) { ADD_FAILURE() << "not needed"; });
      EXPECT_TRUE(is_restored);
      EXPECT_LE(optimizer.steps(), 7);
      EXPECT_GE(optimizer.steps(), 7 - 2 * steps_per_replica);
      EXPECT_EQ(optimizer.steps() % steps_per_replica, 0);
      Expected expected = after(optimizer.steps());
      expect_state(optimizer, expected);
      momentum_step(optimizer, communicator);
      expected.momentum = expected.momentum * 0.5F + 3;
      expected.parameter -= expected.momentum * 0.125F;
      expect_state(optimizer, expected);
      communicator.check();
    });
  }
}

TEST(Rescaling, ReplicasServeLossesOneAfterAnother) {
  const SharedObject<std::atomic<int>> rescaled;
  Ranks ranks(4, [&](Exchange& exchange) {
    Communicator communicator(exchange, one_device(exchange));
    ShardedOptimizer optimizer = optimizer_with_replicas(communicator);
    for (int i = 0; i < 4; ++i) momentum_step(optimizer, communicator);
    synchronize(communicator.devices().front());
    transport::team::synchronize(exchange);
    // After the first loss, the next rank is lost before any newer copies are sure. Rank 2 has its shard;
    // that of rank 0 is lost.
    const std::vector<std::int64_t> steps{3, 0, 0};
    int ranks_so_far = 0;
    for (int lost = 0; lost < 3; ++lost) {
      if (exchange.rank() == lost) {
        EXPECT_TRUE(becomes_true([&] { return rescaled->load() == ranks_so_far; }));
        std::raise(SIGKILL);
      }
      EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
      communicator = communicator.shrink();
      EXPECT_EQ(optimizer.rescale(communicator), lost == 0);
      EXPECT_EQ(optimizer.steps(), steps[static_cast<std::size_t>(lost)]);
      synchronize(communicator.devices().front());
      ranks_so_far += 3 - lost;
      ++*rescaled;
    }
  });
  EXPECT_EQ(ranks.wait(), (std::vector<Ending>{killed, killed, killed, all_right}));
}

TEST(Rescaling, ReplicasBringANewRankUpToDate) {
  const MeetingPoint point{.port = Listener().port()};
  constexpr int last = 12;
  const auto train = [&](Communicator& communicator, ShardedOptimizer& optimizer) {
    while (optimizer.steps() < last) momentum_step(optimizer, communicator);
    expect_state(optimizer, after(last));
    communicator.check();
  };
  Ranks spares(1, [&](Exchange& exchange) {
    Communicator communicator = Communicator::join({.meeting_point = point}, one_device(exchange));
    EXPECT_EQ(communicator.rank(), 0);
    ShardedOptimizer optimizer = optimizer_with_replicas(communicator, -5);
    EXPECT_GE(optimizer.steps(), 3);
    expect_state(optimizer, after(optimizer.steps()));
    train(communicator, optimizer);
  });
  Ranks ranks(3, [&](Exchange& exchange) {
    Communicator communicator(exchange, one_device(exchange));
    ShardedOptimizer optimizer = optimizer_with_replicas(communicator);
    if (communicator.rank() == 0) {
      for (int i = 0; i < 5; ++i) momentum_step(optimizer, communicator);
      synchronize(communicator.devices().front());
      std::raise(SIGKILL);
    }
    step_until_loss(optimizer, communicator);
    communicator = communicator.replace({.meeting_point = point});
    EXPECT_TRUE(optimizer.rescale(communicator));
    expect_state(optimizer, after(optimizer.steps()));
    train(communicator, optimizer);
  });
  EXPECT_EQ(ranks.wait(), (std::vector<Ending>{killed, all_right, all_right}));
  EXPECT_EQ(spares.wait(), std::vector<Ending>{all_right});
}

TEST(Rescaling, WithoutAReplicaACheckpointIsAskedFor) {
  Ranks ranks(4, [](Exchange& exchange) {
    Communicator communicator(exchange, one_device(exchange));
    ShardedOptimizer optimizer = optimizer_with_replicas(communicator);
    for (int i = 0; i < 4; ++i) momentum_step(optimizer, communicator);
    synchronize(communicator.devices().front());
    transport::team::synchronize(exchange);
    if (exchange.rank() == 1 || exchange.rank() == 2) std::raise(SIGKILL);
    do {
      EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
      communicator = communicator.shrink();
    } while (communicator.rank_count() > 2);
    int restored = 0;
    EXPECT_FALSE(optimizer.rescale(communicator, [&](const ParameterShard&) { ++restored; }));
    EXPECT_EQ(restored, 1);
    EXPECT_EQ(optimizer.steps(), 0);
    for (int i = 0; i < 2; ++i) momentum_step(optimizer, communicator);
    EXPECT_EQ(optimizer.steps(), 2);
    communicator.check();
  });
  EXPECT_EQ(ranks.wait(), (std::vector<Ending>{all_right, killed, killed, all_right}));
}

TEST(Rescaling, ReplicasOfWhatALoadHasReplacedAreForgotten) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/state";
  expect_that_two_go_on([&](Exchange& exchange) {
    Communicator communicator(exchange, one_device(exchange));
    ShardedOptimizer optimizer = optimizer_with_replicas(communicator);
    for (int i = 0; i < 4; ++i) momentum_step(optimizer, communicator);
    optimizer.save(path);
    for (int i = 0; i < 4; ++i) momentum_step(optimizer, communicator);
    EXPECT_EQ(optimizer.load(path), "");
    EXPECT_EQ(optimizer.steps(), 0);
    expect_state(optimizer, after(4));
    lose_rank_1(exchange, communicator);
    EXPECT_FALSE(optimizer.rescale(communicator));
    EXPECT_EQ(optimizer.load(path), "");
    expect_state(optimizer, after(4));
    communicator.check();
  });
}

TEST(Rescaling, RefusesBadStepsPerReplica) {
  expect_all_right(1, [](Exchange& exchange) {
    Communicator communicator(exchange, one_device(exchange));
    EXPECT_TRUE(refuses([&] { static_cast<void>(optimizer_with_replicas(communicator, 1, -1)); },
                        ErrorCode::invalid_argument,
                        {"options.steps_per_replica is -1, expected 0 or more"}));
  });
}

}  // namespace
}  // namespace tutti::test
