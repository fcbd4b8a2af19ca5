// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator.hpp"
#include "tutti/exchange.hpp"

#include <memory>
#include <string>

/// The processes that a launcher has started: what tests of them need, for each way in which they meet.
namespace tutti::test {

/// Meets the others. Called once, by `main`, before anything else.
void enter_world(int& argc, char**& argv);
void leave_world();

[[nodiscard]] int rank_in_world();
[[nodiscard]] int size_of_world();
/// Returns this process's number among those of its host.
[[nodiscard]] int local_rank_in_world();
/// Returns an exchange among all, which all make together.
[[nodiscard]] std::unique_ptr<Exchange> exchange_of_world();
/// Returns the name of the networks of these exchanges.
[[nodiscard]] std::string network_of_world();
/// Makes a communicator as programs do that are started in this way.
[[nodiscard]] Communicator communicator_of_world(const CommunicatorOptions& options = {});
/// Waits for all.
void world_barrier();

}  // namespace tutti::test
