#include "mpi/checks.hpp"
#include "tutti/device.hpp"
#include "tutti/mpi.hpp"

#include <algorithm>

namespace tutti::mpi {

int local_rank(MPI_Comm comm) {
  require_usable(comm, "tutti::mpi::local_rank");
  MPI_Comm host = MPI_COMM_NULL;
  check(MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host), "MPI_Comm_split_type");
  int rank = 0;
  check(MPI_Comm_rank(host, &rank), "MPI_Comm_rank");
  check(MPI_Comm_free(&host), "MPI_Comm_free");
  return rank;
}

Communicator make_communicator(MPI_Comm comm, const CommunicatorOptions& options) {
  require_usable(comm, "tutti::mpi::make_communicator");
  Exchange exchange(comm, std::max(options.timeout, std::chrono::milliseconds(std::chrono::minutes(1))));
  // All ranks ask, also those that name their devices: it is collective.
  const int local = local_rank(comm);
  CommunicatorOptions chosen = options;
  if (chosen.devices.empty()) chosen.devices.emplace_back(local % device_count());
  return Communicator(exchange, chosen);
}

}  // namespace tutti::mpi
