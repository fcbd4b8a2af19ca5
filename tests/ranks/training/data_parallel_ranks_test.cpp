// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/backward_pass.hpp"
#include "support/collectives/sharded_training.hpp"
#include "support/environment.hpp"
#include "support/ranks.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/data_parallel.hpp"

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// What trainers are made of, between processes.
namespace tutti::test {
namespace {

struct TrainerShape {
  int ranks;
  int members_per_rank;
};

std::string name_of_trainer_shape(const testing::TestParamInfo<TrainerShape>& shape) {
  return std::to_string(shape.param.ranks) + "x" + std::to_string(shape.param.members_per_rank);
}

/// Ranks share the devices where these are fewer.
CommunicatorOptions trainer_options(const Exchange& exchange, int members) {
  CommunicatorOptions options{.determinism = Determinism::bitwise};
  for (int i = 0; i < std::min(members, device_count()); ++i)
    options.devices.emplace_back((exchange.rank() * members + i) % device_count());
  return options;
}

class DataParallelRanks : public testing::TestWithParam<TrainerShape> {};

TEST_P(DataParallelRanks, ReduceTheSameBucketsInWhateverOrderGradientsCome) {
  expect_all_right(GetParam().ranks, [](Exchange& exchange) {
    Communicator communicator(exchange, trainer_options(exchange, GetParam().members_per_rank));
    const BackwardPass pass(communicator);
    GradientBuckets buckets(communicator, pass.gradients(), BackwardPass::small_buckets());
    for (std::uint64_t iteration = 0; iteration < 4; ++iteration) {
      if (iteration == 2) {
        const NoSyncGuard no_sync = buckets.no_sync();
        for (int index = 0; index < pass.count(); ++index) buckets.ready(0, index);
      }
      // Every rank has an order of its own.
      const auto order = 100 * iteration + static_cast<std::uint64_t>(exchange.rank());
      if (iteration == 3) {
        const NoSyncGuard no_sync = buckets.no_sync();
        pass.run(buckets, iteration, order);
      } else {
        pass.run(buckets, iteration, order);
      }
      buckets.synchronize();
      ASSERT_TRUE(pass.holds(iteration));
    }
    communicator.check();
  });
}

TEST_P(DataParallelRanks, ReplicateTheParametersOfAnyRank) {
  expect_all_right(GetParam().ranks, [](Exchange& exchange) {
    Communicator communicator(exchange, trainer_options(exchange, GetParam().members_per_rank));
    for (int root = 0; root < communicator.member_count(); ++root) {
      const int local = root - communicator.first_member();
      const auto locals = static_cast<int>(communicator.devices().size());
      const bool has_root = local >= 0 && local < locals;
      const Device home = has_root ? communicator.devices()[static_cast<std::size_t>(local)] : Device::host();
      const HostArray values = random_numbers(DType::float32, {33, 3}, static_cast<std::uint64_t>(root));
      const Tensor mine = has_root ? make_tensor(values, home) : zeros({33, 3});
      const auto replicas = replicate(communicator, {mine}, root);
      for (std::size_t i = 0; i < replicas.size(); ++i)
        EXPECT_TRUE(holds(replicas[i][0], communicator.devices()[i], values));
    }
    communicator.check();
  });
}

TEST_P(DataParallelRanks, TakeShardedSteps) {
  expect_all_right(GetParam().ranks, [](Exchange& exchange) {
    Communicator communicator(exchange, trainer_options(exchange, GetParam().members_per_rank));
    ShardedTraining training(communicator);
    for (std::uint64_t step = 0; step < 3; ++step) {
      training.step(step);
      ASSERT_TRUE(training.holds()) << "step " << step;
    }
    communicator.check();
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, DataParallelRanks,
                         testing::Values(TrainerShape{2, 1}, TrainerShape{3, 1}, TrainerShape{2, 2}),
                         name_of_trainer_shape);

}  // namespace
}  // namespace tutti::test
