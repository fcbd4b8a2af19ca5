// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <iostream>

#include <gtest/gtest.h>
#include <mpi.h>

namespace {

/// Says whose failures these are: all ranks write to one place.
class NamesRank final : public testing::EmptyTestEventListener {
 public:
  explicit NamesRank(int rank) : rank_(rank) {}
  void OnTestPartResult(const testing::TestPartResult& result) override {
    if (result.failed()) std::cout << "rank " << rank_ << ":\n" << std::flush;
  }

 private:
  int rank_;
};

}  // namespace

int main(int argc, char** argv) {
  int level = MPI_THREAD_SINGLE;
  // More is needed on several hosts alone.
  const bool on_several_hosts = std::getenv("SEVERAL_HOSTS") != nullptr;
  MPI_Init_thread(&argc, &argv, on_several_hosts ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &level);
  testing::InitGoogleTest(&argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  auto& listeners = testing::UnitTest::GetInstance()->listeners();
  testing::TestEventListener* const printer = listeners.Release(listeners.default_result_printer());
  listeners.Append(new NamesRank(rank));
  listeners.Append(printer);
  const int status = RUN_ALL_TESTS();
  MPI_Finalize();
  return status;
}
