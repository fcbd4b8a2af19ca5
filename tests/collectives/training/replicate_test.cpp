// SPDX-License-Identifier: Apache-2.0
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/data_parallel.hpp"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

/// Replicas of one process. (Between processes: ranks/data_parallel_ranks_test.cpp.)
namespace tutti {
namespace {

TEST(Replicate, GivesEveryMemberTheRootsParameters) {
  Communicator communicator({.devices = test::first_devices(3)});
  const int root = communicator.member_count() - 1;
  const Device home = communicator.devices().back();
  const test::HostArray weights = test::random_numbers(DType::float32, {7, 5}, 1);
  const test::HostArray steps = test::random_numbers(DType::int64, {3}, 2);
  const std::vector<Tensor> parameters{make_tensor(weights, home), make_tensor(steps, home)};
  const auto replicas = replicate(communicator, parameters, root);
  ASSERT_EQ(replicas.size(), communicator.devices().size());
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    ASSERT_EQ(replicas[i].size(), 2U);
    EXPECT_TRUE(test::holds(replicas[i][0], communicator.devices()[i], weights));
    EXPECT_TRUE(test::holds(replicas[i][1], communicator.devices()[i], steps));
  }
  EXPECT_EQ(replicas.back()[0].data(), parameters[0].data());
  if (replicas.size() == 1) return;
  // In place, from another one, on other streams.
  std::vector<Stream> streams;
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    streams.emplace_back(communicator.devices()[i]);
    replicas[i][0].fill_(static_cast<double>(i));
    streams[i].wait_stream(current_stream(communicator.devices()[i]));
  }
  replicate(communicator, replicas, 0, streams);
  for (std::size_t i = 0; i < replicas.size(); ++i) {
    streams[i].synchronize();
    EXPECT_EQ(replicas[i][0].to_vector<float>(), std::vector<float>(35, 0.0F));
  }
}

TEST(Replicate, TakesListsInBraces) {
  Communicator communicator({.devices = test::first_devices(1)});
  const Device device = communicator.devices()[0];
  const Tensor weights = ones({3}, {.device = device});
  const Tensor bias = zeros({}, {.device = device});
  const std::vector<Tensor> list{weights, bias};
  replicate(communicator, {list});
  replicate(communicator, {{weights}});
  replicate(communicator, {{weights, bias}}, 0, {Stream(device)});
  const auto replicas = replicate(communicator, {weights, bias});
  ASSERT_EQ(replicas.size(), 1U);
  EXPECT_EQ(replicas[0][0].data(), weights.data());
  const auto before = test::operations_enqueued();
  EXPECT_TRUE(test::refuses(
      [&] {
        replicate(communicator, {list, list});
      },
      ErrorCode::invalid_argument, {"2 entries", "one per local member, 1"}));
  EXPECT_TRUE(test::refuses([&] { replicate(communicator, {}); }, ErrorCode::invalid_argument,
                            {"0 entries", "one per local member, 1"}));
  EXPECT_EQ(test::operations_enqueued(), before);
}

TEST(Replicate, RefusesRootsAndTensorsThatAreElsewhere) {
  Communicator communicator({.devices = test::first_devices(2)});
  const Tensor on_host = zeros({2});
  const auto before = test::operations_enqueued();
  EXPECT_TRUE(test::refuses([&] { static_cast<void>(replicate(communicator, TensorList{}, -1)); },
                            ErrorCode::invalid_argument, {"replicate", "root is -1"}));
  EXPECT_TRUE(test::refuses([&] { static_cast<void>(replicate(communicator, {on_host}, 0)); },
                            ErrorCode::invalid_argument,
                            {"replicate", "parameters[0] is on host", "expected device:0", "member 0"}));
  EXPECT_TRUE(test::refuses([&] { static_cast<void>(replicate(communicator, {Tensor()}, 0)); },
                            ErrorCode::invalid_argument, {"replicate", "parameters[0]"}));
  EXPECT_TRUE(test::refuses(
      [&] {
        static_cast<void>(replicate(communicator, {on_host, on_host}, 0));
      },
      ErrorCode::invalid_argument, {"replicate", "parameters[0] overlaps parameters[1]", "separate memory"}));
  EXPECT_EQ(test::operations_enqueued(), before);
}

}  // namespace
}  // namespace tutti
