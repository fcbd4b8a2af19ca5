#include "tutti/communicator.hpp"

#include "ranks/contract.hpp"
#include "support/ranks.hpp"

#include <string>
#include <tuple>

#include <gtest/gtest.h>

/// The contract of the collectives between processes that know one another through memory they share.
namespace tutti {
namespace {

using test::expect_all_right;

struct Shape {
  int ranks;
  int members_per_rank;
};

using Case = std::tuple<Shape, test::ranks::Rule>;

class CommunicatorContract : public testing::TestWithParam<Case> {};

TEST_P(CommunicatorContract, Holds) {
  const auto& [shape, rule] = GetParam();
  expect_all_right(shape.ranks, [&](Exchange& exchange) {
    const int devices = device_count();
    if (shape.members_per_rank > devices) return;  // on a machine with few GPUs
    CommunicatorOptions options;
    options.determinism = rule.determinism;
    for (int i = 0; i < shape.members_per_rank; ++i)
      options.devices.emplace_back((exchange.rank() * shape.members_per_rank + i) % devices);
    Communicator communicator(exchange, options);
    rule.check(communicator);
  });
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const auto& [shape, rule] = info.param;
  return rule.name + std::string("_") + std::to_string(shape.ranks) + "x" +
         std::to_string(shape.members_per_rank);
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorContract,
                         testing::Combine(testing::Values(Shape{1, 1}, Shape{2, 1}, Shape{3, 1}, Shape{4, 1},
                                                          Shape{2, 2}, Shape{3, 2}),
                                          testing::ValuesIn(test::ranks::contract())),
                         name_of);

TEST(Communicator, RefusesDevicesItCannotTake) {
  expect_all_right(1, test::ranks::refuses_devices_it_cannot_take);
}

}  // namespace
}  // namespace tutti
