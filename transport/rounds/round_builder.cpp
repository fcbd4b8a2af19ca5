// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/round_builder.hpp"

#include "backend/team_round.hpp"
#include "base/rounding.hpp"
#include "transport/plan/pieces.hpp"
#include "transport/plan/shares.hpp"
#include "transport/plan/tuning.hpp"

#include <algorithm>
#include <ranges>
#include <utility>

namespace tutti::transport::team {
namespace {

/// Keeps kernels on their wide path.
constexpr std::uint64_t message_alignment = 16;

/// Copies within a device that take as long as half a dozen of its loads from a peer.
constexpr std::uint64_t much_of_its_own = std::uint64_t{2} << 20U;
constexpr std::uint64_t slice_count = 8;

}  // namespace

void add_once(std::vector<std::uint32_t>& members, LaneId member) {
  if (std::ranges::find(members, member) == members.end()) members.push_back(member);
}

RoundBuilder::RoundBuilder(const TeamWork& work, std::size_t members, const RoundLimits& limits)
    : work_(work),
      limits_(limits),
      parts_(members),
      messages_(members),
      fill_(members),
      sent_(members),
      kept_(members),
      has_part_(members) {}

void RoundBuilder::copy(const Move& move, Place target) {
  const LaneId member = work_.member_of(move.source);
  const LaneId reader = work_.member_of(target);
  is_single_rows_ &= move.rows == 1;
  Move offered = move;
  if (member == reader) {
    kept_[member] += move.row_bytes * move.rows;
    offered.source = own(move.source);
    add(part(member).copies, offered, kept(target));
    return;
  }
  if (swaps()) return swap(move, target);
  if (writes_flows()) {
    writes_exposed_ = true;
    offered.source = own(move.source);
    add(part(member).copies, offered, expose(target));
    connect(reader, member);
    return;
  }
  offered.source = offer(move, reader);
  if (limits_.protocol != Protocol::direct) offered.source_pitch = move.row_bytes;
  connect(member, reader);
  add(part(reader).copies, offered, kept(target));
}

void RoundBuilder::swap(const Move& move, Place target) {
  const Place near = writes_flows() ? move.source : target;
  const Place far = writes_flows() ? target : move.source;
  const LaneId member = work_.member_of(near);
  const LaneId other = work_.member_of(far);
  const bool is_near_in_place = is_in_place(near);
  const std::uint64_t bytes = is_near_in_place ? move.row_bytes / 2 : move.row_bytes;
  const std::uint64_t begin = is_near_in_place && member > other ? bytes : 0;
  const auto place_in = [begin](BufferId buffer, Place place) { return Place{buffer, place.offset + begin}; };
  const Place given = own(place_in(input_beside(near), near));
  const Place taken = own(place_in(output_beside(near), near));
  const Place exposed = expose(place_in(is_in_place(far) ? output_beside(far) : far.buffer, far));
  writes_exposed_ |= writes_flows() || !work_.exchanged_in_place.empty();
  Table& copies = part(member).copies;
  add(copies, {.source = writes_flows() ? given : exposed, .row_bytes = bytes},
      writes_flows() ? exposed : taken);
  make_swap(copies, writes_flows() ? taken : given,
            is_near_in_place ? backend::Swap::of_both_in_place : backend::Swap::with_in_place);
  connect(member, other);
  connect(other, member);
}

void RoundBuilder::sum(DType dtype, std::uint64_t count, std::span<const Place> inputs,
                       std::span<const Place> outputs) {
  const LaneId root = work_.member_of(outputs.front());
  RoundPart& adding = part(root);
  adding.dtype = dtype;
  adding.input_count = static_cast<std::uint32_t>(inputs.size());
  adding.output_count = static_cast<std::uint32_t>(outputs.size());
  kept_[root] += count * size_of(dtype);
  const auto first = static_cast<std::uint32_t>(adding.reductions.pointers.size());
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    const LaneId member = work_.member_of(inputs[i]);
    if (member == root) {
      adding.reductions.pointers.push_back(own(inputs[i]));
      continue;
    }
    adding.reductions.pointers.push_back(
        offer({.source = inputs[i], .row_bytes = count * size_of(dtype)}, root));
    connect(member, root);
  }
  adding.reductions.pointers.push_back(outputs.size() > 1 ? own(outputs.front()) : outputs.front());
  for (const Place output : outputs.subspan(1)) {
    writes_exposed_ = true;
    adding.reductions.pointers.push_back(expose(output));
    connect(work_.member_of(output), root);
  }
  adding.reductions.segments.push_back(
      {.count = count, .first_input = first, .first_output = first + adding.input_count});
}

