// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/mpi/world.hpp"
#include "ranks/contract/contract.hpp"
#include "tutti/mpi.hpp"
#include "tutti/tensor.hpp"

#include <vector>

#include <gtest/gtest.h>

/// Which processes become a communicator, and on which devices.
namespace tutti {
namespace {

using test::Part;
using test::world_rank;
using test::world_size;

/// What all members get when each brings in `value`.
float sum_of(Communicator& communicator, float value) {
  const Tensor tensor = full({100}, value, {.device = communicator.devices().front()});
  communicator.all_reduce_add({tensor}, {tensor});
  return tensor.to_vector<float>().back();
}

TEST(MpiCommunicator, RanksAreThoseOfMpi) {
  const Communicator communicator = mpi::make_communicator(MPI_COMM_WORLD);
  EXPECT_EQ(communicator.rank(), world_rank());
  EXPECT_EQ(communicator.rank_count(), world_size());
  const Part reversed(0, -world_rank());
  EXPECT_EQ(mpi::make_communicator(reversed).rank(), world_size() - 1 - world_rank());
}

TEST(MpiCommunicator, TakesTheDeviceOfItsNumberOnTheHost) {
  EXPECT_EQ(mpi::local_rank(MPI_COMM_WORLD), world_rank());
  EXPECT_EQ(mpi::make_communicator(MPI_COMM_WORLD).devices(), std::vector{Device(world_rank())});
  const Part reversed(0, -world_rank());
  EXPECT_EQ(mpi::make_communicator(reversed).devices(), std::vector{Device(world_size() - 1 - world_rank())});
}

TEST(MpiCommunicator, TakesTheDevicesItIsTold) {
  // Also where only some ranks say so.
  const std::vector<Device> devices =
      world_rank() == 0 ? std::vector{Device(5), Device(3)} : std::vector<Device>{};
  const Communicator communicator = mpi::make_communicator(MPI_COMM_WORLD, {.devices = devices});
  EXPECT_EQ(communicator.member_count(), world_size() + 1);
  EXPECT_EQ(communicator.devices(), world_rank() == 0 ? devices : std::vector{Device(world_rank())});
}

TEST(MpiCommunicator, PartsOfTheWorldWorkSideBySide) {
  const int color = world_rank() % 2;
  const Part half(color, world_rank());
  Communicator communicator = mpi::make_communicator(half);
  EXPECT_EQ(communicator.rank_count(), (world_size() + 1 - color) / 2);
  for (const test::ranks::Rule& rule : test::ranks::contract()) {
    SCOPED_TRACE(rule.name);
    if (std::string_view(rule.name) == "RandomCallsAreAllRight") rule.check(communicator);
  }
}

TEST(MpiCommunicator, ProcessesMayStayOutside) {
  // MPI gives MPI_COMM_NULL to those that are in no part.
  MPI_Comm first_two = MPI_COMM_NULL;
  MPI_Comm_split(MPI_COMM_WORLD, world_rank() < 2 ? 0 : MPI_UNDEFINED, 0, &first_two);
  if (first_two == MPI_COMM_NULL) return;
  Communicator communicator = mpi::make_communicator(first_two);
  MPI_Comm_free(&first_two);
  EXPECT_EQ(sum_of(communicator, 3), 6);
}

TEST(MpiCommunicator, SeveralWorkAtOnceInAnyOrderOfCalls) {
  const int half_size = (world_size() + 1 - world_rank() % 2) / 2;
  const Part half(world_rank() % 2, world_rank());
  const Part reversed(0, -world_rank());
  Communicator all = mpi::make_communicator(MPI_COMM_WORLD);
  Communicator backwards = mpi::make_communicator(reversed);
  Communicator some = mpi::make_communicator(half);
  Communicator again = mpi::make_communicator(MPI_COMM_WORLD);
  for (int round = 1; round <= 10; ++round) {
    const auto value = static_cast<float>(round);
    EXPECT_EQ(sum_of(again, value), value * static_cast<float>(world_size()));
    EXPECT_EQ(sum_of(some, value), value * static_cast<float>(half_size));
    EXPECT_EQ(sum_of(all, value), value * static_cast<float>(world_size()));
    EXPECT_EQ(sum_of(backwards, value), value * static_cast<float>(world_size()));
  }
}

TEST(MpiCommunicator, MpiGoesOnMeanwhile) {
  Communicator communicator = mpi::make_communicator(MPI_COMM_WORLD);
  for (int round = 0; round < 10; ++round) {
    int sum = 0;
    const int mine = world_rank();
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    EXPECT_EQ(sum, world_size() * (world_size() - 1) / 2);
    EXPECT_EQ(sum_of(communicator, 2), 2 * static_cast<float>(world_size()));
  }
}

TEST(MpiCommunicator, RefusesDevicesItCannotTake) {
  mpi::Exchange alone(MPI_COMM_SELF);
  test::ranks::refuses_devices_it_cannot_take(alone);
}

}  // namespace
}  // namespace tutti
