// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/mesh.hpp"
#include "tutti/exchange.hpp"

#include <memory>

namespace tutti::tcp {

/// Makes a mesh and a network of all its ranks. Collective.
[[nodiscard]] std::unique_ptr<tutti::Network> make_network(tutti::Exchange& exchange,
                                                           const Mesh::Settings& settings);

}  // namespace tutti::tcp
