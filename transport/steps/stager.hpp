// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/pieces.hpp"
#include "transport/plan/plan_builder.hpp"

#include <cstdint>
#include <map>
#include <span>
#include <vector>

namespace tutti::transport {

/// A ring of chunks of pinned memory that one producer fills and others drain, overlapped: while chunk c is
/// drained, the producer fills chunk c + 1. A slot is refilled only after all its consumers have drained it.
class StagingRing {
 public:
  StagingRing(PlanBuilder& builder, std::uint64_t chunk_bytes);

  /// Returns the next slot's place. `producer` waits for the lanes that drained it last.
  [[nodiscard]] Place acquire(LaneId producer);
  /// Notes that the work queued on `consumer` so far drains the slot acquired last.
  void drained_by(LaneId consumer);

 private:
  PlanBuilder& builder_;
  std::uint64_t chunk_bytes_;
  BufferId buffer_;
  std::uint64_t next_ = 0;
  std::vector<std::vector<MarkId>> drained_;  ///< by slot
};

/// Returns the bytes per chunk for a payload: small enough to overlap, within the bound on staging memory.
[[nodiscard]] std::uint64_t staging_chunk_bytes(std::uint64_t payload, std::uint64_t staging_bytes);

/// Carries flows between devices that cannot reach each other: down into pinned memory once, up from it on
/// every target.
class Stager {
 public:
  Stager(PlanBuilder& builder, std::uint64_t payload);

  /// Queues `flow` for the given targets (which need not be the flow's own), each on its home lane.
  void add(const Flow& flow, std::span<const Place> targets);
  /// Emits what is still collected. Nothing may be added afterwards.
  void finish() { emit_chunk(); }

 private:
  struct Staged {
    Piece piece;
    std::vector<Place> targets;  ///< of the flow, not moved by the piece's offset
    std::uint64_t slot_offset;
  };

  [[nodiscard]] std::vector<LaneId> lanes_of(std::span<const Place> targets) const;
  void emit_chunk();

  PlanBuilder& builder_;
  std::uint64_t chunk_bytes_;
  std::map<LaneId, StagingRing> rings_;  ///< by source lane
  std::vector<Staged> chunk_;
  std::uint64_t chunk_fill_ = 0;
};

}  // namespace tutti::transport
