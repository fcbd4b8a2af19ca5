// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/exchange.hpp"

#include <chrono>
#include <memory>

#include <mpi.h>

namespace tutti::mpi {

/// Messages among the processes of `exchange`, which are those of `comm`, on a duplicate of it. Collective.
/// Throws Error(timeout) on all ranks. If some of them may not call MPI from any thread at any time, the
/// messages go over TCP beside MPI (`tcp::make_network`).
///
/// Messages are sent synchronously, so that it is known which have been received. When MPI is finalised
/// first, everything that is asked of the network afterwards throws Error(transport_failure).
[[nodiscard]] std::unique_ptr<tutti::Network> make_network(MPI_Comm comm, tutti::Exchange& exchange,
                                                           std::chrono::milliseconds timeout);

}  // namespace tutti::mpi
