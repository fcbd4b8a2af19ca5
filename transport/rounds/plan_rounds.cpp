// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/plan_rounds.hpp"

#include "backend/team_round.hpp"
#include "base/rounding.hpp"
#include "transport/plan/pieces.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/rounds/round_builder.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <utility>

namespace tutti::transport::team {
namespace {

/// Items that are cut into rounds together: every round takes an even share of each group.
struct Group {
  std::vector<std::size_t> items;
  std::vector<std::uint64_t> sizes;  ///< bytes
};

class Lowering {
 public:
  Lowering(const TeamWork& work, std::size_t members, const RoundLimits& limits)
      : work_(work), members_(members), limits_(limits) {}

  /// Returns the rounds; nothing if the protocol cannot carry the work. Slots can carry everything.
  [[nodiscard]] std::optional<std::vector<RoundBuilder>> run() {
    for (const TeamWork::Stage& whole : work_.stages) {
      const TeamWork::Stage stage = limits_.protocol == Protocol::direct ? whole : with_one_output(whole);
      add_sums(stage.reductions);
      const std::size_t before = rounds_.size();
      add_flows(stage.flows);
      if (rounds_.size() > before && hands_on_sums(stage)) rounds_[before].make_relay();
    }
    if (limits_.protocol == Protocol::low_latency && rounds_.empty()) return std::nullopt;
    if (!std::ranges::all_of(rounds_, &RoundBuilder::fits)) return std::nullopt;
    for (RoundBuilder& round : rounds_) round.finish();
    return std::move(rounds_);
  }

 private:
  /// Returns true if the flows carry only sums of the stage, each to members that have no inputs in it, or to
  /// the place of its inputs in the targets' own memory: then what arrives is made of the bytes that it
  /// overwrites. (Buffers are not compared: an output shares memory only with an input that it is made of.)
  [[nodiscard]] bool hands_on_sums(const TeamWork::Stage& stage) const {
    if (limits_.protocol != Protocol::low_latency) return false;
    std::map<std::pair<BufferId, std::uint64_t>, const Reduction*> sums;
    std::set<LaneId> givers;
    for (const Reduction& sum : stage.reductions) {
      const Place output = work_.output_of(sum);
      sums[{output.buffer, output.offset}] = &sum;
      for (const Place input : work_.places_of(sum.inputs)) givers.insert(work_.member_of(input));
    }
    return std::ranges::all_of(stage.flows, [&](const Flow& flow) {
      const auto sum = sums.find({flow.source.buffer, flow.source.offset});
      if (sum == sums.end() || sum->second->bytes() != flow.bytes()) return false;
      const std::span<const Place> inputs = work_.places_of(sum->second->inputs);
      return std::ranges::all_of(work_.places_of(flow.targets), [&](Place target) {
        return !givers.contains(work_.member_of(target)) || std::ranges::any_of(inputs, [&](Place input) {
          return work_.member_of(input) == work_.member_of(target) && input.offset == target.offset;
        });
      });
    });
  }

  /// Flows bring the sums from their first outputs to the others.
  [[nodiscard]] TeamWork::Stage with_one_output(const TeamWork::Stage& whole) const {
    TeamWork::Stage stage = whole;
    for (Reduction& reduction : stage.reductions) {
      if (reduction.outputs.count == 1) continue;
      stage.flows.push_back({.source = work_.output_of(reduction),
                             .targets = {reduction.outputs.first + 1, reduction.outputs.count - 1},
                             .row_bytes = reduction.bytes()});
      reduction.outputs.count = 1;
    }
    return stage;
  }

  /// Sums of one element type at a time: a part adds elements of one type.
  void add_sums(std::span<const Reduction> reductions) {
    std::map<DType, std::map<LaneId, Group>> by_type;
    for (std::size_t i = 0; i < reductions.size(); ++i) {
      Group& group = by_type[reductions[i].dtype][work_.member_of(work_.output_of(reductions[i]))];
      group.items.push_back(i);
      group.sizes.push_back(reductions[i].bytes());
    }
    for (const auto& [dtype, roots] : by_type) {
      std::vector<Group> groups;
      std::set<std::tuple<BufferId, std::uint64_t, std::uint64_t>> inputs;
      std::map<LaneId, std::uint64_t> messages;
      for (const auto& [root, group] : roots) {
        groups.push_back(group);
        for (const std::size_t item : group.items) {
          const Reduction& reduction = reductions[item];
          for (const Place& input : work_.places_of(reduction.inputs)) {
            if (work_.member_of(input) == root) continue;
            if (!inputs.insert({input.buffer, input.offset, reduction.count}).second) continue;
            messages[work_.member_of(input)] += reduction.bytes();
          }
        }
      }
      add_rounds(groups, messages, [&](RoundBuilder& round, const Slice& slice, std::size_t item) {
        const Reduction& reduction = reductions[item];
        const std::uint64_t width = size_of(reduction.dtype);
        round.sum(reduction.dtype, (slice.end - slice.begin) / width,
                  shifted(work_.places_of(reduction.inputs), slice.begin),
                  shifted(work_.places_of(reduction.outputs), slice.begin));
      });
    }
  }

