// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/measure/results.hpp"
#include "perf/operations/operation.hpp"
#include "perf/options/options.hpp"
#include "perf/peers/peer.hpp"
#include "perf/session/session.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

namespace tutti::perf {

/// Several sets of buffers of a case under one placement.
class BufferSets {
 public:
  /// Allocates the buffers, and waits until they can be used. Throws Error(out_of_memory).
  BufferSets(const Operation& operation, const Case& what, Placement placement, int count,
             const Session& session);

  [[nodiscard]] bool of_communicator() const noexcept { return of_communicator_; }
  [[nodiscard]] const std::vector<Call>& calls() const noexcept { return calls_; }
  [[nodiscard]] std::vector<Call>& calls() noexcept { return calls_; }
  [[nodiscard]] const Call& call(std::size_t index) const noexcept { return calls_[index % calls_.size()]; }

  /// Writes the inputs of all sets, and waits.
  void fill_all(const Session& session) const;
  /// Makes all outputs wrong, and waits.
  void poison_all(const Session& session) const;
  /// Returns true if calls have outputs, on any process.
  [[nodiscard]] bool have_outputs() const noexcept { return have_outputs_; }
  /// Returns the number of wrong elements in this process's outputs.
  [[nodiscard]] std::uint64_t count_wrong_in_all() const;

 private:
  void copy_first_to_others(std::vector<Buffer> Call::*buffers, const Session& session) const;

  bool of_communicator_;
  bool have_outputs_;
  std::vector<Call> calls_;
};

/// Measures and checks one placement of a case, on all ranks alike, in `Session::together`.
class Measurer {
 public:
  Measurer(const Options& options, const Session& session) : options_(options), session_(session) {}

  /// Measures tutti as the options say. Stores the transport and algorithm in `row`.
  [[nodiscard]] Measurement tutti(const Operation& operation, const Case& what, Placement placement,
                                  BufferSets& buffers, Row& row) const;
  /// Measures a mode of the peer, on tutti's buffers or on equal ones in memory of the peer.
  [[nodiscard]] Measurement peer(Peer& peer, std::size_t mode, const Operation& operation, const Case& what,
                                 Placement placement, const BufferSets& buffers) const;
  /// Returns true if persistent calls of tutti and of the peer are launched several at a time, as one graph;
  /// otherwise each call is launched by itself.
  [[nodiscard]] bool is_replayed(const Operation& operation) const;

 private:
  using Enqueue = std::function<void(const Call&)>;

  void note_last_plan(const Operation& operation, Row& row) const;
  /// Makes each call of a communicator once, because the set-up in a first call cannot be captured.
  void make_first_calls(const Operation& operation, const Case& what, const BufferSets& buffers) const;
  /// Binds each call, and measures many launches of it.
  [[nodiscard]] Measurement bound(const Operation& operation, const Case& what, const BufferSets& buffers,
                                  Row& row) const;
  /// Measures replays of graphs of several calls of a communicator.
  [[nodiscard]] Measurement replayed(const Operation& operation, const Case& what, const BufferSets& buffers,
                                     Row& row) const;
  /// Measures calls that return new tensors. The last results of every set are checked as the timed calls
  /// left them. They are then made again in poisoned memory, because the allocator reuses memory, which may
  /// still have the results of an earlier call.
  [[nodiscard]] Measurement returned(const Operation& operation, const Case& what, BufferSets& buffers,
                                     Row& row) const;
  [[nodiscard]] Measurement peer(Peer& peer, std::size_t mode, const Operation& operation,
                                 const BufferSets& buffers) const;

  [[nodiscard]] Launcher launcher(std::function<void(std::size_t)> launch, const BufferSets& buffers) const;
  /// Returns a launcher that makes as many calls in each launch as the options say.
  [[nodiscard]] Launcher launcher_of_calls(std::function<void(std::size_t)> call,
                                           const BufferSets& buffers) const;
  /// Returns a launcher of graphs of several calls: of one for each device, or of one for all if calls join
  /// their streams.
  [[nodiscard]] Launcher launcher_of_graphs(const Enqueue& enqueue, const BufferSets& buffers,
                                            bool joins_streams) const;
  [[nodiscard]] Timing time(const Launcher& how) const;
  /// Measures, and checks the results of the timed launches themselves. Only if each launch changes its own
  /// inputs, the call is made once more on fresh inputs.
  [[nodiscard]] Measurement measure_and_check(const Launcher& how, const BufferSets& buffers) const;
  void launch_each_once(const Launcher& how) const;

  const Options& options_;
  const Session& session_;
};

}  // namespace tutti::perf
