#include "transport/lowering.hpp"
#include "transport/pieces.hpp"
#include "transport/stager.hpp"
#include "transport/tuning.hpp"

#include <algorithm>
#include <optional>
#include <set>

namespace tutti::transport {
namespace {

class ReductionLowering {
 public:
  ReductionLowering(PlanBuilder& builder, const Reach& reach)
      : builder_(builder),
        problem_(builder.problem()),
        reach_(reach),
        root_(problem_.lane_of(problem_.reductions.front().output)) {}

  std::string run() {
    if (has_far_inputs()) {
      sum_in_chunks();
      return "pinned chunks + root sum";
    }
    if (problem_.bytes() > tuning_of(problem_.mode).one_kernel_limit && can_split()) {
      sum_split();
      return "split sums";
    }
    for (const Reduction& reduction : problem_.reductions) {
      builder_.sum(root_, reduction.dtype, reduction.count, inputs_of(reduction), reduction.output);
    }
    builder_.launch_sums(root_);
    return "root sum";
  }

 private:
  [[nodiscard]] std::span<const Place> inputs_of(const Reduction& reduction) const {
    return places_of(problem_, reduction.inputs);
  }
  [[nodiscard]] bool is_far(Place input) const {
    return !reach_(builder_.device_of(root_), problem_.device_of(input));
  }
  [[nodiscard]] bool has_far_inputs() const {
    return std::ranges::any_of(problem_.reductions, [&](const Reduction& reduction) {
      return std::ranges::any_of(inputs_of(reduction), [&](Place input) { return is_far(input); });
    });
  }

  /// At least three devices take part, and each reaches all others.
  [[nodiscard]] bool can_split() {
    std::set<int> devices{builder_.device_of(root_)};
    split_lanes_ = {root_};
    for (const Reduction& reduction : problem_.reductions) {
      for (const Place& input : inputs_of(reduction)) {
        if (devices.insert(problem_.device_of(input)).second) split_lanes_.push_back(problem_.lane_of(input));
      }
    }
    const auto reaches_all = [&](int device) {
      return std::ranges::all_of(devices, [&](int peer) { return reach_(device, peer); });
    };
    return devices.size() >= 3 && std::ranges::all_of(devices, reaches_all);
  }

  /// Adds elements [begin, end) of a reduction to the kernel of `lane`.
  void add_part(LaneId lane, const Reduction& reduction, std::uint64_t begin, std::uint64_t end) {
    const std::uint64_t offset = begin * size_of(reduction.dtype);
    const Place output{reduction.output.buffer, reduction.output.offset + offset};
    builder_.sum(lane, reduction.dtype, end - begin, shifted(inputs_of(reduction), offset), output);
  }

  void sum_split() {
    std::vector<std::uint64_t> sizes;
    for (const Reduction& reduction : problem_.reductions) sizes.push_back(reduction.bytes());
    const auto parts = split_evenly(sizes, split_lanes_.size(), split_alignment);
    for (std::size_t part = 0; part < parts.size(); ++part) {
      for (const Slice& slice : parts[part]) {
        const Reduction& reduction = problem_.reductions[slice.item];
        const std::uint64_t width = size_of(reduction.dtype);
        add_part(split_lanes_[part], reduction, slice.begin / width, slice.end / width);
      }
      builder_.launch_sums(split_lanes_[part]);
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

  void sum_in_chunks() {
    constexpr std::uint64_t slot_alignment = 16;
    const std::uint64_t chunk_bytes = staging_chunk_bytes(problem_.bytes(), problem_.staging_bytes);
    std::vector<ChunkPart> chunk;
    std::uint64_t fill = 0;
    for (const Reduction& reduction : problem_.reductions) {
      const std::uint64_t width = size_of(reduction.dtype);
      std::uint64_t done = 0;
      while (done < reduction.count) {
        if (fill + slot_alignment > chunk_bytes) {
          emit_chunk(chunk, chunk_bytes);
          chunk.clear();
          fill = 0;
        }
        const std::uint64_t count = std::min(reduction.count - done, (chunk_bytes - fill) / width);
        chunk.push_back({&reduction, done, done + count, fill});
        fill += (count * width + slot_alignment - 1) / slot_alignment * slot_alignment;
        done += count;
      }
    }
    emit_chunk(chunk, chunk_bytes);
  }

  /// Brings every far input's part of the chunk into pinned memory, then sums there and in the near inputs at
  /// once.
  void emit_chunk(const std::vector<ChunkPart>& chunk, std::uint64_t chunk_bytes) {
    const std::size_t width = inputs_of(*chunk.front().reduction).size();
    std::vector<std::optional<Place>> slots(width);  // by input position; near inputs have none
    for (std::size_t position = 0; position < width; ++position) {
      const Place first = inputs_of(*chunk.front().reduction)[position];
      if (!is_far(first)) continue;
      while (rings_.size() <= position) rings_.emplace_back();
      auto& ring = rings_[position];
      if (!ring) ring.emplace(builder_, chunk_bytes);
      const LaneId lane = problem_.lane_of(first);
      const Place slot = ring->acquire(lane);
      slots[position] = slot;
      bring_down(chunk, position, lane, slot);
      builder_.order(lane, root_);
    }
    for (const ChunkPart& part : chunk) {
      std::vector<Place> inputs = shifted(inputs_of(*part.reduction), part.byte_offset());
      for (std::size_t position = 0; position < width; ++position) {
        if (slots[position])
          inputs[position] = {slots[position]->buffer, slots[position]->offset + part.slot_offset};
      }
      const Place& output = part.reduction->output;
      builder_.sum(root_, part.reduction->dtype, part.end - part.begin, inputs,
                   {output.buffer, output.offset + part.byte_offset()});
    }
    builder_.launch_sums(root_);
    for (std::size_t position = 0; position < width; ++position) {
      if (slots[position]) rings_[position]->drained_by(root_);
    }
  }

  void bring_down(const std::vector<ChunkPart>& chunk, std::size_t position, LaneId lane, Place slot) {
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
  LaneId root_;
  std::vector<LaneId> split_lanes_;
  std::vector<std::optional<StagingRing>> rings_;  ///< by input position
};

}  // namespace

std::string lower_reductions(PlanBuilder& builder, const Reach& reach) {
  return ReductionLowering(builder, reach).run();
}

}  // namespace tutti::transport
