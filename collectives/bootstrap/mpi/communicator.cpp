// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/mpi/checks.hpp"
#include "collectives/bootstrap/own_device.hpp"
#include "os/descriptor.hpp"
#include "tutti/mpi.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace tutti::mpi {
namespace {

/// The identity of a host, whatever `TUTTI_HOST_ID` says, because only processes of one real host share
/// devices. Many containers may have the same name, so that the name alone is not enough.
struct Host {
  std::array<char, 64> boot{};
  std::array<char, MPI_MAX_PROCESSOR_NAME + 1> name{};
  friend bool operator==(const Host&, const Host&) = default;
};

Host this_host() {
  Host host;
  const std::string boot = first_line_of("/proc/sys/kernel/random/boot_id");
  boot.copy(host.boot.data(), host.boot.size() - 1);
  int length = 0;
  check(MPI_Get_processor_name(host.name.data(), &length), "MPI_Get_processor_name");
  std::fill(host.name.begin() + length, host.name.end(), '\0');
  return host;
}

int local_rank_in(Exchange& exchange) {
  const Host mine = this_host();
  std::vector<Host> hosts(static_cast<std::size_t>(exchange.size()));
  exchange.all_gather(std::as_bytes(std::span(&mine, 1)), std::as_writable_bytes(std::span(hosts)));
  return static_cast<int>(std::count(hosts.begin(), hosts.begin() + exchange.rank(), mine));
}

}  // namespace

int local_rank(MPI_Comm comm) {
  require_usable(comm, "tutti::mpi::local_rank");
  Exchange exchange(comm);
  return local_rank_in(exchange);
}

Communicator make_communicator(MPI_Comm comm, const CommunicatorOptions& options) {
  require_usable(comm, "tutti::mpi::make_communicator");
  // One that is no timeout is refused by the constructor, together with the others.
  using namespace std::chrono_literals;
  Exchange exchange(comm, options.timeout > 0ms ? options.timeout : 1min);
  // All ranks ask, also those that name their devices: it is collective.
  const int local = local_rank_in(exchange);
  return Communicator(exchange, with_own_device(options, local));
}

}  // namespace tutti::mpi
