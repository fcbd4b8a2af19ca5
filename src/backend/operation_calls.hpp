// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "backend/operations.hpp"
#include "backend/team_links.hpp"
#include "backend/team_round.hpp"

namespace tutti::backend {

/// The work that streams do (what each is told: `operations.hpp`, `team_round.hpp`, `team_links.hpp`).
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
  /// A member's part in a round of a team, whose other members' parts may be queued by other processes. The
  /// parts of one member come in order. Once its abort word is set it waits for nothing and leaves its
  /// outputs unspecified; on virtual devices that is a failure of enqueued work, whose code is the reason's.
  virtual void team_round(StreamRef stream, const TeamRound& task) = 0;
  /// What a member of a team sends to others and receives from them, each for itself; it is done when all of
  /// that is. Likewise otherwise.
  virtual void team_links(StreamRef stream, const TeamLinks& task) = 0;

  /// From now on, calls that enqueue an operation, unless it is captured or comes from a stream's own work,
  /// return only when it is done, and throw what has failed then. Waits, events and signals are queued as
  /// ever, so there are no signals that several streams could be ordered by: `signal_support` is `none`.
  virtual void block_launches() = 0;
  [[nodiscard]] virtual bool launches_block() const noexcept = 0;
  /// An operation that somebody else has enqueued is treated likewise. Nothing unless launches block.
  virtual void end_launch(StreamRef stream) = 0;

 protected:
  OperationCalls() = default;
  ~OperationCalls() = default;
};

}  // namespace tutti::backend
