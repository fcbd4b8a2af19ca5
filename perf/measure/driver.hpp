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

/// Which of the cases that a cycle measures.
struct Position {
  std::size_t number = 1;  ///< from 1
  std::size_t of = 1;
};

/// What the driver tells while it works.
class Listener {
 public:
  Listener() = default;
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;
  virtual ~Listener() = default;

  /// All is measured once more: the first time is 1.
  virtual void start_cycle(int cycle) = 0;
  /// The rows that follow belong to this operation.
  virtual void start_operation(const Operation& operation) = 0;
  /// About to measure; may take a while.
  virtual void start_row(const Operation& operation, const Case& what, const Position& position) = 0;
  virtual void finish_row(const Operation& operation, const Row& row) = 0;
  virtual void skip_row(const Skipped& skipped) = 0;
  virtual void finish_operation(const Operation& operation) = 0;
};

/// Measures everything `options` asks for and appends it to `results`, telling `listener` as it goes. `peer`
/// may be nullptr. What cannot be carried or has no memory is left out, on all ranks alike. On failure, and
/// on Interrupted, `results` has what was finished.
void run_measurements(const Options& options, Session& session, Peer* peer, Results& results,
                      Listener& listener);

}  // namespace tutti::perf
