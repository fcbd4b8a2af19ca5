// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/measure/buffer_sets.hpp"
#include "perf/measure/results.hpp"
#include "perf/options/options.hpp"
#include "perf/peers/peer.hpp"
#include "perf/session/session.hpp"

#include <cstddef>
#include <functional>
#include <vector>

namespace tutti::perf {

/// Measures and checks one placement of a case, on all ranks alike, in `Session::together`.
class Measurer {
 public:
  Measurer(const Options& options, const Session& session) : options_(options), session_(session) {}

  /// As the options say. Notes in `row` how it has travelled.
  [[nodiscard]] Measurement tutti(const Operation& operation, const Case& what, Placement placement,
                                  BufferSets& buffers, Row& row) const;
  /// In a mode of the peer: on tutti's buffers, or on equal ones where it wants them.
  [[nodiscard]] Measurement peer(Peer& peer, std::size_t mode, const Operation& operation, const Case& what,
                                 Placement placement, const BufferSets& buffers) const;
  /// Whether persistent calls are launched several at a time, as one graph, tutti's and the peer's alike;
  /// else each by itself.
  [[nodiscard]] bool is_replayed(const Operation& operation) const;

 private:
  void note_last_plan(const Operation& operation, Row& row) const;
  /// Calls of a communicator, each made once: what is set up in a first call cannot be captured.
  void make_first_calls(const Operation& operation, const Case& what, const BufferSets& buffers) const;
  /// Each call bound, and launched many times.
  [[nodiscard]] Measurement bound(const Operation& operation, const Case& what, const BufferSets& buffers,
                                  Row& row) const;
  /// Calls of a communicator: replays of a graph of several.
  [[nodiscard]] Measurement replayed(const Operation& operation, const Case& what, const BufferSets& buffers,
                                     Row& row) const;
  /// The last results of every set are checked as the timed calls left them, and again made anew in memory
  /// that was poisoned: the allocator gives out what it got back, and so what an earlier call had put there.
  [[nodiscard]] Measurement returned(const Operation& operation, const Case& what, BufferSets& buffers,
                                     Row& row) const;
  [[nodiscard]] Measurement peer(Peer& peer, std::size_t mode, const Operation& operation,
                                 const BufferSets& buffers) const;

  [[nodiscard]] Launcher launcher(std::function<void(std::size_t)> launch, const BufferSets& buffers) const;
  /// Launches as many calls as the options say.
  [[nodiscard]] Launcher launcher_of_calls(std::function<void(std::size_t)> call,
                                           const BufferSets& buffers) const;
  [[nodiscard]] Timing time(const Launcher& how) const;
  /// The timed launches themselves produce what is checked; only where each of them changes its own inputs,
  /// the call is made once more on fresh ones.
  [[nodiscard]] Measurement measure_and_check(const Launcher& how, const BufferSets& buffers) const;
  void launch_each_once(const Launcher& how) const;

  const Options& options_;
  const Session& session_;
};

}  // namespace tutti::perf
