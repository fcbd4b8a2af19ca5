// SPDX-License-Identifier: Apache-2.0
#include "transport/plan/pieces.hpp"
#include "transport/plan/shares.hpp"
#include "transport/plan/tuning.hpp"
#include "transport/steps/lowering.hpp"
#include "transport/steps/stager.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

namespace tutti::transport {
namespace {

/// A flow with those of its targets that are served in one way.
struct Leg {
  Flow flow;
  std::vector<Place> targets;
};

CopyStep copy_of(const Flow& flow, LaneId lane, Place target) {
  return {lane, target, flow.source, flow.row_bytes, flow.rows, flow.target_pitch, flow.source_pitch};
}

class FlowLowering {
 public:
  FlowLowering(PlanBuilder& builder, const Reach& reach)
      : builder_(builder), problem_(builder.problem()), reach_(reach) {}

  std::string run() {
    for (const Flow& flow : problem_.flows) route(flow);
    if (!direct_.empty()) emit_direct();
    if (!staged_.empty()) emit_staged();
    if (!relays_.empty()) emit_relays();
    return algorithm();
  }

 private:
  [[nodiscard]] int device_of(Place place) const { return problem_.device_of(place); }
  [[nodiscard]] LaneId lane_of(Place place) const { return problem_.lane_of(place); }
  [[nodiscard]] bool reaches(Place from, Place to) const { return reach_(device_of(from), device_of(to)); }

  /// Sends the parts of a flow that involve the host on their way and sorts the others by reach.
  void route(const Flow& flow) {
    std::span<const Place> targets = problem_.places_of(flow.targets);
    if (problem_.is_on_host(targets.front())) {
      builder_.copy(copy_of(flow, lane_of(flow.source), targets.front()));
      host_copies_ = true;
      return;
    }
    Flow onward = flow;
    if (problem_.is_on_host(flow.source)) {
      builder_.copy(copy_of(flow, lane_of(targets.front()), targets.front()));
      host_copies_ = true;
      onward.source = targets.front();
      onward.source_pitch = flow.target_pitch;
      targets = targets.subspan(1);
    }
    if (!targets.empty()) sort_by_reach(onward, targets);
  }

  /// Targets in reach of the source are served from it. The others form islands, sets in reach of one
  /// another: the first of each is served through pinned memory and serves the rest.
  void sort_by_reach(const Flow& flow, std::span<const Place> targets) {
    std::vector<Place> near;
    std::vector<std::vector<Place>> islands;
    for (const Place& target : targets) {
      if (reaches(flow.source, target)) {
        near.push_back(target);
        continue;
      }
      const auto island =
          std::ranges::find_if(islands, [&](const auto& members) { return reaches(members[0], target); });
      if (island == islands.end()) {
        islands.push_back({target});
      } else {
        island->push_back(target);
      }
    }
    if (!near.empty()) direct_.push_back({flow, std::move(near)});
    if (islands.empty()) return;

    std::vector<Place> leaders;
    for (const auto& island : islands) leaders.push_back(island.front());
    staged_.push_back({flow, std::move(leaders)});
    for (auto& island : islands) {
      if (island.size() == 1) continue;
      Flow relay = flow;
      relay.source = island.front();
      relay.source_pitch = flow.target_pitch;
      relays_.push_back({relay, {island.begin() + 1, island.end()}});
    }
  }