  void add_flows(std::span<const Flow> flows) {
    // Flows along one route are one sequence of bytes. What stays on a member has a route of its own, so that
    // members who do not know of it find the others' bytes in the same places.
    std::map<std::pair<LaneId, std::vector<LaneId>>, Group> routes;
    std::map<LaneId, std::uint64_t> messages;
    for (std::size_t i = 0; i < flows.size(); ++i) {
      std::vector<LaneId> targets;
      for (const Place& target : work_.places_of(flows[i].targets))
        targets.push_back(work_.member_of(target));
      const LaneId source = work_.member_of(flows[i].source);
      const bool stays = std::ranges::all_of(targets, [&](LaneId target) { return target == source; });
      if (!stays) messages[source] += flows[i].bytes();
      Group& group = routes[{source, std::move(targets)}];
      group.items.push_back(i);
      group.sizes.push_back(flows[i].bytes());
    }
    std::vector<Group> groups;
    for (auto& [route, group] : routes) groups.push_back(std::move(group));
    add_rounds(groups, messages, [&](RoundBuilder& round, const Slice& slice, std::size_t item) {
      const Flow& flow = flows[item];
      for_each_piece(flow, slice.begin, slice.end, [&](const Piece& piece) {
        for (const Place& target : work_.places_of(flow.targets)) {
          round.copy(piece.move, {target.buffer, target.offset + piece.target_offset});
        }
      });
    });
  }

  /// Cuts the groups into as many rounds as the largest message needs, and more where what keeps messages
  /// aligned takes too much room.
  template <class AddSlice>
  void add_rounds(const std::vector<Group>& groups, const std::map<LaneId, std::uint64_t>& messages,
                  const AddSlice& add_slice) {
    if (groups.empty()) return;
    std::uint64_t largest = 1;
    for (const auto& [member, bytes] : messages) largest = std::max(largest, bytes);
    const bool needs_cuts = limits_.protocol == Protocol::slots;
    for (std::uint64_t count = needs_cuts ? divide_up(largest, limits_.message_bytes) : 1;; count *= 2) {
      std::vector<RoundBuilder> rounds(count, RoundBuilder(work_, members_, limits_));
      for (const Group& group : groups) {
        const auto cuts = split_evenly(group.sizes, count, split_alignment);
        for (std::size_t round = 0; round < cuts.size(); ++round) {
          for (const Slice& slice : cuts[round]) add_slice(rounds[round], slice, group.items[slice.item]);
        }
      }
      if (!needs_cuts || std::ranges::all_of(rounds, &RoundBuilder::fits)) {
        std::ranges::move(rounds, std::back_inserter(rounds_));
        return;
      }
      if (count > largest) throw Error(ErrorCode::internal, "plan_rounds: a message fits in no slot");
    }
  }

