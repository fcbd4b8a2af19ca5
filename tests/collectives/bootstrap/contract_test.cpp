// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/contract.hpp"

#include "collectives/bootstrap/world.hpp"
#include "tutti/device.hpp"

#include <string>

#include <gtest/gtest.h>

/// The contract of the collectives between processes that a launcher has started.
namespace tutti {
namespace {

using test::ranks::Rule;

class LaunchedContract : public testing::TestWithParam<Rule> {};

std::string name_of_launched_rule(const testing::TestParamInfo<Rule>& rule) {
  return rule.param.name;
}

// One of them is chosen for each run.
INSTANTIATE_TEST_SUITE_P(InFull, LaunchedContract, testing::ValuesIn(test::ranks::contract()),
                         name_of_launched_rule);
INSTANTIATE_TEST_SUITE_P(InShort, LaunchedContract, testing::ValuesIn(test::ranks::short_contract()),
                         name_of_launched_rule);

TEST_P(LaunchedContract, HoldsForOneDevicePerProcess) {
  Communicator communicator = test::communicator_of_world();
  GetParam().check(communicator);
}

TEST_P(LaunchedContract, HoldsForTwoDevicesPerProcess) {
  if (device_count() < 2) GTEST_SKIP() << "there is one device";
  const int first = 2 * test::local_rank_in_world() % device_count();
  Communicator communicator = test::communicator_of_world({.devices = {first, (first + 1) % device_count()}});
  GetParam().check(communicator);
}

}  // namespace
}  // namespace tutti
