// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/line.hpp"
#include "collectives/bootstrap/tcp/sockets.hpp"
#include "tutti/tcp.hpp"

#include <chrono>
#include <vector>

namespace tutti::tcp {

/// Waits on rank 0 until all other ranks have come, and returns a line to each, by rank, and a closed one in
/// place of its own. A rank whose connection ends before all have come may come again until then. Throws as
/// the constructor of `Exchange`, and tells all who have come.
[[nodiscard]] std::vector<Line> meet_all(const Rendezvous& rendezvous, const std::vector<Address>& addresses,
                                         std::chrono::milliseconds timeout, const Exchange::Watch& watch);

}  // namespace tutti::tcp
