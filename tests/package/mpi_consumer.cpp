// SPDX-License-Identifier: Apache-2.0
// A user's MPI program: sees the installed headers and libraries, nothing else.
#include "tutti/mpi.hpp"
#include "tutti/tensor.hpp"

#include <iostream>

int main(int argc, char** argv) {
  MPI_Init(&argc, &argv);
  int status = 1;
  {
    tutti::Communicator communicator = tutti::mpi::make_communicator(MPI_COMM_WORLD);
    const tutti::Device device = communicator.devices().front();
    const tutti::Tensor ones = tutti::full({1000}, 1, {.device = device});
    communicator.all_reduce_add({ones}, {ones});
    const float sum = ones.to_vector<float>().back();
    if (communicator.rank() == 0)
      std::cout << "the sum over " << communicator.rank_count() << " ranks is " << sum << '\n';
    status = sum == static_cast<float>(communicator.rank_count()) ? 0 : 1;
  }
  MPI_Finalize();
  return status;
}
