// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/operations.hpp"
#include "backend/team_round.hpp"
#include "transport/plan/problem.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

/// Plans a team's work as rounds through its members' windows (`backend/team_round.hpp`).
namespace tutti::transport::team {

/// A problem of a team in stages, shared among its members. Lane m is member m's; every buffer belongs to a
/// member. It has the problem's pools, and buffers for shares that are relayed.
struct TeamWork {
  /// Sums, then flows. A flow may carry what an earlier stage, or the stage's own sums, have written.
  struct Stage {
    /// Inputs may be any members'. The first output's member adds; further outputs are its own, at the same
    /// bytes of the other members.
    std::vector<Reduction> reductions;
    std::vector<Flow> flows;  ///< to any members, the source's own included
  };

  bool outputs_are_apart = false;            ///< see `Problem`
  std::vector<BufferId> exchanged_in_place;  ///< see `Problem`
  bool may_swap = false;                     ///< see `Problem`
  std::vector<LaneId> homes;                 ///< of each buffer
  /// Bytes of each of the last buffers, which are no operands: memory in which members keep what they relay.
  std::vector<std::uint64_t> share_bytes;
  std::vector<Place> places;  ///< pool for the ranges of reductions and flows
  std::vector<Stage> stages;

  [[nodiscard]] LaneId member_of(Place place) const noexcept { return homes[place.buffer]; }
  [[nodiscard]] std::span<const Place> places_of(PlaceRange range) const noexcept {
    return std::span(places).subspan(range.first, range.count);
  }
  [[nodiscard]] Place output_of(const Reduction& reduction) const noexcept {
    return places[reduction.outputs.first];
  }
};

/// The way in which bytes come from one member to another (`backend/team_round.hpp`).
enum class Protocol : std::uint8_t {
  slots,
  direct,       ///< nothing is put: members read, and write, memory that others expose
  low_latency,  ///< through inboxes
};

/// One member's part in one round. Targets are in the work's buffers, in slots or in inboxes: the slot of
/// member m is buffer `RoundPlan::slot_buffer(m)`, its inbox `RoundPlan::inbox_buffer(m)`. Sources are in
/// slots or inboxes; in own buffers, where buffer b is `RoundPlan::own_source(b)`; or in memory that other
/// members expose, which is buffer `RoundPlan::exposed_buffer(number)`, with the number of its address
/// (`backend::SourcePlace`). The same holds for outputs of reductions with several outputs, and in direct
/// rounds for targets of copies. What is put comes from the work's buffers.
struct RoundPart {
  template <class Segment>
  struct Table {
    std::vector<Segment> segments;
    std::vector<Place> pointers;
  };

  std::uint32_t round = 1;     ///< of the plan, from 1
  std::uint32_t finished = 1;  ///< the round before this member's next part
  Table<backend::FanOutSegment> puts;
  std::vector<std::uint32_t> readers;
  std::vector<std::uint32_t> sources;
  Table<backend::FanOutSegment> copies;
  Table<backend::OrderedReductionSegment> reductions;  ///< or else `copies`
  DType dtype = DType::float32;                        ///< of the sums
  std::uint32_t input_count = 0;                       ///< of the sums
  std::uint32_t output_count = 1;                      ///< of the sums
  std::vector<BufferId> exposed;                       ///< the member's buffers that are exposed to readers
  /// Relays the sums of the member's previous part, which is of the previous round, or takes such sums:
  /// `backend::TeamRound::relay`.
  bool is_relay = false;
};

/// The parts that one process carries out for its members. All processes make their plans from the same work
/// and agree on the rounds.
struct RoundPlan {
  std::size_t operand_count = 0;
  std::size_t member_count = 0;
  std::size_t first_local = 0;  ///< the member whose parts come first
  std::uint32_t round_count = 0;
  Protocol protocol = Protocol::slots;
  bool writes_exposed = false;                ///< `backend::TeamRound::writes_exposed`
  bool swaps = false;                         ///< `backend::TeamRound::swaps`
  std::vector<BufferId> in_place;             ///< buffers that are exposed as in place, in ascending order
  std::vector<std::vector<RoundPart>> parts;  ///< by local member; at least one each if there are rounds
  /// The buffers that each local member exposes in some round, each once.
  std::vector<std::vector<BufferId>> exposed;
  /// The bytes of each of the work's buffers up to the last that is used; empty if nothing is exposed.
  std::vector<std::uint64_t> reaches;

  /// Returns the memory that the plan takes, approximately.
  [[nodiscard]] std::size_t bytes() const noexcept;
  [[nodiscard]] BufferId slot_buffer(std::size_t member) const noexcept {
    return static_cast<BufferId>(operand_count + member);
  }
  [[nodiscard]] BufferId own_source(BufferId buffer) const noexcept {
    return static_cast<BufferId>(operand_count + member_count + buffer);
  }
  [[nodiscard]] BufferId inbox_buffer(std::size_t member) const noexcept {
    return static_cast<BufferId>(2 * operand_count + member_count + member);
  }
  [[nodiscard]] BufferId exposed_buffer(std::uint64_t number) const noexcept {
    return static_cast<BufferId>(2 * (operand_count + member_count) + number);
  }
};

struct RoundLimits {
  /// The bytes that a member should put into a slot: larger messages are cut, so that rounds overlap.
  std::uint64_t message_bytes = 0;
  Protocol protocol = Protocol::slots;  ///< used if it can carry the work
  /// In direct rounds, the member that has the source of a flow writes it to all targets, instead of being
  /// read.
  bool writes_flows = false;
  /// The layout of the windows. What a member puts must fit its slot, what it exposes has its place there,
  /// and in a low-latency round it sends, receives, keeps and adds no more than an inbox holds.
  backend::TeamWindowLayout layout{};
};

}  // namespace tutti::transport::team
