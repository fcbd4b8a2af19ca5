// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/round_stages.hpp"

#include "transport/plan/shares.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::transport::team {
namespace {

Place behind(Place place, std::uint64_t offset) noexcept {
  return {place.buffer, place.offset + offset};
}

class Sharing {
 public:
  Sharing(const Problem& problem, const RoundTuning& tuning) : problem_(problem), tuning_(tuning) {
    work_.outputs_are_apart = problem.outputs_are_apart;
    work_.exchanged_in_place = problem.exchanged_in_place;
    work_.may_swap = problem.may_swap;
    work_.homes = problem.homes;
    work_.places = problem.places;
    next_stage();
  }

  TeamWork as_it_stands() {
    stage().flows = problem_.flows;
    stage().reductions = problem_.reductions;
    return std::move(work_);
  }
  TeamWork sums_on_all();
  TeamWork relayed_sums();
  TeamWork relayed_broadcast();

 private:
  [[nodiscard]] std::size_t members() const noexcept { return problem_.lane_devices.size(); }
  [[nodiscard]] TeamWork::Stage& stage() { return work_.stages.back(); }
  /// Begins a stage: what is added from now on may use what was added before.
  void next_stage() { work_.stages.emplace_back(); }

  PlaceRange range(std::span<const Place> places) {
    const PlaceRange result{static_cast<std::uint32_t>(work_.places.size()),
                            static_cast<std::uint32_t>(places.size())};
    work_.places.insert(work_.places.end(), places.begin(), places.end());
    return result;
  }
  void sum(DType dtype, std::uint64_t count, std::span<const Place> inputs, std::span<const Place> outputs) {
    stage().reductions.push_back(
        {.dtype = dtype, .count = count, .inputs = range(inputs), .outputs = range(outputs)});
  }
  void sum(DType dtype, std::uint64_t count, std::span<const Place> inputs, Place output) {
    sum(dtype, count, inputs, {&output, 1});
  }
  /// Takes bytes of one input as a sum of it alone, which can be passed on by a relay.
  void take(Place input, std::uint64_t bytes, Place output) { sum(DType::uint8, bytes, {&input, 1}, output); }
  void flow(Place source, std::span<const Place> targets, std::uint64_t bytes) {
    if (!targets.empty())
      stage().flows.push_back({.source = source, .targets = range(targets), .row_bytes = bytes});
  }
  /// A share of one reduction, whose inputs lie `begin` behind the whole's.
  void sum_share(const Reduction& whole, const Slice& slice, std::span<const Place> outputs) {
    sum(whole.dtype, (slice.end - slice.begin) / size_of(whole.dtype),
        shifted(problem_.places_of(whole.inputs), slice.begin), outputs);
  }
  /// Memory of a member's for what it hands on, laid out as the whole.
  BufferId add_buffer(LaneId member, std::uint64_t bytes) {
    const auto buffer = static_cast<BufferId>(work_.homes.size());
    work_.homes.push_back(member);
    work_.share_bytes.push_back(bytes);
    return buffer;
  }
  template <class Items>
  [[nodiscard]] static std::vector<std::uint64_t> sizes_of(const Items& items) {
    std::vector<std::uint64_t> sizes;
    for (const auto& item : items) sizes.push_back(item.bytes());
    return sizes;
  }

  const Problem& problem_;
  const RoundTuning& tuning_;
  TeamWork work_;
};

TeamWork Sharing::sums_on_all() {
  const std::uint64_t bytes = problem_.bytes();
  if (bytes <= tuning_.shared_sums_from) {
    for (std::size_t member = 0; member < members(); ++member) {
      for (const Reduction& whole : problem_.reductions)
        sum(whole.dtype, whole.count, problem_.places_of(whole.inputs),
            problem_.places_of(whole.outputs)[member]);
    }
    return std::move(work_);
  }
  const std::size_t stages = (bytes + tuning_.message_bytes - 1) / tuning_.message_bytes;
  std::vector<LaneId> lanes;
  for (std::size_t part = 0; part < stages * members(); ++part)
    lanes.push_back(static_cast<LaneId>(part % members()));
  const auto shares = share_out(sizes_of(problem_.reductions), lanes);
  for (std::size_t part = 0; part < shares.size(); ++part) {
    const LaneId member = shares[part].lane;
    if (member == 0 && part > 0) next_stage();
    for (const Slice& slice : shares[part].slices) {
      const Reduction& whole = problem_.reductions[slice.item];
      std::vector<Place> outputs = shifted(problem_.places_of(whole.outputs), slice.begin);
      std::rotate(outputs.begin(), outputs.begin() + member, outputs.begin() + member + 1);
      sum_share(whole, slice, outputs);
    }
  }
  return std::move(work_);
}

TeamWork Sharing::relayed_sums() {
  const LaneId root = problem_.lane_of(problem_.output_of(problem_.reductions.front()));
  for (const auto& [lane, slices] : share_out(sizes_of(problem_.reductions), lanes_but(root, members()))) {
    for (const Slice& slice : slices) {
      const Reduction& whole = problem_.reductions[slice.item];
      const Place share{add_buffer(lane, whole.bytes()), slice.begin};
      sum_share(whole, slice, {&share, 1});
      const Place result = behind(problem_.output_of(whole), slice.begin);
      flow(share, {&result, 1}, slice.end - slice.begin);
    }
  }
  return std::move(work_);
}

TeamWork Sharing::relayed_broadcast() {
  work_.outputs_are_apart = true;
  std::vector<const Flow*> outward;
  std::vector<std::uint64_t> sizes;
  const LaneId root = problem_.lane_of(problem_.flows.front().source);
  for (const Flow& whole : problem_.flows) {
    if (problem_.lane_of(problem_.places_of(whole.targets).front()) == root) continue;
    outward.push_back(&whole);
    sizes.push_back(whole.bytes());
  }
  for (const auto& [lane, slices] : share_out(sizes, lanes_but(root, members()))) {
    for (const Slice& slice : slices) {
      const Flow& whole = *outward[slice.item];
      std::vector<Place> targets = shifted(problem_.places_of(whole.targets), slice.begin);
      const auto own =
          std::ranges::find(targets, lane, [&](Place target) { return problem_.lane_of(target); });
      const Place share = *own;
      targets.erase(own);
      take(behind(whole.source, slice.begin), slice.end - slice.begin, share);
      flow(share, targets, slice.end - slice.begin);
    }
  }
  for (const Flow& whole : problem_.flows) {
    const Place target = problem_.places_of(whole.targets).front();
    if (problem_.lane_of(target) == root) take(whole.source, whole.bytes(), target);
  }
  return std::move(work_);
}

}  // namespace

TeamWork share_work(const Problem& problem, bool is_relayed, const RoundTuning& tuning) {
  Sharing sharing(problem, tuning);
  const bool is_sum = !problem.reductions.empty();
  if (is_sum && problem.reductions.front().outputs.count > 1) return sharing.sums_on_all();
  if (!is_relayed || (problem.flows.empty() && !is_sum)) return sharing.as_it_stands();
  return is_sum ? sharing.relayed_sums() : sharing.relayed_broadcast();
}

}  // namespace tutti::transport::team
