// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/world.hpp"

#include "tutti/mpi.hpp"

#include <cstdlib>

#include <mpi.h>

namespace tutti::test {

void enter_world(int& argc, char**& argv) {
  int level = MPI_THREAD_SINGLE;
  // More is needed on several hosts alone.
  const bool on_several_hosts = std::getenv("SEVERAL_HOSTS") != nullptr;
  MPI_Init_thread(&argc, &argv, on_several_hosts ? MPI_THREAD_MULTIPLE : MPI_THREAD_FUNNELED, &level);
}

void leave_world() {
  MPI_Finalize();
}

int rank_in_world() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

int size_of_world() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

int local_rank_in_world() {
  return mpi::local_rank(MPI_COMM_WORLD);
}

std::unique_ptr<Exchange> exchange_of_world() {
  return std::make_unique<mpi::Exchange>(MPI_COMM_WORLD);
}

std::string network_of_world() {
  return "MPI";
}

Communicator communicator_of_world(const CommunicatorOptions& options) {
  return mpi::make_communicator(MPI_COMM_WORLD, options);
}

void world_barrier() {
  MPI_Barrier(MPI_COMM_WORLD);
}

}  // namespace tutti::test
