// SPDX-License-Identifier: Apache-2.0
#include "transport/plan/peer_uses.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <variant>

namespace tutti::transport {
namespace {

/// Marks the operands that steps use from other devices.
class UsedByPeers {
 public:
  explicit UsedByPeers(const Plan& plan) : plan_(plan), marks_(plan.operand_count) {
    for (const PlannedStep& planned : plan.steps)
      std::visit([this](const auto& step) { visit(step); }, planned.step);
  }
  [[nodiscard]] bool operator[](std::size_t buffer) const { return marks_[buffer]; }

 private:
  static constexpr int host = -2;

  [[nodiscard]] int device_of(BufferId buffer) const {
    const LaneId home = plan_.homes[buffer];
    return home == host_lane ? host : plan_.lane_devices[home];
  }
  void use(int device, BufferId buffer) {
    if (buffer >= marks_.size() || device == host || device == remote_device) return;
    const int home = device_of(buffer);
    if (home != host && home != remote_device && home != device) marks_[buffer] = true;
  }
  void use_all(LaneId lane, const std::vector<Place>& places) {
    for (const Place& place : places) use(plan_.lane_devices[lane], place.buffer);
  }

  void visit(const RecordStep& /*step*/) {}
  void visit(const WaitStep& /*step*/) {}
  void visit(const RoundsStep& /*step*/) {}
  void visit(const CopyStep& step) {
    const auto [from, to] = std::pair(step.source.buffer, step.target.buffer);
    for (const int device : {plan_.lane_devices[step.lane], device_of(from), device_of(to)}) {
      use(device, from);
      use(device, to);
    }
  }
  void visit(const FanOutStep& step) { use_all(step.lane, step.pointers); }
  void visit(const ReductionStep& step) { use_all(step.lane, step.pointers); }
  void visit(const AcceleratedStep& /*step*/) {
    for (BufferId buffer = 0; buffer < marks_.size(); ++buffer)
      for (const int device : plan_.lane_devices) use(device, buffer);
  }

  const Plan& plan_;
  std::vector<bool> marks_;
};

/// Notes that bytes are used from a place on.
void note(std::vector<PeerUse>& uses, Place place, std::uint64_t bytes, bool PeerUse::*is_so) {
  PeerUse& use = uses[place.buffer];
  use.bytes = std::max(use.bytes, place.offset + bytes);
  use.*is_so = true;
}

std::uint64_t bytes_in_rows(const Flow& flow, std::uint64_t pitch) {
  return (flow.rows - 1) * pitch + flow.row_bytes;
}

/// Returns how the problem uses its operands, by number.
std::vector<PeerUse> uses_of(const Problem& problem) {
  std::vector<PeerUse> uses(problem.homes.size());
  for (BufferId buffer = 0; buffer < uses.size(); ++buffer) uses[buffer].buffer = buffer;
  for (const Flow& flow : problem.flows) {
    note(uses, flow.source, bytes_in_rows(flow, flow.source_pitch), &PeerUse::is_read);
    for (const Place& target : problem.places_of(flow.targets))
      note(uses, target, bytes_in_rows(flow, flow.target_pitch), &PeerUse::is_written);
  }
  for (const Reduction& reduction : problem.reductions) {
    for (const Place& input : problem.places_of(reduction.inputs))
      note(uses, input, reduction.bytes(), &PeerUse::is_read);
    for (const Place& output : problem.places_of(reduction.outputs))
      note(uses, output, reduction.bytes(), &PeerUse::is_written);
  }
  return uses;
}

}  // namespace

std::vector<PeerUse> find_peer_uses(const Problem& problem, const Plan& plan) {
  const UsedByPeers by_peers(plan);
  std::vector<PeerUse> uses = uses_of(problem);
  std::erase_if(uses, [&](const PeerUse& use) { return use.bytes == 0 || !by_peers[use.buffer]; });
  for (PeerUse& use : uses) use.ready = problem.ready[use.buffer];
  uses.shrink_to_fit();
  return uses;
}

}  // namespace tutti::transport
