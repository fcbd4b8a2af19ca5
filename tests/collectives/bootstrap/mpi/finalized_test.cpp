// SPDX-License-Identifier: Apache-2.0
#include "support/errors.hpp"
#include "tutti/mpi.hpp"
#include "tutti/tensor.hpp"

#include <chrono>
#include <optional>

#include <gtest/gtest.h>

/// On several hosts MPI is needed as long as a communicator lives. One test, because a process can have MPI
/// only once.
namespace tutti {
namespace {

TEST(MpiFinalized, EndsCommunicatorsOnSeveralHosts) {
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &level);
  ASSERT_EQ(level, MPI_THREAD_MULTIPLE);
  std::optional<Communicator> communicator = mpi::make_communicator(MPI_COMM_WORLD);
  std::optional<Communicator> part = communicator->split(0);
  const Tensor tensor = full({1000}, 1, {.device = communicator->devices().front()});
  communicator->all_reduce_add({tensor}, {tensor});
  EXPECT_EQ(tensor.to_vector<float>().back(), static_cast<float>(communicator->rank_count()));
  MPI_Barrier(MPI_COMM_WORLD);  // nobody waits for words of another any more
  MPI_Finalize();

  const auto start = std::chrono::steady_clock::now();
  for (Communicator* const ended : {&*communicator, &*part}) {
    // Until its thread has noticed, calls are accepted.
    while (ended->is_running()) ASSERT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
    EXPECT_TRUE(test::refuses([&] { ended->barrier(); }, ErrorCode::transport_failure,
                              {"finalised", "several hosts", "destroyed"}));
  }
  communicator.reset();
  part.reset();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(10));
}

}  // namespace
}  // namespace tutti
