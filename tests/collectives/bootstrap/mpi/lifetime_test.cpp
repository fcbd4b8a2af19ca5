// SPDX-License-Identifier: Apache-2.0
#include "support/errors.hpp"
#include "tutti/mpi.hpp"
#include "tutti/tensor.hpp"

#include <memory>

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
