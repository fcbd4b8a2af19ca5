// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include <mpi.h>

namespace tutti::mpi {

/// The requests that MPI has under way.
class Requests {
 public:
  static constexpr int all = -1;

  /// Makes room for a request that `call` starts with `rank`, or with all, and writes there before another
  /// one is added.
  [[nodiscard]] MPI_Request* add(int rank, const char* call);
  /// Waits for all requests, without spinning, which would take the processor from ranks that share it.
  /// Returns false if they are not complete after `timeout`.
  [[nodiscard]] bool complete_within(std::chrono::milliseconds timeout);
  /// Returns the ranks of the requests that are not complete, as "rank 1" or "ranks 1, 2 and 5"; an empty
  /// text if there are none.
  [[nodiscard]] std::string missing() const;

 private:
  struct Request {
    MPI_Request handle = MPI_REQUEST_NULL;
    int rank = 0;
    const char* call = nullptr;
  };
  /// Looks once whether all requests are complete.
  [[nodiscard]] bool are_complete();

  std::vector<Request> requests_;
};

/// Returns a duplicate of `comm` that returns failures in place of calling an error handler. Collective.
/// Throws Error(timeout), naming the missing ranks.
[[nodiscard]] MPI_Comm duplicate(MPI_Comm comm, std::chrono::milliseconds timeout);

/// Keeps what a request that is given up may still read or write, until the process ends: MPI cannot cancel
/// most of them.
void leave_to_mpi(std::shared_ptr<void> memory);
void leave_to_mpi(std::vector<std::byte> bytes);

}  // namespace tutti::mpi
