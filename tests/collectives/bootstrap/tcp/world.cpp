// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/world.hpp"

#include "support/forwarding_exchange.hpp"
#include "tutti/device.hpp"
#include "tutti/shared_folder.hpp"
#include "tutti/tcp.hpp"

#include <cstddef>
#include <cstdlib>
#include <span>
#include <vector>

namespace tutti::test {
namespace {

std::unique_ptr<Exchange> world;

/// Whether the ranks meet in a shared folder; otherwise over TCP.
bool is_in_folder() {
  return std::getenv("TUTTI_FOLDER") != nullptr;
}

}  // namespace

void enter_world(int& /*argc*/, char**& /*argv*/) {
  if (is_in_folder()) {
    world = std::make_unique<shared_folder::Exchange>(shared_folder::rendezvous());
  } else {
    world = std::make_unique<tcp::Exchange>(tcp::rendezvous());
  }
}

void leave_world() {
  world.reset();
}

int rank_in_world() {
  return world->rank();
}

int size_of_world() {
  return world->size();
}

int local_rank_in_world() {
  return tcp::rendezvous().local_rank;
}

std::unique_ptr<Exchange> exchange_of_world() {
  return std::make_unique<ForwardingExchange>(*world);
}

std::string network_of_world() {
  return is_in_folder() ? "a shared folder" : "TCP";
}

Communicator communicator_of_world(const CommunicatorOptions& options) {
  CommunicatorOptions chosen = options;
  if (chosen.devices.empty()) chosen.devices.emplace_back(local_rank_in_world() % device_count());
  return Communicator(*world, chosen);
}

void world_barrier() {
  const std::byte mine{};
  std::vector<std::byte> all(static_cast<std::size_t>(size_of_world()));
  world->all_gather({&mine, 1}, all);
}

}  // namespace tutti::test
