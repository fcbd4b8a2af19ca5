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

/// Automatic: the best the devices can do, on virtual devices p2p.
using Case = std::tuple<Shape, TransportKind, test::ranks::Rule>;

class CommunicatorContract : public testing::TestWithParam<Case> {};

TEST_P(CommunicatorContract, Holds) {
  const auto& [shape, transport, rule] = GetParam();
  expect_all_right(shape.ranks, [&](Exchange& exchange) {
    const int devices = device_count();
    if (shape.members_per_rank > devices) return;  // on a machine with few GPUs
    CommunicatorOptions options;
    options.transport = transport;
    options.determinism = rule.determinism;
    for (int i = 0; i < shape.members_per_rank; ++i)
      options.devices.emplace_back((exchange.rank() * shape.members_per_rank + i) % devices);
    Communicator communicator(exchange, options);
    const bool is_direct = communicator.explain().find("rounds: p2p") != std::string::npos;
    if (transport == TransportKind::staged || backend_kind() == BackendKind::host) {
      EXPECT_EQ(is_direct, transport != TransportKind::staged) << communicator.explain();
    }
    rule.check(communicator);
  });
}

std::string name_of(const testing::TestParamInfo<Case>& info) {
  const auto& [shape, transport, rule] = info.param;
  return rule.name + std::string("_") + std::to_string(shape.ranks) + "x" +
         std::to_string(shape.members_per_rank) + "_" + std::string(name_of(transport));
}

INSTANTIATE_TEST_SUITE_P(Ranks, CommunicatorContract,
                         testing::Combine(testing::Values(Shape{1, 1}, Shape{2, 1}, Shape{3, 1}, Shape{4, 1},
                                                          Shape{2, 2}, Shape{3, 2}),
                                          testing::Values(TransportKind::automatic),
                                          testing::ValuesIn(test::ranks::contract())),
                         name_of);
INSTANTIATE_TEST_SUITE_P(RanksStaged, CommunicatorContract,
                         testing::Combine(testing::Values(Shape{1, 1}, Shape{3, 1}, Shape{2, 2}),
                                          testing::Values(TransportKind::staged),
                                          testing::ValuesIn(test::ranks::contract())),
                         name_of);

TEST(Communicator, RefusesDevicesItCannotTake) {
  expect_all_right(1, test::ranks::refuses_devices_it_cannot_take);
}

}  // namespace
}  // namespace tutti
