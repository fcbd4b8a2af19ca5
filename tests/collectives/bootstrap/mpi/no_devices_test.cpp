// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/mpi/world.hpp"
#include "support/errors.hpp"
#include "tutti/mpi.hpp"
#include "tutti/virtual_devices.hpp"

#include <cstdlib>

#include <gtest/gtest.h>

/// A program of its own: a process looks for its devices once.
namespace tutti {
namespace {

TEST(MpiCommunicator, ARankWithoutDevicesIsNamedToTheOthers) {
  const bool has_none = test::world_rank() == 1;
  if (has_none) setenv("TUTTI_VIRTUAL_DEVICES", "many", 1);
  EXPECT_TRUE(test::refuses([] { static_cast<void>(mpi::make_communicator(MPI_COMM_WORLD)); },
                            has_none ? ErrorCode::invalid_argument : ErrorCode::peer_unavailable,
                            {"TUTTI_VIRTUAL_DEVICES", has_none ? "many" : "rank 1:"}));
  // A machine may be started without any, too.
  unsetenv("TUTTI_VIRTUAL_DEVICES");
  virtual_devices::VirtualMachine machine;
  machine.device_count = has_none ? 0 : 2;
  virtual_devices::start(machine);
  EXPECT_TRUE(test::refuses([] { static_cast<void>(mpi::make_communicator(MPI_COMM_WORLD)); },
                            has_none ? ErrorCode::invalid_argument : ErrorCode::peer_unavailable,
                            {has_none ? "device" : "rank 1:"}));
}

}  // namespace
}  // namespace tutti
