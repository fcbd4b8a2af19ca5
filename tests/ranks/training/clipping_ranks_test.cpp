// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/clip_model.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/values/test_tensor.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/data_parallel.hpp"
#include "tutti/sharded_optimizer.hpp"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

/// Clipping among processes: all find the same norm, bit for bit.
namespace tutti::test {
namespace {

CommunicatorOptions devices_of(const Exchange& exchange, int members) {
  CommunicatorOptions options{.determinism = Determinism::bitwise};
  for (int i = 0; i < std::min(members, device_count()); ++i)
    options.devices.emplace_back((exchange.rank() * members + i) % device_count());
  return options;
}

std::vector<HostArray> some_gradients() {
  return {random_numbers(DType::float32, {70000}, 1), random_numbers(DType::float32, {5, 3}, 2),
          random_numbers(DType::float32, {30000}, 3)};
}

std::vector<std::vector<Tensor>> on_all_devices(const Communicator& communicator,
                                                const std::vector<HostArray>& values) {
  std::vector<std::vector<Tensor>> lists;
  for (const Device device : communicator.devices()) {
    lists.emplace_back();
    for (const HostArray& each : values) lists.back().push_back(make_tensor(each, device));
  }
  return lists;
}

void expect_same_on_all_ranks(Exchange& exchange, double mine) {
  for (const double other : transport::team::gather(exchange, mine))
    EXPECT_EQ(std::bit_cast<std::uint64_t>(other), std::bit_cast<std::uint64_t>(mine));
}

class ClippingRanks : public testing::TestWithParam<int> {};

TEST_P(ClippingRanks, FindOneNormOfBuckets) {
  const int members = GetParam();
  expect_all_right(members == 1 ? 3 : 2, [members](Exchange& exchange) {
    Communicator communicator(exchange, devices_of(exchange, members));
    const std::vector<HostArray> values = some_gradients();
    const auto lists = on_all_devices(communicator, values);
    GradientBuckets buckets(communicator, lists, {.operation = ReduceOp::max});
    for (std::size_t local = 0; local < lists.size(); ++local) {
      for (const int index : {2, 1, 0}) buckets.ready(static_cast<int>(local), index);
    }
    buckets.synchronize();
    const double norm = norm_of(values, communicator.member_count());
    const double found = buckets.clip_norm({.max_norm = norm / 2, .error_if_nonfinite = true}).item<double>();
    EXPECT_EQ(std::bit_cast<std::uint64_t>(found), std::bit_cast<std::uint64_t>(norm));
    expect_same_on_all_ranks(exchange, found);
    for (std::size_t local = 0; local < lists.size(); ++local) {
      for (std::size_t t = 0; t < values.size(); ++t) {
        EXPECT_TRUE(
            holds(lists[local][t], communicator.devices()[local], clipped(values[t], norm, norm / 2)));
      }
    }
    communicator.check();
  });
}

TEST_P(ClippingRanks, FindOneNormOfShards) {
  const int members = GetParam();
  expect_all_right(members == 1 ? 3 : 2, [members](Exchange& exchange) {
    Communicator communicator(exchange, devices_of(exchange, members));
    const std::vector<HostArray> values = some_gradients();
    ShardedOptimizer optimizer(communicator, on_all_devices(communicator, values),
                               {.operation = ReduceOp::max});
    const auto write = [&] {
      for (std::size_t local = 0; local < communicator.devices().size(); ++local) {
        for (std::size_t t = 0; t < values.size(); ++t)
          optimizer.gradients(static_cast<int>(local))[t].copy_(make_tensor(values[t], Device::host()));
      }
    };
    const auto update = [](const ParameterShard& shard) { shard.parameters.copy_(shard.gradients); };
    write();
    std::vector<HostArray> parts;
    const std::int64_t length = optimizer.shards()[0].gradients.numel();
    for (int member = 0; member < communicator.member_count(); ++member)
      parts.push_back(slice(read(optimizer.flat_gradients(0)), 0, member * length, length));
    const double norm = norm_of_parts(parts);
    const double found = optimizer.step(update, {.max_norm = norm / 2}).item<double>();
    EXPECT_EQ(std::bit_cast<std::uint64_t>(found), std::bit_cast<std::uint64_t>(norm));
    expect_same_on_all_ranks(exchange, found);
    for (std::size_t t = 0; t < values.size(); ++t) {
      EXPECT_TRUE(
          holds(optimizer.parameters(0)[t], communicator.devices()[0], clipped(values[t], norm, norm / 2)));
    }
    // One member's gradient is infinite: all refuse the step, and can go on.
    write();
    if (exchange.rank() == 1) optimizer.gradients(0)[1].fill_(std::numeric_limits<double>::infinity());
    EXPECT_TRUE(refuses([&] { optimizer.step(update, {.error_if_nonfinite = true}); },
                        ErrorCode::invalid_argument, {"the norm of the gradients is inf"}));
    write();
    EXPECT_EQ(optimizer.step(update, {.error_if_nonfinite = true}).item<double>(), norm);
    communicator.check();
  });
}

INSTANTIATE_TEST_SUITE_P(MembersOfARank, ClippingRanks, testing::Values(1, 2),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace tutti::test
