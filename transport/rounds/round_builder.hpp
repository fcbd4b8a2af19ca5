// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/operations.hpp"
#include "transport/plan/plan_builder.hpp"
#include "transport/plan/problem.hpp"
#include "transport/rounds/round_plan.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <tuple>
#include <vector>

namespace tutti::transport::team {

/// Adds `member` if it is not in the list yet.
void add_once(std::vector<std::uint32_t>& members, LaneId member);

/// Builds a round, all members' parts, for `plan_rounds`.
class RoundBuilder {
 public:
  RoundBuilder(const TeamWork& work, std::size_t members, const RoundLimits& limits);

  /// Lets the source's member offer a rectangle and `target`'s member copy it; or, if flows are written, lets
  /// `target`'s member expose it and the source's member copy.
  void copy(const Move& move, Place target);
  /// Lets the member of the first output add. Only the protocol `direct` has further outputs.
  void sum(DType dtype, std::uint64_t count, std::span<const Place> inputs, std::span<const Place> outputs);
  /// Returns true if the round can be carried out.
  [[nodiscard]] bool fits() const;
  /// Orders the work when all has been added.
  void finish();

  /// Marks the round as one that relays the sums of the one before.
  void make_relay() { is_relay_ = true; }
  [[nodiscard]] bool is_relay() const { return is_relay_; }

  /// Returns true if members write to memory that others expose, as far as is known beforehand.
  [[nodiscard]] bool writes_exposed() const { return writes_exposed_; }

  [[nodiscard]] bool has_part(std::size_t member) const { return has_part_[member]; }
  [[nodiscard]] RoundPart& part(std::size_t member) {
    has_part_[member] = true;
    return parts_[member];
  }

 private:
  using Table = RoundPart::Table<backend::FanOutSegment>;
  using Rectangle = std::tuple<BufferId, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;
  /// A rectangle that a member puts into inboxes.
  struct Message {
    Move move;
    std::vector<Place> targets;
  };

  // Buffers after the work's own: see `RoundPlan`.
  [[nodiscard]] std::size_t first_own_source() const { return work_.homes.size() + parts_.size(); }
  [[nodiscard]] std::size_t first_inbox() const { return first_own_source() + work_.homes.size(); }
  [[nodiscard]] std::size_t first_exposed() const { return first_inbox() + parts_.size(); }
  [[nodiscard]] Place own(Place source) const {
    return {static_cast<BufferId>(first_own_source() + source.buffer), source.offset};
  }
  /// Returns the place of a target of copies by its own member.
  [[nodiscard]] Place kept(Place target) const {
    return limits_.protocol == Protocol::direct ? own(target) : target;
  }
  [[nodiscard]] static Rectangle key_of(const Move& move) {
    return {move.source.buffer, move.source.offset, move.row_bytes, move.rows, move.source_pitch};
  }

  /// Makes a rectangle available to `reader`, another member, and returns where it finds the bytes.
  [[nodiscard]] Place offer(const Move& move, LaneId reader);
  /// Puts a rectangle, packed, into the slot of the source's member, once.
  [[nodiscard]] Place put(const Move& move);
  /// Exposes the memory that a place is in to the readers.
  [[nodiscard]] Place expose(Place source);
  /// Sends a rectangle into the reader's inbox, once.
  [[nodiscard]] Place send(const Move& move, LaneId reader);
  void connect(LaneId source, LaneId reader);
  static void add(Table& table, const Move& move, std::span<const Place> targets);
  static void add(Table& table, const Move& move, Place target);

  [[nodiscard]] bool writes_flows() const {
    return limits_.writes_flows && limits_.protocol == Protocol::direct;
  }
  [[nodiscard]] bool swaps() const { return work_.may_swap && limits_.protocol == Protocol::direct; }
  /// Adds a flow from one member to another of an exchange that swaps.
  void swap(const Move& move, Place target);
  /// Makes the last copy a swap, with a place for what goes the other way.
  static void make_swap(Table& table, Place other_way, backend::Swap swap);
  // The buffer of an exchange, on the member of a place, that has the input, or the output, at this place.
  [[nodiscard]] BufferId input_beside(Place place) const {
    const auto inputs = static_cast<BufferId>(work_.homes.size() / 2);
    return place.buffer < inputs ? place.buffer : place.buffer - inputs;
  }
  [[nodiscard]] BufferId output_beside(Place place) const {
    const auto inputs = static_cast<BufferId>(work_.homes.size() / 2);
    return place.buffer < inputs ? place.buffer + inputs : place.buffer;
  }
  /// Returns true if the member that a place is on is known to exchange in place there.
  [[nodiscard]] bool is_in_place(Place place) const {
    return std::ranges::binary_search(work_.exchanged_in_place, output_beside(place));
  }
  /// Orders copies so that every member copies from the member after it first (`shares.hpp`), and from those
  /// before it later; or, if flows are written, to them. Its own bytes come last; if they are many, they are
  /// copied slice by slice beside the rest, as they take another way.
  void stagger();
  /// Orders messages so that every member writes to the member after it first, as long as it need not put in
  /// the order in which it adds.
  void stagger_messages();
  /// Orders copies so that the k-th segment that a member copies comes from where the k-th that it puts goes
  /// to: both are as long then, and may be the same memory. Its own bytes come last.
  void order_as_put();
  /// Returns the distance from the member after `member` to `other`: 0 for that member, and the most for
  /// `member` itself.
  [[nodiscard]] std::size_t steps_between(std::size_t member, std::size_t other) const;
  /// Returns the member whose slot or memory contains a source of `reader`, or a target if flows are written.
  [[nodiscard]] std::size_t owner(Place place, std::size_t reader) const;
  /// Reorders slices: the first ones of all segments, then the second ones, and so on.
  static void cut_into_slices(Table& table);
  /// Returns true if the member's sums may be written before all that it puts has been put.
  [[nodiscard]] bool may_write_what_it_puts(std::size_t member) const;
  /// Returns true if each sum's own input is what is put at the same place in the list.
  [[nodiscard]] bool puts_what_it_adds(std::size_t member) const;
  /// Returns true if sums lie like the own inputs whose memory they may share, and none of these is put.
  [[nodiscard]] bool keeps_what_it_adds(std::size_t member) const;
  [[nodiscard]] std::span<const Place> inputs_of(const RoundPart& part,
                                                 const backend::OrderedReductionSegment& segment) const {
    return std::span(part.reductions.pointers).subspan(segment.first_input, part.input_count);
  }

  const TeamWork& work_;
  const RoundLimits& limits_;
  std::vector<RoundPart> parts_;
  std::vector<std::vector<Message>> messages_;  ///< by member, with low latency
  std::vector<std::uint64_t> fill_;             ///< by member: bytes in its slot or inbox
  std::vector<std::uint64_t> sent_;             ///< by member, with low latency: bytes it puts into inboxes
  /// The bytes that each member copies within its own memory, plus those of the sums that it makes. Other
  /// members may not know of such copies; but if there are others, the same bytes are sent to them, so that
  /// `fits` is the same for all.
  std::vector<std::uint64_t> kept_;
  bool is_single_rows_ = true;  ///< of all copies
  bool is_relay_ = false;
  bool writes_exposed_ = false;
  std::vector<bool> has_part_;
  std::map<Rectangle, std::uint64_t> put_;     ///< the place in the slot, or the number of the message
  std::map<BufferId, std::uint64_t> exposed_;  ///< the number of each buffer's address
};

}  // namespace tutti::transport::team
