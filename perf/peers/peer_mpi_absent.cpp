// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/peer.hpp"
#include "perf/processes/failure.hpp"

namespace tutti::perf {

std::unique_ptr<Peer> make_mpi_peer(const Session&) {
  throw UsageError("--peer mpi: this tutti-perf was built without MPI");
}

}  // namespace tutti::perf
