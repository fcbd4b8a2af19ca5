// SPDX-License-Identifier: Apache-2.0
#include "base/rounding.hpp"
#include "transport/plan/pieces.hpp"
#include "transport/plan/shares.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/steps/lowering.hpp"
#include "transport/steps/stager.hpp"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti::transport {
namespace {

/// The reductions whose outputs lie on one lane, the root.
class ReductionLowering {
 public:
  ReductionLowering(PlanBuilder& builder, const Reach& reach, std::span<const Reduction> reductions)
      : builder_(builder),
        problem_(builder.problem()),
        reach_(reach),
        reductions_(reductions),
        root_(problem_.lane_of(problem_.output_of(reductions.front()))) {
    for (const Reduction& reduction : reductions_) bytes_ += reduction.bytes();
    if (has_far_inputs()) cut_into_chunks();
  }

  /// Returns the number of chunks in which inputs out of the root's reach come; 0 if there are none.
  [[nodiscard]] std::size_t chunk_count() const noexcept { return chunks_.size(); }
  /// Brings every far input's part of a chunk into pinned memory.
  void bring_down(std::size_t chunk);
  /// Then sums there, and in the near inputs at once.
  void sum(std::size_t chunk);

  /// All sums, of inputs within reach.
  std::string sum_directly() {
    if (bytes_ > one_kernel_limit(problem_.mode) && can_split()) {
      sum_split();
      return "split sums";
    }
    for (const Reduction& reduction : reductions_) {
      builder_.sum(root_, reduction.dtype, reduction.count, inputs_of(reduction),
                   problem_.output_of(reduction));
    }
    builder_.launch_sums(root_);
    return "root sum";
  }

 private:
  [[nodiscard]] std::span<const Place> inputs_of(const Reduction& reduction) const {
    return problem_.places_of(reduction.inputs);
  }
  [[nodiscard]] bool is_far(Place input) const {
    return !reach_(builder_.device_of(root_), problem_.device_of(input));
  }
  [[nodiscard]] bool has_far_inputs() const {
    return std::ranges::any_of(reductions_, [&](const Reduction& reduction) {
      return std::ranges::any_of(inputs_of(reduction), [&](Place input) { return is_far(input); });
    });
  }

  /// Two devices or more besides the root's give inputs, and all reach one another.
  [[nodiscard]] bool can_split() {
    std::set<int> devices{builder_.device_of(root_)};
    for (const Reduction& reduction : reductions_) {
      for (const Place& input : inputs_of(reduction)) {
        if (devices.insert(problem_.device_of(input)).second) split_lanes_.push_back(problem_.lane_of(input));
      }
    }
    const auto reaches_all = [&](int device) {
      return std::ranges::all_of(devices, [&](int peer) { return reach_(device, peer); });
    };
    return split_lanes_.size() >= 2 && std::ranges::all_of(devices, reaches_all);
  }

  /// Adds elements [begin, end) of a reduction to the kernel of `lane`.
  void add_part(LaneId lane, const Reduction& reduction, std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t offset = begin * size_of(reduction.dtype);
    Place output = problem_.output_of(reduction);
    output.offset += offset;
    builder_.sum(lane, reduction.dtype, end - begin, shifted(inputs_of(reduction), offset), output);
  }

  void sum_split() {
    std::vector<std::uint64_t> sizes;
    for (const Reduction& reduction : reductions_) sizes.push_back(reduction.bytes());
    for (const auto& [lane, slices] : share_out(sizes, split_lanes_)) {
      for (const Slice& slice : slices) {
        const Reduction& reduction = reductions_[slice.item];
        const std::uint64_t width = size_of(reduction.dtype);
        add_part(lane, reduction, slice.begin / width, slice.end / width);
      }
      builder_.launch_sums(lane);
    }
  }

  /// The elements of one chunk that belong to one reduction, and where they lie in every far input's slot.
  struct ChunkPart {
    const Reduction* reduction;
    std::uint64_t begin;
    std::uint64_t end;
    std::uint64_t slot_offset;

    [[nodiscard]] std::uint64_t bytes() const { return (end - begin) * size_of(reduction->dtype); }
    [[nodiscard]] std::uint64_t byte_offset() const { return begin * size_of(reduction->dtype); }
  };

  using Chunk = std::vector<ChunkPart>;

  /// Returns the most rings of pinned memory that the inputs of one device need.
  [[nodiscard]] std::uint64_t rings_per_device() const {
    std::uint64_t most = 1;
    for (const Reduction& reduction : reductions_) {
      std::map<int, std::uint64_t> far;
      for (const Place& input : inputs_of(reduction)) {
        if (is_far(input)) most = std::max(most, ++far[problem_.device_of(input)]);
      }
    }
    return most;
  }

