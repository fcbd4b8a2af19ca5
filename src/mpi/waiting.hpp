#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <vector>

#include <mpi.h>

namespace tutti::mpi {

/// Waits without spinning, which would take the processor from ranks that share it. `call` is what started
/// the request.
[[nodiscard]] bool completes_within(MPI_Request& request, std::chrono::milliseconds timeout,
                                    const char* call);

/// A duplicate of `comm` on which failures are returned, not handled by its error handler. Collective. Throws
/// Error(timeout) if other ranks do not come.
[[nodiscard]] MPI_Comm duplicate(MPI_Comm comm, std::chrono::milliseconds timeout);

/// Keeps what a request that is given up may still read or write, until the process ends: MPI cannot cancel
/// most of them.
void leave_to_mpi(std::shared_ptr<void> memory);
void leave_to_mpi(std::vector<std::byte> bytes);

}  // namespace tutti::mpi