  const TeamWork& work_;
  std::size_t members_;
  const RoundLimits& limits_;
  std::vector<RoundBuilder> rounds_;
};

/// Returns true if a part puts the sums of the part before it, segment by segment, or nothing, and otherwise
/// only copies.
bool hands_on(const RoundPart& sums, const RoundPart& part) {
  if (!sums.copies.segments.empty() || !part.reductions.segments.empty()) return false;
  if (part.puts.segments.empty()) return true;
  return std::ranges::equal(
      sums.reductions.segments, part.puts.segments, [&](const auto& sum, const auto& put) {
        return sums.reductions.pointers[sum.first_output] == part.puts.pointers[put.source] &&
               sum.count * size_of(sums.dtype) == put.row_bytes;
      });
}

/// Returns the bytes of each buffer up to the last that the work uses.
std::vector<std::uint64_t> reaches_of(const TeamWork& work) {
  std::vector<std::uint64_t> reaches(work.homes.size());
  const auto add = [&](Place place, std::uint64_t bytes) {
    if (place.buffer >= reaches.size()) return;
    reaches[place.buffer] = std::max(reaches[place.buffer], place.offset + bytes);
  };
  for (const TeamWork::Stage& stage : work.stages) {
    for (const Flow& flow : stage.flows) {
      const std::uint64_t rows_before = flow.rows - 1;
      add(flow.source, rows_before * flow.source_pitch + flow.row_bytes);
      for (const Place target : work.places_of(flow.targets))
        add(target, rows_before * flow.target_pitch + flow.row_bytes);
    }
    for (const Reduction& reduction : stage.reductions) {
      for (const Place input : work.places_of(reduction.inputs)) add(input, reduction.bytes());
      for (const Place output : work.places_of(reduction.outputs)) add(output, reduction.bytes());
    }
  }
  return reaches;
}

/// Numbers each local member's parts.
RoundPlan number(std::vector<RoundBuilder>& rounds, const TeamWork& work, Protocol protocol,
                 std::size_t members, std::size_t first_local, std::size_t local_count) {
  RoundPlan plan;
  plan.protocol = protocol;
  plan.writes_exposed = std::ranges::any_of(rounds, &RoundBuilder::writes_exposed);
  plan.swaps = protocol == Protocol::direct && work.may_swap;
  if (plan.swaps) plan.in_place = work.exchanged_in_place;
  plan.operand_count = work.homes.size();
  plan.member_count = members;
  plan.first_local = first_local;
  plan.round_count = static_cast<std::uint32_t>(rounds.size());
  if (protocol == Protocol::direct) plan.reaches = reaches_of(work);
  for (std::size_t member = first_local; member < first_local + local_count; ++member) {
    std::vector<RoundPart>& parts = plan.parts.emplace_back();
    // Before its first part a member says nothing, perhaps not even that it has finished the two rounds
    // before the call, of a relay: others must not get as far as to wait for it meanwhile.
    const auto first =
        std::ranges::find_if(rounds, [&](const RoundBuilder& round) { return round.has_part(member); });
    if (first - rounds.begin() >= backend::TeamWindowLayout::slot_count - 2)
      static_cast<void>(rounds[0].part(member));
    for (std::uint32_t round = 1; round <= plan.round_count; ++round) {
      if (!rounds[round - 1].has_part(member)) continue;
      if (!parts.empty()) parts.back().finished = round - 1;
      RoundPart& part = parts.emplace_back(std::move(rounds[round - 1].part(member)));
      part.round = round;
      if (!rounds[round - 1].is_relay() || parts.size() == 1) continue;
      const RoundPart& before = parts[parts.size() - 2];
      part.is_relay = before.round + 1 == round && hands_on(before, part);
    }
    if (parts.empty() && plan.round_count > 0) parts.emplace_back().round = plan.round_count;
    if (!parts.empty()) parts.back().finished = plan.round_count;
    std::set<BufferId> exposed;
    for (const RoundPart& part : parts) exposed.insert(part.exposed.begin(), part.exposed.end());
    plan.exposed.emplace_back(exposed.begin(), exposed.end());
    if (protocol == Protocol::low_latency || work.outputs_are_apart) continue;
    for (RoundPart& part : parts) {
      const bool writes_inputs = !part.reductions.segments.empty() ||
                                 (!work.exchanged_in_place.empty() && !part.copies.segments.empty());
      if (part.puts.segments.empty() || !writes_inputs) continue;
      // An output may be the input: all of it must have been put before any of it is written.
      add_once(part.readers, static_cast<LaneId>(member));
      add_once(part.sources, static_cast<LaneId>(member));
    }
  }
  return plan;
}

}  // namespace

RoundPlan plan_rounds(const TeamWork& work, std::size_t members, std::size_t first_local,
                      std::size_t local_count, const RoundLimits& limits) {
  // All processes see all members' parts, and so all come to the same.
  std::optional<std::vector<RoundBuilder>> rounds = Lowering(work, members, limits).run();
  if (rounds) return number(*rounds, work, limits.protocol, members, first_local, local_count);
  RoundLimits through_slots = limits;
  through_slots.protocol = Protocol::slots;
  rounds = Lowering(work, members, through_slots).run();
  return number(*rounds, work, Protocol::slots, members, first_local, local_count);
}

RoundPlan plan_barrier(std::size_t members, std::size_t first_local, std::size_t local_count) {
  const TeamWork nothing;
  const RoundLimits no_limits;
  std::vector<RoundBuilder> rounds(1, RoundBuilder(nothing, members, no_limits));
  for (std::size_t member = first_local; member < first_local + local_count; ++member) {
    RoundPart& part = rounds.front().part(member);
    for (std::uint32_t other = 0; other < members; ++other) {
      if (other == member) continue;
      part.readers.push_back(other);
      part.sources.push_back(other);
    }
  }
  return number(rounds, nothing, Protocol::slots, members, first_local, local_count);
}

}  // namespace tutti::transport::team
