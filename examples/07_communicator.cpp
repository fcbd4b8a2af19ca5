// SPDX-License-Identifier: Apache-2.0
// One process per device: mpirun -np 4 07_communicator. Every rank gives a tensor; all get the sum.

#include "tutti/mpi.hpp"
#include "tutti/tutti.hpp"

#include <iostream>

int main(int argc, char** argv) {
  // On one host MPI_Init is enough; between several, a thread of the communicator's calls MPI too.
  int level = MPI_THREAD_SINGLE;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
  {
    // Collective: every rank brings in a device of its own.
    tutti::Communicator communicator = tutti::mpi::make_communicator(MPI_COMM_WORLD);
    const tutti::Device device = communicator.devices().front();

    const tutti::Tensor gradients = tutti::full({1024}, communicator.rank() + 1, {.device = device});
    communicator.all_reduce_add({gradients}, {gradients});  // in place, on the current stream
    const float sum = gradients.to_vector<float>().front();
    communicator.check();  // throws if a rank was lost meanwhile: only then may a sum be anything

    if (communicator.rank() == 0)
      std::cout << communicator.rank_count() << " ranks: every one has " << sum << '\n';
  }  // destroyed before MPI_Finalize, which it has to be on several hosts
  MPI_Finalize();
}