bool RoundBuilder::fits() const {
  if (limits_.protocol == Protocol::low_latency) {
    return is_single_rows_ &&
           std::ranges::all_of(std::views::iota(std::size_t{0}, parts_.size()), [this](std::size_t member) {
             return std::max({fill_[member], sent_[member], kept_[member]}) <=
                        limits_.layout.most_in_inbox() &&
                    may_write_what_it_puts(member);
           });
  }
  return *std::ranges::max_element(fill_) <= limits_.layout.slot_bytes &&
         std::ranges::all_of(parts_, [this](const RoundPart& part) {
           return part.exposed.size() <= limits_.layout.most_exposed();
         });
}

bool RoundBuilder::may_write_what_it_puts(std::size_t member) const {
  return messages_[member].empty() || parts_[member].reductions.segments.empty() || work_.outputs_are_apart ||
         puts_what_it_adds(member) || keeps_what_it_adds(member);
}

bool RoundBuilder::puts_what_it_adds(std::size_t member) const {
  const RoundPart& part = parts_[member];
  const std::vector<Message>& messages = messages_[member];
  if (messages.size() != part.reductions.segments.size()) return false;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const backend::OrderedReductionSegment& segment = part.reductions.segments[i];
    const auto inputs = inputs_of(part, segment);
    if (messages[i].move.row_bytes != segment.count * size_of(part.dtype) ||
        std::ranges::find(inputs, own(messages[i].move.source)) == inputs.end()) {
      return false;
    }
  }
  return true;
}

bool RoundBuilder::keeps_what_it_adds(std::size_t member) const {
  const RoundPart& part = parts_[member];
  std::multimap<BufferId, Slice> added;
  for (const backend::OrderedReductionSegment& segment : part.reductions.segments) {
    const Place output = part.reductions.pointers[segment.first_output];
    const auto inputs = inputs_of(part, segment);
    const auto input = std::ranges::find_if(inputs, [this](Place place) {
      return place.buffer >= first_own_source() && place.buffer < first_inbox();
    });
    if (input == inputs.end() || input->offset != output.offset) return false;
    added.emplace(input->buffer,
                  Slice{.begin = output.offset, .end = output.offset + segment.count * size_of(part.dtype)});
  }
  return std::ranges::all_of(messages_[member], [&](const Message& message) {
    const Place source = own(message.move.source);
    const auto [first, last] = added.equal_range(source.buffer);
    return std::all_of(first, last, [&](const auto& sum) {
      return source.offset >= sum.second.end || source.offset + message.move.row_bytes <= sum.second.begin;
    });
  });
}

void RoundBuilder::finish() {
  switch (limits_.protocol) {
    case Protocol::slots:
    case Protocol::direct:
      return stagger();
    case Protocol::low_latency:
      work_.exchanged_in_place.empty() ? stagger_messages() : order_as_put();
      for (std::size_t member = 0; member < parts_.size(); ++member) {
        for (const Message& message : messages_[member])
          add(part(member).puts, message.move, message.targets);
      }
  }
}

std::size_t RoundBuilder::steps_between(std::size_t member, std::size_t other) const {
  return steps_after(member, other, parts_.size());
}

void RoundBuilder::stagger_messages() {
  for (std::size_t member = 0; member < parts_.size(); ++member) {
    std::vector<Message>& messages = messages_[member];
    const auto steps_to = [&](Place inbox) { return steps_between(member, inbox.buffer - first_inbox()); };
    for (Message& message : messages) std::ranges::sort(message.targets, {}, steps_to);
    if (puts_what_it_adds(member)) continue;
    // Messages to the same members stay in order: a relay puts as it adds.
    std::ranges::stable_sort(messages, {},
                             [&](const Message& message) { return steps_to(message.targets.front()); });
  }
}

void RoundBuilder::stagger() {
  for (std::size_t reader = 0; reader < parts_.size(); ++reader) {
    std::vector<backend::FanOutSegment>& segments = parts_[reader].copies.segments;
    const auto other_of = [&](const backend::FanOutSegment& segment) {
      const std::uint32_t place = writes_flows() ? segment.first_target : segment.source;
      return owner(parts_[reader].copies.pointers[place], reader);
    };
    std::ranges::stable_sort(segments, {}, [&](const backend::FanOutSegment& segment) {
      return steps_between(reader, other_of(segment));
    });
    std::uint64_t own_bytes = 0;
    bool are_single_rows = true;
    for (const backend::FanOutSegment& segment : segments) {
      are_single_rows &= segment.rows == 1;
      if (other_of(segment) == reader) own_bytes += segment.row_bytes;
    }
    if (are_single_rows && own_bytes >= much_of_its_own) cut_into_slices(parts_[reader].copies);
  }
}

