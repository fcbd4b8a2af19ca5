// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/ranks.hpp"
#include "tutti/exchange.hpp"

#include <chrono>

namespace tutti::test {

/// Calls `body` on `threads` threads of this process at once, each with an exchange among the threads of all
/// processes of `processes`: thread t of process p is rank p * threads + t. Returns when all are done; what
/// they throw is a failure of the test.
void run_threads(Exchange& processes, int threads, const Ranks::Body& body);

/// Runs `body` on `processes` times `threads` ranks, the latter in each process, and expects all of them to
/// succeed, within `limit` as in `Ranks::wait`.
void expect_threads_right(int processes, int threads, const Ranks::Body& body,
                          std::chrono::seconds limit = std::chrono::seconds(120));

}  // namespace tutti::test
