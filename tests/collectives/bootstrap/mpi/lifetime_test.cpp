// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/mpi/world.hpp"
#include "support/errors.hpp"
#include "tutti/mpi.hpp"
#include "tutti/tensor.hpp"

#include <cstdlib>
#include <memory>
#include <string>

#include <gtest/gtest.h>

/// Before MPI, and after it: one test, because a process can have MPI only once.
namespace tutti {
namespace {

TEST(MpiLifetime, CommunicatorsOutliveMpi) {
  const auto invalid = ErrorCode::invalid_argument;
  EXPECT_TRUE(test::refuses([] { mpi::Exchange{MPI_COMM_WORLD}; }, invalid, {"not initialised", "MPI_Init"}));
  EXPECT_TRUE(test::refuses([] { static_cast<void>(mpi::make_communicator(MPI_COMM_WORLD)); }, invalid,
                            {"not initialised"}));

  MPI_Init(nullptr, nullptr);
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level < MPI_THREAD_MULTIPLE) {
    setenv("TUTTI_HOST_ID", std::to_string(test::world_rank()).c_str(),
           1);  // as if each were on its own host
    EXPECT_TRUE(test::refuses(
        [] { static_cast<void>(mpi::make_communicator(MPI_COMM_WORLD)); }, ErrorCode::unsupported,
        {"in place of MPI_Init", "MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);"}));
    unsetenv("TUTTI_HOST_ID");
  }
  auto exchange = std::make_unique<mpi::Exchange>(MPI_COMM_WORLD);
  Communicator communicator = mpi::make_communicator(MPI_COMM_WORLD);
  MPI_Finalize();

  const Tensor tensor = full({1000}, 1, {.device = communicator.devices().front()});
  communicator.all_reduce_add({tensor}, {tensor});
  EXPECT_EQ(tensor.to_vector<float>().back(), static_cast<float>(communicator.rank_count()));
  exchange.reset();
  EXPECT_TRUE(test::refuses([] { mpi::Exchange{MPI_COMM_WORLD}; }, invalid, {"finalised"}));
  EXPECT_TRUE(
      test::refuses([] { static_cast<void>(mpi::local_rank(MPI_COMM_WORLD)); }, invalid, {"finalised"}));
}

}  // namespace
}  // namespace tutti