void RoundBuilder::order_as_put() {
  // Messages to other members and copies from them are in order of these members already.
  for (RoundPart& part : parts_) {
    std::ranges::stable_partition(part.copies.segments, [&](const backend::FanOutSegment& segment) {
      return part.copies.pointers[segment.source].buffer >= first_inbox();
    });
  }
}

std::size_t RoundBuilder::owner(Place place, std::size_t reader) const {
  if (place.buffer < first_own_source()) return place.buffer - work_.homes.size();
  if (place.buffer < first_inbox()) return reader;
  return (place.buffer - first_exposed()) / limits_.layout.most_exposed();
}

void RoundBuilder::cut_into_slices(Table& table) {
  Table cut;
  for (std::uint64_t slice = 0; slice < slice_count; ++slice) {
    for (const backend::FanOutSegment& segment : table.segments) {
      const std::uint64_t step = round_up(divide_up(segment.row_bytes, slice_count), split_alignment);
      const std::uint64_t begin = std::min(slice * step, segment.row_bytes);
      Move move{.source = table.pointers[segment.source],
                .row_bytes = std::min(begin + step, segment.row_bytes) - begin,
                .rows = 1};
      if (move.row_bytes == 0) continue;
      move.source.offset += begin;
      Place target = table.pointers[segment.first_target];
      target.offset += begin;
      add(cut, move, target);
      if (segment.swap == backend::Swap::never) continue;
      Place other_way = table.pointers[segment.first_target + 1];
      other_way.offset += begin;
      make_swap(cut, other_way, segment.swap);
    }
  }
  table = std::move(cut);
}

Place RoundBuilder::offer(const Move& move, LaneId reader) {
  switch (limits_.protocol) {
    case Protocol::slots:
      break;
    case Protocol::direct:
      return expose(move.source);
    case Protocol::low_latency:
      return send(move, reader);
  }
  return put(move);
}

Place RoundBuilder::put(const Move& move) {
  const LaneId member = work_.member_of(move.source);
  const auto [known, is_new] = put_.try_emplace(key_of(move), fill_[member]);
  const Place slot{static_cast<BufferId>(work_.homes.size() + member), known->second};
  if (is_new) {
    Move packed = move;
    packed.target_pitch = move.row_bytes;
    add(part(member).puts, packed, slot);
    fill_[member] += round_up(move.row_bytes * move.rows, message_alignment);
  }
  return slot;
}

Place RoundBuilder::expose(Place source) {
  const LaneId member = work_.member_of(source);
  std::vector<BufferId>& exposed = part(member).exposed;
  const auto [known, is_new] = exposed_.try_emplace(
      source.buffer, std::uint64_t{member} * limits_.layout.most_exposed() + exposed.size());
  if (is_new) exposed.push_back(source.buffer);
  return {static_cast<BufferId>(first_exposed() + known->second), source.offset};
}

Place RoundBuilder::send(const Move& move, LaneId reader) {
  const LaneId member = work_.member_of(move.source);
  const auto [known, is_new] = put_.try_emplace(key_of(move), messages_[member].size());
  if (is_new) messages_[member].push_back({.move = move, .targets = {}});
  std::vector<Place>& targets = messages_[member][known->second].targets;
  const auto inbox = static_cast<BufferId>(first_inbox() + reader);
  const auto sent = std::ranges::find(targets, inbox, &Place::buffer);
  if (sent != targets.end()) return *sent;
  const std::uint64_t bytes = round_up(move.row_bytes, limits_.layout.message_alignment());
  targets.push_back({inbox, limits_.layout.in_lines(fill_[reader])});
  fill_[reader] += bytes;
  sent_[member] += bytes;
  return targets.back();
}

void RoundBuilder::connect(LaneId source, LaneId reader) {
  add_once(part(source).readers, reader);
  add_once(part(reader).sources, source);
}

void RoundBuilder::add(Table& table, const Move& move, std::span<const Place> targets) {
  append(move, targets, table.segments, table.pointers);
}

void RoundBuilder::add(Table& table, const Move& move, Place target) {
  add(table, move, std::span(&target, 1));
}

void RoundBuilder::make_swap(Table& table, Place other_way, backend::Swap swap) {
  table.pointers.push_back(other_way);
  table.segments.back().swap = swap;
}

}  // namespace tutti::transport::team
