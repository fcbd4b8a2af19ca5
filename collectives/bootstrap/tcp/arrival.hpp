// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/bootstrap/tcp/line.hpp"
#include "collectives/bootstrap/tcp/sockets.hpp"
#include "tutti/tcp.hpp"

#include <chrono>
#include <string>
#include <vector>

namespace tutti::tcp {

/// Goes to rank 0, as all other ranks do, waits until all have come, and returns the line to it. If rank 0
/// ends before that, waits for it to come again. Throws as the constructor of `Exchange`.
[[nodiscard]] Line meet_at_rank_0(const Rendezvous& rendezvous, const std::vector<Address>& addresses,
                                  std::chrono::milliseconds timeout, const Exchange::Watch& watch);

/// Receives the next frame of rank 0. Shortly before the wait is over it asks whom rank 0 itself is waiting
/// for, and keeps the answer in `news`. Half-way only if the wait is over; then rank 0 is told so.
[[nodiscard]] Progress receive_from_rank_0(Line& line, const Wait& wait, std::string& news);

}  // namespace tutti::tcp
