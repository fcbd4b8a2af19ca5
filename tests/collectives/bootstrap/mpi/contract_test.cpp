// SPDX-License-Identifier: Apache-2.0
#include "ranks/contract/contract.hpp"

#include "tutti/mpi.hpp"

#include <string>

#include <gtest/gtest.h>

/// The contract of the collectives between processes that MPI has introduced.
namespace tutti {
namespace {

using test::ranks::Rule;

class MpiContract : public testing::TestWithParam<Rule> {};

std::string name_of_mpi_rule(const testing::TestParamInfo<Rule>& rule) {
  return rule.param.name;
}

// One of them is chosen for each run.
INSTANTIATE_TEST_SUITE_P(Mpi, MpiContract, testing::ValuesIn(test::ranks::contract()), name_of_mpi_rule);
INSTANTIATE_TEST_SUITE_P(MpiInShort, MpiContract, testing::ValuesIn(test::ranks::short_contract()),
                         name_of_mpi_rule);

TEST_P(MpiContract, HoldsForOneDevicePerProcess) {
  Communicator communicator = mpi::make_communicator(MPI_COMM_WORLD);
  GetParam().check(communicator);
}

TEST_P(MpiContract, HoldsForTwoDevicesPerProcess) {
  if (device_count() < 2) GTEST_SKIP() << "there is one device";
  const int first = 2 * mpi::local_rank(MPI_COMM_WORLD) % device_count();
  Communicator communicator =
      mpi::make_communicator(MPI_COMM_WORLD, {.devices = {first, (first + 1) % device_count()}});
  GetParam().check(communicator);
}

TEST(MpiCommunicator, RefusesDevicesItCannotTake) {
  mpi::Exchange alone(MPI_COMM_SELF);
  test::ranks::refuses_devices_it_cannot_take(alone);
}

}  // namespace
}  // namespace tutti
