#include "tutti/exchange.hpp"

namespace tutti {

Network::~Network() = default;

Exchange::~Exchange() = default;

std::unique_ptr<Network> Exchange::network() {
  return nullptr;
}

}  // namespace tutti
