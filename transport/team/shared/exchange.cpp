// SPDX-License-Identifier: Apache-2.0
#include "tutti/exchange.hpp"

namespace tutti {

Network::~Network() = default;

Exchange::~Exchange() = default;

void Exchange::limit_waits(std::chrono::milliseconds /*timeout*/) {}

std::unique_ptr<Network> Exchange::network() {
  return nullptr;
}

}  // namespace tutti
