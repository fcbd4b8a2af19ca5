// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

namespace tutti::test {

[[nodiscard]] inline int world_rank() {
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  return rank;
}

[[nodiscard]] inline int world_size() {
  int size = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  return size;
}

/// A part of the world: the processes that give the same color, in order of their keys. The object frees it.
class Part {
 public:
  Part(int color, int key) { MPI_Comm_split(MPI_COMM_WORLD, color, key, &comm_); }
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  ~Part() { MPI_Comm_free(&comm_); }

  operator MPI_Comm() const noexcept { return comm_; }

 private:
  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace tutti::test