  void emit_direct() {
    if (problem_.most_multiprocessors == 0) return emit_copies(direct_, host_copies_);
    std::uint64_t bytes = 0;
    bool fans_out = false;
    std::set<LaneId> sources;
    std::set<LaneId> targets;
    std::map<std::pair<LaneId, LaneId>, std::size_t> between;
    Copies copies{.mode = problem_.mode, .senders = 0, .count = direct_.size(), .between_two = 0};
    for (const Leg& leg : direct_) {
      bytes += leg.flow.bytes();
      fans_out |= leg.targets.size() > 1;
      sources.insert(lane_of(leg.flow.source));
      for (const Place& target : leg.targets) {
        targets.insert(lane_of(target));
        if (is_at_home(leg, target)) continue;
        copies.between_two =
            std::max(copies.between_two, ++between[{lane_of(leg.flow.source), lane_of(target)}]);
      }
    }
    copies.senders = sources.size();
    const bool small = bytes <= one_kernel_limit(problem_.mode);
    if (!small && fans_out && sources.size() == 1 && can_split()) {
      emit_split();
    } else if (!small && !fans_out && bytes >= copy_engines_from(copies) && has_wide_rows()) {
      emit_copies(direct_, false);
    } else if (sources.size() > 1 && targets.size() == 1 && pulls_all(*targets.begin())) {
      emit_kernel(*targets.begin(), direct_);
      words_.insert("root pull");
    } else {
      emit_pushes(direct_);
      words_.insert("root push");
    }
  }

  /// Every flow goes to the same lanes of other devices than the source's, of which there are at least two,
  /// and they reach everything.
  [[nodiscard]] bool can_split() {
    const auto lanes_abroad = [&](const Leg& leg) {
      std::vector<LaneId> lanes;
      for (const Place& target : leg.targets) {
        if (!is_at_home(leg, target)) lanes.push_back(lane_of(target));
      }
      return lanes;
    };
    const std::vector<LaneId> lanes = lanes_abroad(direct_.front());
    for (const Leg& leg : direct_) {
      if (lanes_abroad(leg) != lanes) return false;
    }
    const int source_device = device_of(direct_.front().flow.source);
    std::set<int> devices;
    for (const LaneId lane : lanes) {
      const int device = builder_.device_of(lane);
      if (devices.insert(device).second) split_lanes_.push_back(lane);
    }
    devices.insert(source_device);
    const auto reaches_all = [&](LaneId lane) {
      return std::ranges::all_of(devices, [&](int peer) { return reach_(builder_.device_of(lane), peer); });
    };
    return split_lanes_.size() >= 2 && std::ranges::all_of(split_lanes_, reaches_all);
  }

  /// Each other device reads a share (`shares.hpp`) and writes it to all other devices. What stays on the
  /// source's device is copied there: no share comes back to it.
  void emit_split() {
    const LaneId source_lane = lane_of(direct_.front().flow.source);
    std::vector<Leg> outward;
    std::vector<std::uint64_t> sizes;
    for (const Leg& leg : direct_) {
      Leg& out = outward.emplace_back(Leg{leg.flow, {}});
      Leg local{leg.flow, {}};
      for (const Place& target : leg.targets)
        (is_at_home(leg, target) ? local : out).targets.push_back(target);
      if (!local.targets.empty()) move_all(source_lane, local);
      sizes.push_back(leg.flow.bytes());
    }
    for (const auto& [lane, slices] : share_out(sizes, split_lanes_)) {
      if (host_copies_) builder_.order(source_lane, lane);
      for (const Slice& slice : slices) {
        const Leg& leg = outward[slice.item];
        for_each_piece(leg.flow, slice.begin, slice.end, [&](const Piece& piece) {
          builder_.move(lane, piece.move, from_its_own(shifted(leg.targets, piece.target_offset), lane));
        });
      }
      builder_.launch_moves(lane);
    }
    builder_.launch_moves(source_lane);
    words_.insert("split and fan out");
  }

  /// The targets from the first one on the lane's own device on.
  [[nodiscard]] std::vector<Place> from_its_own(std::vector<Place> targets, LaneId lane) const {
    const int own = builder_.device_of(lane);
    std::ranges::rotate(targets,
                        std::ranges::find(targets, own, [this](Place target) { return device_of(target); }));
    return targets;
  }

