// SPDX-License-Identifier: Apache-2.0
#include "tutti/sharded_optimizer.hpp"

#include "support/collectives/sharded_training.hpp"
#include "support/collectives/stream_order.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/stream_gate.hpp"
#include "tutti/graph.hpp"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <stdexcept>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Sharded steps of one process. (Between processes: ranks/data_parallel_ranks_test.cpp.)
namespace tutti {
namespace {

using test::operations_enqueued;
using test::refuses;
using test::ShardedTraining;

class ShardedOptimizerTest : public testing::Test {
 protected:
  [[nodiscard]] std::vector<std::vector<Tensor>> parameters(DType dtype,
                                                            const std::vector<int>& lengths) const {
    std::vector<std::vector<Tensor>> lists;
    for (const Device device : communicator_.devices()) {
      lists.emplace_back();
      for (const int length : lengths)
        lists.back().push_back(ones({length}, {.dtype = dtype, .device = device}));
    }
    return lists;
  }

  Communicator communicator_{
      CommunicatorOptions{.devices = test::first_devices(3), .determinism = Determinism::bitwise}};
  test::PooledStreams pooled_;
};

TEST_F(ShardedOptimizerTest, FindsWhatWholeUpdatesFind) {
  ShardedTraining training(communicator_);
  EXPECT_TRUE(training.holds());
  for (std::uint64_t step = 0; step < 4; ++step) {
    training.step(step);
    ASSERT_TRUE(training.holds()) << "step " << step;
  }
}

TEST_F(ShardedOptimizerTest, CutsBuffersWhichHaveRoomForPads) {
  const auto given = parameters(DType::float32, {17, 3});
  const ShardedOptimizer optimizer(communicator_, given, {.state_count = 2, .state_dtype = DType::float64});
  const std::int64_t members = communicator_.member_count();
  const std::int64_t length = optimizer.shards()[0].parameters.numel();
  EXPECT_EQ(length % 16, 0);
  EXPECT_GE(length * members, 32 + 16);
  EXPECT_LT((length - 16) * members, 32 + 16) << "no more than it takes";
  for (std::size_t i = 0; i < optimizer.shards().size(); ++i) {
    const int member = static_cast<int>(i);
    const ParameterShard& shard = optimizer.shards()[i];
    EXPECT_EQ(shard.member, member);
    EXPECT_EQ(shard.begin, member * length);
    EXPECT_EQ(shard.parameters.data(), optimizer.flat_parameters(member).narrow(0, shard.begin, 1).data());
    EXPECT_EQ(shard.gradients.data(), optimizer.flat_gradients(member).narrow(0, shard.begin, 1).data());
    ASSERT_EQ(shard.state.size(), 2U);
    EXPECT_EQ(shard.state[1].dtype(), DType::float64);
    EXPECT_EQ(shard.state[1].to_vector<double>(), std::vector<double>(static_cast<std::size_t>(length), 0.0));
    std::vector<float> expected(static_cast<std::size_t>(length * members), 0.0F);
    std::fill_n(expected.begin(), 17, 1.0F);
    std::fill_n(expected.begin() + 32, 3, 1.0F);
    EXPECT_EQ(optimizer.flat_parameters(member).to_vector<float>(), expected);
    EXPECT_EQ(optimizer.parameters(member)[1].data(),
              optimizer.flat_parameters(member).narrow(0, 32, 1).data());
  }
}

TEST_F(ShardedOptimizerTest, TakesGradientsOfAnotherType) {
  ShardedOptimizer optimizer(communicator_, parameters(DType::float32, {40, 5}),
                             {.operation = ReduceOp::sum, .gradient_dtype = DType::int64});
  for (int round = 1; round < 3; ++round) {
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < communicator_.devices().size(); ++i) {
      for (const Tensor& gradient : optimizer.gradients(static_cast<int>(i)))
        gradient.fill_(static_cast<double>(i) + round);
      sum += static_cast<std::int64_t>(i) + round;
    }
    optimizer.step([](const ParameterShard& shard) {
      EXPECT_EQ(current_device(), shard.parameters.device().index());
      shard.parameters.copy_(shard.gradients);
    });
    for (std::size_t i = 0; i < communicator_.devices().size(); ++i) {
      EXPECT_EQ(optimizer.parameters(static_cast<int>(i))[0].to_vector<float>(),
                std::vector<float>(40, static_cast<float>(sum)));
    }
    optimizer.zero_gradients();
    EXPECT_EQ(optimizer.gradients(0)[1].to_vector<std::int64_t>(), std::vector<std::int64_t>(5, 0));
  }
}

TEST_F(ShardedOptimizerTest, CanBeCaptured) {
  ShardedOptimizer optimizer(communicator_, parameters(DType::float32, {100}));
  const auto step = [&] {
    for (int member = 0; member < static_cast<int>(communicator_.devices().size()); ++member)
      optimizer.gradients(member)[0].copy_(optimizer.parameters(member)[0]);
    optimizer.step([](const ParameterShard& shard) { shard.parameters.copy_(shard.gradients); });
  };
  step();
  std::vector<Stream> streams;
  for (const Device device : communicator_.devices()) streams.push_back(current_stream(device));
  test::synchronize_all();
  const Graph graph = Graph::capture(streams, step);
  for (int member = 0; member < static_cast<int>(streams.size()); ++member)
    optimizer.parameters(member)[0].fill_(3.0 * member);
  test::synchronize_all();
  graph.launch(streams[0]);
  streams[0].synchronize();
  const float expected = 3.0F * static_cast<float>(streams.size() - 1) / 2.0F;
  for (int member = 0; member < static_cast<int>(streams.size()); ++member)
    EXPECT_EQ(optimizer.parameters(member)[0].to_vector<float>(), std::vector<float>(100, expected));
}

TEST_F(ShardedOptimizerTest, KeepsMemoryThatAStepOnOtherStreamsStillUses) {
  constexpr int elements = 1 << 18;
  for (const bool throws : {false, true}) {
    std::optional<ShardedOptimizer> optimizer;
    optimizer.emplace(communicator_, parameters(DType::float32, {elements}),
                      ShardedOptimizerOptions{.state_count = 1});
    const auto update = [&](const ParameterShard& shard) {
      shard.state[0].copy_(shard.gradients);
      shard.parameters.copy_(shard.state[0]);
      if (throws) throw std::runtime_error("no");
    };
    std::vector<std::pair<Device, std::int64_t>> sizes;
    std::vector<const void*> addresses;
    for (const ParameterShard& shard : optimizer->shards()) {
      for (const Tensor& tensor : {shard.state[0], optimizer->flat_parameters(shard.member),
                                   optimizer->flat_gradients(shard.member)}) {
        sizes.emplace_back(tensor.device(), tensor.numel());
        addresses.push_back(tensor.data());
      }
    }
    if (!throws) optimizer->step(update);  // the first time, kernels are loaded
    test::synchronize_all();
    std::optional<test::StreamGate> gate;
    {
      const test::PooledStreams others;
      gate.emplace(current_stream(communicator_.devices()[0]));
      if (throws) {
        EXPECT_THROW(optimizer->step(update), std::runtime_error);
      } else {
        optimizer->step(update);
      }
      optimizer.reset();
    }
    std::vector<Tensor> next;
    for (const auto& [device, size] : sizes) next.push_back(empty({size}, {.device = device}));
    for (const Tensor& tensor : next) {
      EXPECT_EQ(std::ranges::count(addresses, tensor.data()), 0)
          << "memory of " << tensor.numel() << " elements that the step still uses";
    }
    gate.reset();
    test::synchronize_all();
  }
}

TEST(ShardedOptimizerOfOneMember, TakesAPlainListOrOneInBraces) {
  Communicator communicator({.devices = {Device(0)}});
  const std::vector<Tensor> list{full({5}, 2, {.device = 0}), full({2, 3}, 7, {.device = 0})};
  const auto holds_the_list = [](const ShardedOptimizer& optimizer) {
    const std::vector<Tensor>& views = optimizer.parameters(0);
    return views.size() == 2 && views[0].to_vector<float>() == std::vector<float>(5, 2) &&
           views[1].to_vector<float>() == std::vector<float>(6, 7);
  };
  EXPECT_TRUE(holds_the_list(ShardedOptimizer(communicator, list)));
  EXPECT_TRUE(holds_the_list(ShardedOptimizer(communicator, {list})));
  EXPECT_TRUE(holds_the_list(ShardedOptimizer(communicator, {list[0], list[1]})));
}

TEST_F(ShardedOptimizerTest, RefusesWhatDoesNotFit) {
  const auto good = parameters(DType::float32, {5, 6});
  ShardedOptimizer optimizer(communicator_, good);
  const auto before = operations_enqueued();
  const auto refuses_lists = [&](const std::vector<std::vector<Tensor>>& lists,
                                 const std::vector<std::string>& fragments,
                                 const ShardedOptimizerOptions& options = {}) {
    return refuses([&] { const ShardedOptimizer other(communicator_, lists, options); },
                   ErrorCode::invalid_argument, fragments);
  };
  EXPECT_TRUE(
      refuses_lists({}, {"ShardedOptimizer", "parameters has 0 lists, expected one per local member"}));
  EXPECT_TRUE(refuses_lists(good, {"op is bxor", "float32"}, {.operation = ReduceOp::bxor}));
  EXPECT_TRUE(refuses_lists(good, {"op is avg", "bool"}, {.gradient_dtype = DType::boolean}));
  auto lists = good;
  for (std::vector<Tensor>& list : lists) list[1] = Tensor();
  EXPECT_TRUE(refuses_lists(lists, {"parameters[0][1]"}));
  // A parameter that is used in two places is one parameter.
  for (std::vector<Tensor>& list : lists) list[1] = list[0];
  EXPECT_TRUE(refuses_lists(lists, {"parameters[0][0] overlaps parameters[0][1], expected separate memory"}));
  for (std::vector<Tensor>& list : lists) list[1] = list[0].narrow(0, 3, 2);
  EXPECT_TRUE(refuses_lists(lists, {"parameters[0][0] overlaps parameters[0][1], expected separate memory"}));
  EXPECT_TRUE(refuses([&] { static_cast<void>(optimizer.parameters(-1)); }, ErrorCode::invalid_argument,
                      {"ShardedOptimizer::parameters", "member is -1"}));
  EXPECT_TRUE(refuses([&] { static_cast<void>(optimizer.gradients(17)); }, ErrorCode::invalid_argument,
                      {"ShardedOptimizer::gradients", "member is 17"}));
  EXPECT_TRUE(refuses([&] { optimizer.step(nullptr); }, ErrorCode::invalid_argument,
                      {"ShardedOptimizer::step", "update is empty"}));
  EXPECT_EQ(operations_enqueued(), before);
  lists = good;
  for (std::vector<Tensor>& list : lists) list[1] = list[1].to(DType::float64);
  EXPECT_TRUE(refuses_lists(lists, {"parameters[0][1] has element type float64, expected float32"}));
  EXPECT_THROW(optimizer.step([](const ParameterShard&) { throw std::runtime_error("no"); }),
               std::runtime_error);
  EXPECT_TRUE(refuses([&] { optimizer.step([](const ParameterShard&) {}); }, ErrorCode::invalid_argument,
                      {"ShardedOptimizer::step", "an earlier step has not returned"}));
}

}  // namespace
}  // namespace tutti
