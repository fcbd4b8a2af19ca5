// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/mesh.hpp"
#include "tutti/exchange.hpp"

#include <memory>
#include <string>

namespace tutti::tcp {

/// Makes a mesh and a network of all its ranks. Collective. A rank's address is `address`, a name or number;
/// else TUTTI_ADDRESS; else that of `settings`; and if that has length 0, the one towards rank 0.
[[nodiscard]] std::unique_ptr<tutti::Network> make_network(tutti::Exchange& exchange,
                                                           Connections::Settings settings,
                                                           const std::string& address);

}  // namespace tutti::tcp
