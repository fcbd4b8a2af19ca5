// SPDX-License-Identifier: Apache-2.0
#include "transport/steps/stager.hpp"

#include "base/rounding.hpp"
#include "transport/plan/tuning.hpp"

#include <algorithm>

namespace tutti::transport {
namespace {

constexpr std::uint64_t slot_alignment = 16;  // keeps kernels on their wide path

}  // namespace

std::uint64_t staging_chunk_bytes(std::uint64_t payload, std::uint64_t staging_bytes) {
  const std::uint64_t bound =
      std::clamp(staging_bytes / staging_slots, smallest_staging_chunk, largest_staging_chunk);
  // A payload of a few chunks is cut finer, or nothing would overlap.
  return round_up(std::clamp(payload / (2 * staging_slots), std::min(smallest_staging_chunk, bound), bound),
                  slot_alignment);
}

StagingRing::StagingRing(PlanBuilder& builder, std::uint64_t chunk_bytes)
    : builder_(builder),
      chunk_bytes_(chunk_bytes),
      buffer_(builder.pinned_temporary(chunk_bytes * staging_slots)),
      drained_(staging_slots) {}

Place StagingRing::acquire(LaneId producer) {
  const std::uint64_t slot = next_++ % staging_slots;
  for (const MarkId mark : drained_[slot]) builder_.wait(producer, mark);
  drained_[slot].clear();
  return {buffer_, slot * chunk_bytes_};
}

void StagingRing::drained_by(LaneId consumer) {
  drained_[(next_ - 1) % staging_slots].push_back(builder_.record(consumer));
}

Stager::Stager(PlanBuilder& builder, std::uint64_t payload)
    : builder_(builder), chunk_bytes_(staging_chunk_bytes(payload, builder.problem().staging_bytes)) {}

void Stager::add(const Flow& flow, std::span<const Place> targets) {
  const Problem& problem = builder_.problem();
  const auto same_route = [&](const Staged& staged) {
    return problem.lane_of(staged.piece.move.source) == problem.lane_of(flow.source) &&
           lanes_of(staged.targets) == lanes_of(targets);
  };
  if (!chunk_.empty() && !same_route(chunk_.back())) emit_chunk();

  std::uint64_t done = 0;
  while (done < flow.bytes()) {
    if (chunk_fill_ + slot_alignment > chunk_bytes_) emit_chunk();
    const std::uint64_t end = std::min(flow.bytes(), done + chunk_bytes_ - chunk_fill_);
    for_each_piece(flow, done, end, [&](const Piece& piece) {
      // Rounding up may leave no room for the last of several pieces; it opens the next chunk.
      if (chunk_fill_ + piece.bytes() > chunk_bytes_) emit_chunk();
      chunk_.push_back({piece, {targets.begin(), targets.end()}, chunk_fill_});
      chunk_fill_ = round_up(chunk_fill_ + piece.bytes(), slot_alignment);
    });
    done = end;
  }
}

std::vector<LaneId> Stager::lanes_of(std::span<const Place> targets) const {
  std::vector<LaneId> lanes;
  for (const Place& target : targets) lanes.push_back(builder_.problem().lane_of(target));
  return lanes;
}

void Stager::emit_chunk() {
  if (chunk_.empty()) return;
  const LaneId producer = builder_.problem().lane_of(chunk_.front().piece.move.source);
  StagingRing& ring = rings_.try_emplace(producer, builder_, chunk_bytes_).first->second;
  const Place slot = ring.acquire(producer);
  // One rectangle is copied by a copy engine, a list by a kernel, if kernels are allowed.
  const bool by_copies = chunk_.size() == 1 || builder_.problem().most_multiprocessors == 0;

  const auto staged_at = [&](const Staged& staged) {
    return Place{slot.buffer, slot.offset + staged.slot_offset};
  };
  for (const Staged& staged : chunk_) {
    Move down = staged.piece.move;
    down.target_pitch = down.row_bytes;  // rows lie without gaps in the slot
    const Place target = staged_at(staged);
    if (by_copies) {
      builder_.copy(
          {producer, target, down.source, down.row_bytes, down.rows, down.target_pitch, down.source_pitch});
    } else {
      builder_.move(producer, down, std::span(&target, 1));
    }
  }
  builder_.launch_moves(producer);
  const MarkId filled = builder_.record(producer);

  const std::vector<LaneId> consumers = lanes_of(chunk_.front().targets);
  for (std::size_t i = 0; i < consumers.size(); ++i) {
    builder_.wait(consumers[i], filled);
    for (const Staged& staged : chunk_) {
      Move up = staged.piece.move;
      up.source = staged_at(staged);
      up.source_pitch = up.row_bytes;
      const Place target{staged.targets[i].buffer, staged.targets[i].offset + staged.piece.target_offset};
      if (by_copies) {
        builder_.copy(
            {consumers[i], target, up.source, up.row_bytes, up.rows, up.target_pitch, up.source_pitch});
      } else {
        builder_.move(consumers[i], up, std::span(&target, 1));
      }
    }
    builder_.launch_moves(consumers[i]);
    ring.drained_by(consumers[i]);
  }
  chunk_.clear();
  chunk_fill_ = 0;
}

}  // namespace tutti::transport
