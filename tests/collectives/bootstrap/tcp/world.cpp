// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/world.hpp"

#include "tutti/device.hpp"
#include "tutti/shared_folder.hpp"
#include "tutti/tcp.hpp"

#include <cstddef>
#include <cstdlib>
#include <span>
#include <vector>

namespace tutti::test {
namespace {

/// Lets several exchanges of the tests share one meeting.
class Shared final : public Exchange {
 public:
  explicit Shared(Exchange& exchange) : exchange_(exchange) {}
  [[nodiscard]] int rank() const override { return exchange_.rank(); }
  [[nodiscard]] int size() const override { return exchange_.size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    exchange_.all_gather(mine, all);
  }
  void limit_waits(std::chrono::milliseconds timeout) override { exchange_.limit_waits(timeout); }
  [[nodiscard]] std::unique_ptr<Network> network() override { return exchange_.network(); }

 private:
  Exchange& exchange_;
};

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
  return std::make_unique<Shared>(*world);
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
