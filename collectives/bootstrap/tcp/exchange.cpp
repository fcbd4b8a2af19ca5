// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/own_device.hpp"
#include "collectives/bootstrap/tcp/star.hpp"
#include "tutti/tcp.hpp"

#include <utility>

namespace tutti::tcp {

Exchange::Exchange(const Rendezvous& rendezvous, Watch watch)
    : star_(std::make_unique<Star>(rendezvous, std::move(watch))) {}

Exchange::~Exchange() = default;

int Exchange::rank() const {
  return star_->rank();
}

int Exchange::size() const {
  return star_->size();
}

void Exchange::all_gather(std::span<const std::byte> mine, std::span<std::byte> all) {
  star_->all_gather(mine, all);
}

void Exchange::limit_waits(std::chrono::milliseconds timeout) {
  star_->limit_waits(timeout);
}

std::unique_ptr<tutti::Network> Exchange::network() {
  return star_->network(*this);
}

void Exchange::set_timeout(std::chrono::milliseconds timeout) {
  star_->set_timeout(timeout);
}

Communicator make_communicator(const Rendezvous& rendezvous, const CommunicatorOptions& options) {
  Exchange exchange(rendezvous);
  return Communicator(exchange, with_own_device(options, rendezvous.local_rank));
}

}  // namespace tutti::tcp
