// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/measure/results.hpp"
#include "perf/options/options.hpp"
#include "perf/peers/peer.hpp"
#include "perf/session/session.hpp"

namespace tutti::perf {

class TablePrinter;

/// Measures everything that `options` ask for, appends it to `results`, and prints it. `peer` may be
/// nullptr. Cases that cannot be carried, or for which there is no memory, are left out on all ranks.
/// After a failure or Interrupted, `results` has what was finished.
void run_measurements(const Options& options, Session& session, Peer* peer, Results& results,
                      TablePrinter& printer);

}  // namespace tutti::perf
