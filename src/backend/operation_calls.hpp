// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "backend/operations.hpp"
#include "backend/team_links.hpp"
#include "backend/team_round.hpp"

namespace tutti::backend {

/// Queues the work that streams do (descriptors: `operations.hpp`, `team_round.hpp`, `team_links.hpp`).
///
/// `copy` goes between any two memories the backend knows (copy engines on GPUs); a copy between two devices
/// needs no peer access, but is staged by the system without it. With pageable memory it may block.
///
/// Operations are these calls, host functions, and launches of graphs.
class OperationCalls {
 public:
  OperationCalls(const OperationCalls&) = delete;
  OperationCalls& operator=(const OperationCalls&) = delete;

  virtual void copy(StreamRef stream, const Copy2D& copy) = 0;
  virtual void fan_out(StreamRef stream, const FanOut& task) = 0;
  virtual void ordered_reduction(StreamRef stream, const OrderedReduction& task) = 0;
  virtual void convert(StreamRef stream, const Convert& task) = 0;
  virtual void fill(StreamRef stream, const Fill& task) = 0;
  virtual void random_fill(StreamRef stream, const RandomFill& task) = 0;
  /// Queues a member's part in a round of a team, whose other members' parts may be queued by other
  /// processes. The parts of one member come in order. Once its abort word is set it waits for nothing and
  /// leaves its outputs unspecified; on virtual devices that is a failure of enqueued work, with the reason's
  /// code.
  virtual void team_round(StreamRef stream, const TeamRound& task) = 0;
  /// Queues the messages that a member of a team sends to others and receives from them, independently of
  /// each other; it is done when all of them are. Otherwise it is like `team_round`.
  virtual void team_links(StreamRef stream, const TeamLinks& task) = 0;

  /// Makes calls that enqueue an operation from now on return only when it is done, and throw its failure,
  /// unless it is captured or comes from a stream's own work. Waits, events and signals are queued as before,
  /// so several streams could not be ordered by signals: `signal_support` is `none`.
  virtual void block_launches() = 0;
  [[nodiscard]] virtual bool launches_block() const noexcept = 0;
  /// Treats an operation that another caller has enqueued in the same way. Does nothing unless launches
  /// block.
  virtual void end_launch(StreamRef stream) = 0;

 protected:
  OperationCalls() = default;
  ~OperationCalls() = default;
};

}  // namespace tutti::backend