  /// Narrow rows are left to kernels.
  [[nodiscard]] bool has_wide_rows() const {
    return std::ranges::all_of(direct_, [](const Leg& leg) {
      return leg.flow.rows == 1 || leg.flow.row_bytes >= copy_engine_row_bytes;
    });
  }

  /// The sending device pushes, one copy after another: a single copy fills its links. What stays on the
  /// device does not hold them up. `follow_copies`: sources may be what the plan has copied before.
  void emit_copies(std::span<const Leg> legs, bool follow_copies) {
    std::set<LaneId> senders;
    for (const Leg& leg : legs) {
      if (!std::ranges::all_of(leg.targets, [&](Place target) { return is_at_home(leg, target); }))
        senders.insert(lane_of(leg.flow.source));
    }
    std::map<LaneId, LaneId> side_lanes;
    for (const Leg& leg : legs) {
      for (const Place& target : leg.targets) {
        LaneId lane = lane_of(leg.flow.source);
        if (is_at_home(leg, target) && senders.contains(lane)) {
          if (!side_lanes.contains(lane)) {
            side_lanes[lane] = builder_.side_lane(lane);
            if (follow_copies) builder_.order(lane, side_lanes[lane]);
          }
          lane = side_lanes[lane];
        }
        builder_.copy(copy_of(leg.flow, lane, target));
      }
    }
    words_.insert("copy engines");
  }

  [[nodiscard]] bool is_at_home(const Leg& leg, Place target) const {
    return device_of(leg.flow.source) == device_of(target);
  }

  [[nodiscard]] bool pulls_all(LaneId lane) const {
    return std::ranges::all_of(direct_, [&](const Leg& leg) {
      return reach_(builder_.device_of(lane), device_of(leg.flow.source));
    });
  }

  /// A flow of more rows than one move can have takes several.
  void move_all(LaneId lane, const Leg& leg) {
    for_each_piece(leg.flow, 0, leg.flow.bytes(), [&](const Piece& piece) {
      builder_.move(lane, piece.move, shifted(leg.targets, piece.target_offset));
    });
  }

  /// Adds one kernel on `lane` that moves all `flows`.
  void emit_kernel(LaneId lane, std::span<const Leg> flows) {
    for (const Leg& leg : flows) move_all(lane, leg);
    builder_.launch_moves(lane);
  }

  /// Adds one kernel per source that moves the flows that start there.
  void emit_pushes(std::span<const Leg> flows) {
    std::set<LaneId> lanes;
    for (const Leg& leg : flows) {
      const LaneId lane = lane_of(leg.flow.source);
      move_all(lane, leg);
      lanes.insert(lane);
    }
    for (const LaneId lane : lanes) builder_.launch_moves(lane);
  }

  void emit_staged() {
    Stager stager(builder_, problem_.bytes());
    for (const Leg& leg : staged_) stager.add(leg.flow, leg.targets);
    stager.finish();
    words_.insert("pinned chunks");
  }

  /// Each leader's kernel is queued behind the copies from pinned memory on its own lane.
  void emit_relays() {
    problem_.most_multiprocessors == 0 ? emit_copies(relays_, true) : emit_pushes(relays_);
    words_.insert("island relay");
  }

  [[nodiscard]] std::string algorithm() const {
    std::string text = host_copies_ ? "host copies" : "";
    for (const std::string& words : words_) text += (text.empty() ? "" : " + ") + words;
    return text;
  }

  PlanBuilder& builder_;
  const Problem& problem_;
  const Reach& reach_;
  std::vector<Leg> direct_;  ///< within reach of their source
  std::vector<Leg> staged_;  ///< through pinned memory, to one device of each island
  std::vector<Leg> relays_;  ///< from there to the rest of the island
  std::vector<LaneId> split_lanes_;
  std::set<std::string> words_;
  bool host_copies_ = false;
};

}  // namespace

std::string lower_flows(PlanBuilder& builder, const Reach& reach) {
  return FlowLowering(builder, reach).run();
}

}  // namespace tutti::transport
