// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <mpi.h>

namespace tutti::mpi {

/// Returns true if MPI can be called: it has been initialised and not been finalised.
[[nodiscard]] bool is_running() noexcept;

/// Throws Error(invalid_argument) unless this thread may call MPI and `comm` is an intra-communicator.
void require_usable(MPI_Comm comm, const char* function);

/// Throws Error(transport_failure) with MPI's text for `status`, unless it is MPI_SUCCESS.
void check(int status, const char* call);

}  // namespace tutti::mpi