  void cut_into_chunks() {
    constexpr std::uint64_t slot_alignment = 16;
    chunk_bytes_ = staging_chunk_bytes(bytes_, problem_.staging_bytes / rings_per_device());
    chunks_.emplace_back();
    std::uint64_t fill = 0;
    for (const Reduction& reduction : reductions_) {
      const std::uint64_t width = size_of(reduction.dtype);
      std::uint64_t done = 0;
      while (done < reduction.count) {
        if (fill + slot_alignment > chunk_bytes_) {
          chunks_.emplace_back();
          fill = 0;
        }
        const std::uint64_t count = std::min(reduction.count - done, (chunk_bytes_ - fill) / width);
        chunks_.back().push_back({&reduction, done, done + count, fill});
        fill += round_up(count * width, slot_alignment);
        done += count;
      }
    }
  }

  void bring_down(const Chunk& chunk, std::size_t position, LaneId lane, Place slot) {
    for (const ChunkPart& part : chunk) {
      const Place input = inputs_of(*part.reduction)[position];
      const Place source{input.buffer, input.offset + part.byte_offset()};
      const Place target{slot.buffer, slot.offset + part.slot_offset};
      if (chunk.size() == 1) {
        builder_.copy({.lane = lane, .target = target, .source = source, .row_bytes = part.bytes()});
      } else {
        builder_.move(lane, {.source = source, .row_bytes = part.bytes()}, std::span(&target, 1));
      }
    }
    builder_.launch_moves(lane);
  }

  PlanBuilder& builder_;
  const Problem& problem_;
  const Reach& reach_;
  std::span<const Reduction> reductions_;
  LaneId root_;
  std::uint64_t bytes_ = 0;
  std::uint64_t chunk_bytes_ = 0;
  std::vector<Chunk> chunks_;
  std::vector<LaneId> split_lanes_;
  std::vector<std::optional<StagingRing>> rings_;   ///< by input position
  std::vector<std::optional<Place>> slots_;         ///< by input position, of the chunk brought down last
  std::vector<std::pair<LaneId, MarkId>> arrived_;  ///< of that chunk
};

void ReductionLowering::bring_down(std::size_t chunk) {
  const Chunk& parts = chunks_[chunk];
  const std::span<const Place> inputs = inputs_of(*parts.front().reduction);
  rings_.resize(inputs.size());
  slots_.assign(inputs.size(), std::nullopt);
  for (std::size_t position = 0; position < inputs.size(); ++position) {
    if (!is_far(inputs[position])) continue;
    auto& ring = rings_[position];
    if (!ring) ring.emplace(builder_, chunk_bytes_);
    const LaneId lane = problem_.lane_of(inputs[position]);
    slots_[position] = ring->acquire(lane);
    bring_down(parts, position, lane, *slots_[position]);
    arrived_.push_back({lane, builder_.record(lane)});
  }
}

void ReductionLowering::sum(std::size_t chunk) {
  for (const auto& [lane, mark] : arrived_) {
    if (lane != root_) builder_.wait(root_, mark);
  }
  arrived_.clear();
  for (const ChunkPart& part : chunks_[chunk]) {
    std::vector<Place> inputs = shifted(inputs_of(*part.reduction), part.byte_offset());
    for (std::size_t position = 0; position < inputs.size(); ++position) {
      if (slots_[position]) {
        inputs[position] = {slots_[position]->buffer, slots_[position]->offset + part.slot_offset};
      }
    }
    const Place output = problem_.output_of(*part.reduction);
    builder_.sum(root_, part.reduction->dtype, part.end - part.begin, inputs,
                 {output.buffer, output.offset + part.byte_offset()});
  }
  builder_.launch_sums(root_);
  for (std::size_t position = 0; position < slots_.size(); ++position) {
    if (slots_[position]) rings_[position]->drained_by(root_);
  }
}

}  // namespace

std::string lower_reductions(PlanBuilder& builder, const Reach& reach) {
  const Problem& problem = builder.problem();
  const std::span<const Reduction> all(problem.reductions);
  std::vector<ReductionLowering> roots;
  for (std::size_t begin = 0, end = 0; begin < all.size(); begin = end) {
    const LaneId root = problem.lane_of(problem.output_of(all[begin]));
    while (end < all.size() && problem.lane_of(problem.output_of(all[end])) == root) ++end;
    roots.emplace_back(builder, reach, all.subspan(begin, end - begin));
  }
  std::set<std::string> words;
  std::size_t rounds = 0;
  for (ReductionLowering& root : roots) {
    rounds = std::max(rounds, root.chunk_count());
    words.insert(root.chunk_count() > 0 ? "pinned chunks + root sum" : root.sum_directly());
  }
  // Several roots go on together: what one lane brings down for others must not wait for its own sums.
  for (std::size_t chunk = 0; chunk < rounds; ++chunk) {
    for (ReductionLowering& root : roots) {
      if (chunk < root.chunk_count()) root.bring_down(chunk);
    }
    for (ReductionLowering& root : roots) {
      if (chunk < root.chunk_count()) root.sum(chunk);
    }
  }
  return fmt::format("{}", fmt::join(words, " + "));
}

}  // namespace tutti::transport
