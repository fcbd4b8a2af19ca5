// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/measure/results.hpp"
#include "perf/options/options.hpp"
#include "perf/peers/peer.hpp"
#include "perf/session/session.hpp"

#include <cstddef>
#include <functional>
#include <string_view>

namespace tutti::perf {

/// The position of a case among those that a cycle measures.
struct Position {
  std::size_t number = 1;  ///< from 1
  std::size_t of = 1;
};

/// Is notified of the driver's progress.
class Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  virtual ~Listener() = default;

  /// Announces that everything is measured once more; the first cycle is 1.
  virtual void start_cycle(int cycle) = 0;
  /// Announces that the rows that follow belong to this operation.
  virtual void start_operation(const Operation& operation) = 0;
  /// Announces a measurement, which may take a while.
  virtual void start_row(const Operation& operation, const Case& what, const Position& position) = 0;
  virtual void finish_row(const Operation& operation, const Row& row) = 0;
  virtual void skip_row(const Skipped& skipped) = 0;
  virtual void finish_operation(const Operation& operation) = 0;
};

/// Measures everything that `options` ask for, appends it to `results`, and notifies `listener`. `peer` may
/// be nullptr. Cases that cannot be carried, or for which there is no memory, are left out on all ranks.
/// After a failure or Interrupted, `results` has what was finished.
void run_measurements(const Options& options, Session& session, Peer* peer, Results& results,
                      Listener& listener);

}  // namespace tutti::perf
