#include "transport/ranks/round_plan.hpp"

#include "backend/team_round.hpp"
#include "transport/pieces.hpp"
#include "transport/tuning.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <ranges>
#include <set>
#include <span>
#include <tuple>
#include <utility>

namespace tutti::transport::ranks {
namespace {

/// Keeps kernels on their wide path.
constexpr std::uint64_t message_alignment = 16;

/// Copies within a device that take as long as half a dozen of its loads from a peer.
constexpr std::uint64_t much_of_its_own = std::uint64_t{2} << 20U;
constexpr std::uint64_t slices = 8;

constexpr std::uint64_t divide_up(std::uint64_t a, std::uint64_t b) {
  return (a + b - 1) / b;
}

void add_once(std::vector<std::uint32_t>& members, LaneId member) {
  if (std::ranges::find(members, member) == members.end()) members.push_back(member);
}

/// A round under construction: all members' parts.
class Round {
 public:
  Round(const TeamWork& work, std::size_t members, const RoundLimits& limits)
      : work_(work),
        limits_(limits),
        parts_(members),
        messages_(members),
        fill_(members),
        sent_(members),
        kept_(members),
        has_part_(members) {}

  /// A rectangle that `source`'s member offers and `target`'s copies.
  void copy(const Move& move, Place target) {
    const LaneId member = work_.member_of(move.source);
    const LaneId reader = work_.member_of(target);
    is_single_rows_ &= move.rows == 1;
    Move offered = move;
    if (member == reader) {
      kept_[member] += move.row_bytes * move.rows;
      offered.source = own(move.source);
      add(part(member).copies, offered, target);
      return;
    }
    offered.source = offer(move, reader);
    if (limits_.protocol != Protocol::direct) offered.source_pitch = move.row_bytes;
    connect(member, reader);
    add(part(reader).copies, offered, target);
  }
  void sum(DType dtype, std::uint64_t count, std::span<const Place> inputs, Place output) {
    const LaneId root = work_.member_of(output);
    RoundPart& adding = part(root);
    adding.dtype = dtype;
    adding.input_count = static_cast<std::uint32_t>(inputs.size());
    kept_[root] += count * size_of(dtype);
    const auto first = static_cast<std::uint32_t>(adding.sums.pointers.size());
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const LaneId member = work_.member_of(inputs[i]);
      if (member == root) {
        adding.sums.pointers.push_back(own(inputs[i]));
        continue;
      }
      adding.sums.pointers.push_back(offer({.source = inputs[i], .row_bytes = count * size_of(dtype)}, root));
      connect(member, root);
    }
    adding.sums.pointers.push_back(output);
    adding.sums.segments.push_back(
        {.count = count, .first_input = first, .first_output = first + adding.input_count});
  }

  [[nodiscard]] bool has_part(std::size_t member) const { return has_part_[member]; }
  [[nodiscard]] RoundPart& part(std::size_t member) {
    has_part_[member] = true;
    return parts_[member];
  }
  /// When all work has been added.
  void finish() {
    switch (limits_.protocol) {
      case Protocol::slots:
      case Protocol::direct:
        return stagger();
      case Protocol::low_latency:
        for (std::size_t member = 0; member < parts_.size(); ++member) {
          for (const Message& message : messages_[member])
            add(part(member).puts, message.move, message.targets);
        }
    }
  }
  /// Whether the round can be carried out.
  [[nodiscard]] bool fits() const {
    if (limits_.protocol == Protocol::low_latency) {
      return is_single_rows_ &&
             std::ranges::all_of(std::views::iota(std::size_t{0}, parts_.size()), [this](std::size_t member) {
               return std::max({fill_[member], sent_[member], kept_[member]}) <= limits_.low_latency_bytes &&
                      may_write_what_it_puts(member);
             });
    }
    return *std::ranges::max_element(fill_) <= limits_.slot_bytes &&
           std::ranges::all_of(
               parts_, [this](const RoundPart& part) { return part.given.size() <= limits_.most_given; });
  }

 private:
  /// What a member puts into inboxes.
  struct Message {
    Move move;
    std::vector<Place> targets;
  };

  /// Every member copies from the member after it first, and from those before it later: if all began with
  /// the same one, its link would hold up all of them. What it has itself comes last; if that is much, it is
  /// copied slice by slice beside the rest, as it takes another way.
  void stagger() {
    for (std::size_t reader = 0; reader < parts_.size(); ++reader) {
      std::vector<backend::FanOutSegment>& segments = parts_[reader].copies.segments;
      const auto source_of = [&](const backend::FanOutSegment& segment) {
        return owner(parts_[reader].copies.pointers[segment.source], reader);
      };
      const auto distance = [&](const backend::FanOutSegment& segment) {
        return (source_of(segment) + parts_.size() - reader - 1) % parts_.size();
      };
      std::ranges::stable_sort(segments, {}, distance);
      std::uint64_t own_bytes = 0;
      bool are_single_rows = true;
      for (const backend::FanOutSegment& segment : segments) {
        are_single_rows &= segment.rows == 1;
        if (source_of(segment) == reader) own_bytes += segment.row_bytes;
      }
      if (are_single_rows && own_bytes >= much_of_its_own) cut_into_slices(parts_[reader].copies);
    }
  }

  // Buffers beyond the work's: see `RoundPlan`.
  [[nodiscard]] std::size_t first_own_source() const { return work_.homes.size() + parts_.size(); }
  [[nodiscard]] std::size_t first_inbox() const { return first_own_source() + work_.homes.size(); }
  [[nodiscard]] std::size_t first_given() const { return first_inbox() + parts_.size(); }
  [[nodiscard]] Place own(Place source) const {
    return {static_cast<BufferId>(first_own_source() + source.buffer), source.offset};
  }
  /// Where `reader`, another member, finds the bytes of a rectangle.
  [[nodiscard]] Place offer(const Move& move, LaneId reader) {
    switch (limits_.protocol) {
      case Protocol::slots:
        break;
      case Protocol::direct:
        return give(move.source);
      case Protocol::low_latency:
        return send(move, reader);
    }
    return put(move);
  }
  /// Into the reader's inbox, once.
  [[nodiscard]] Place send(const Move& move, LaneId reader) {
    const LaneId member = work_.member_of(move.source);
    const auto [known, is_new] = put_.try_emplace(key_of(move), messages_[member].size());
    if (is_new) messages_[member].push_back({.move = move, .targets = {}});
    std::vector<Place>& targets = messages_[member][known->second].targets;
    const auto inbox = static_cast<BufferId>(first_inbox() + reader);
    const auto sent = std::ranges::find(targets, inbox, &Place::buffer);
    if (sent != targets.end()) return *sent;
    const std::uint64_t bytes = divide_up(move.row_bytes, message_alignment) * message_alignment;
    targets.push_back({inbox, backend::TeamWindowLayout::in_lines(fill_[reader])});
    fill_[reader] += bytes;
    sent_[member] += bytes;
    return targets.back();
  }
  /// Whether each sum of the member, if it puts something too, has as its own input what is put at the same
  /// place in the list.
  [[nodiscard]] bool may_write_what_it_puts(std::size_t member) const {
    const RoundPart& part = parts_[member];
    const std::vector<Message>& messages = messages_[member];
    if (messages.empty() || part.sums.segments.empty() || work_.outputs_are_apart) return true;
    if (messages.size() != part.sums.segments.size()) return false;
    for (std::size_t i = 0; i < messages.size(); ++i) {
      const backend::OrderedSumSegment& segment = part.sums.segments[i];
      const auto inputs = std::span(part.sums.pointers).subspan(segment.first_input, part.input_count);
      if (messages[i].move.row_bytes != segment.count * size_of(part.dtype) ||
          std::ranges::find(inputs, own(messages[i].move.source)) == inputs.end()) {
        return false;
      }
    }
    return true;
  }
  /// In memory of `source`'s member.
  [[nodiscard]] Place give(Place source) {
    const LaneId member = work_.member_of(source);
    std::vector<BufferId>& given = part(member).given;
    const auto [known, is_new] =
        given_.try_emplace(source.buffer, std::uint64_t{member} * limits_.most_given + given.size());
    if (is_new) given.push_back(source.buffer);
    return {static_cast<BufferId>(first_given() + known->second), source.offset};
  }
  /// Packed, in the slot of `source`'s member. Each rectangle is put once.
  [[nodiscard]] Place put(const Move& move) {
    const LaneId member = work_.member_of(move.source);
    const auto [known, is_new] = put_.try_emplace(key_of(move), fill_[member]);
    const Place slot{static_cast<BufferId>(work_.homes.size() + member), known->second};
    if (is_new) {
      Move packed = move;
      packed.target_pitch = move.row_bytes;
      add(part(member).puts, packed, slot);
      fill_[member] += divide_up(move.row_bytes * move.rows, message_alignment) * message_alignment;
    }
    return slot;
  }
  /// The member whose slot or memory a source of `reader` is in.
  [[nodiscard]] std::size_t owner(Place source, std::size_t reader) const {
    if (source.buffer < first_own_source()) return source.buffer - work_.homes.size();
    if (source.buffer < first_inbox()) return reader;
    return (source.buffer - first_given()) / limits_.most_given;
  }
  /// The first slices of all segments, then the second ones, and so on.
  static void cut_into_slices(RoundPart::Table<backend::FanOutSegment>& table) {
    RoundPart::Table<backend::FanOutSegment> cut;
    for (std::uint64_t slice = 0; slice < slices; ++slice) {
      for (const backend::FanOutSegment& segment : table.segments) {
        const std::uint64_t step =
            divide_up(divide_up(segment.row_bytes, slices), split_alignment) * split_alignment;
        const std::uint64_t begin = std::min(slice * step, segment.row_bytes);
        Move move{.source = table.pointers[segment.source],
                  .row_bytes = std::min(begin + step, segment.row_bytes) - begin,
                  .rows = 1};
        if (move.row_bytes == 0) continue;
        move.source.offset += begin;
        Place target = table.pointers[segment.first_target];
        target.offset += begin;
        add(cut, move, target);
      }
    }
    table = std::move(cut);
  }
  using Rectangle = std::tuple<BufferId, std::uint64_t, std::uint64_t, std::uint64_t, std::uint64_t>;
  [[nodiscard]] static Rectangle key_of(const Move& move) {
    return {move.source.buffer, move.source.offset, move.row_bytes, move.rows, move.source_pitch};
  }
  static void add(RoundPart::Table<backend::FanOutSegment>& table, const Move& move,
                  std::span<const Place> targets) {
    const auto source = static_cast<std::uint32_t>(table.pointers.size());
    table.pointers.push_back(move.source);
    table.pointers.insert(table.pointers.end(), targets.begin(), targets.end());
    table.segments.push_back({.row_bytes = move.row_bytes,
                              .source_pitch = move.source_pitch,
                              .target_pitch = move.target_pitch,
                              .rows = static_cast<std::uint32_t>(move.rows),
                              .source = source,
                              .first_target = source + 1,
                              .target_count = static_cast<std::uint32_t>(targets.size())});
  }
  static void add(RoundPart::Table<backend::FanOutSegment>& table, const Move& move, Place target) {
    add(table, move, std::span(&target, 1));
  }
  void connect(LaneId source, LaneId reader) {
    add_once(part(source).readers, reader);
    add_once(part(reader).sources, source);
  }

  const TeamWork& work_;
  const RoundLimits& limits_;
  std::vector<RoundPart> parts_;
  std::vector<std::vector<Message>> messages_;  ///< by member, with low latency
  std::vector<std::uint64_t> fill_;             ///< by member: bytes in its slot or inbox
  std::vector<std::uint64_t> sent_;             ///< by member, with low latency: bytes it puts into inboxes
  /// By member: bytes it copies within its own memory, and of sums it makes. Others may not know of copies,
  /// but where there are others, such bytes are also sent.
  std::vector<std::uint64_t> kept_;
  bool is_single_rows_ = true;  ///< all that is copied
  std::vector<bool> has_part_;
  std::map<Rectangle, std::uint64_t> put_;   ///< to the place in the slot, or the number of the message
  std::map<BufferId, std::uint64_t> given_;  ///< the number of each buffer's address
};

/// Items that are cut into rounds together: every round takes an even share of each group.
struct Group {
  std::vector<std::size_t> items;
  std::vector<std::uint64_t> sizes;  ///< bytes
};

class Lowering {
 public:
  Lowering(const TeamWork& work, std::size_t members, const RoundLimits& limits)
      : work_(work), members_(members), limits_(limits) {}

  /// Nothing if the protocol cannot carry the work; slots can carry everything.
  [[nodiscard]] std::optional<std::vector<Round>> run() {
    for (const TeamWork::Stage& stage : work_.stages) {
      add_sums(stage.reductions);
      add_flows(stage.flows);
    }
    if (limits_.protocol == Protocol::low_latency && rounds_.empty()) return std::nullopt;
    if (!std::ranges::all_of(rounds_, &Round::fits)) return std::nullopt;
    for (Round& round : rounds_) round.finish();
    return std::move(rounds_);
  }

 private:
  /// Sums of one element type at a time: a part adds elements of one type.
  void add_sums(std::span<const Reduction> reductions) {
    std::map<DType, std::map<LaneId, Group>> by_type;
    for (std::size_t i = 0; i < reductions.size(); ++i) {
      Group& group = by_type[reductions[i].dtype][work_.member_of(reductions[i].output)];
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
      add_rounds(groups, messages, [&](Round& round, const Slice& slice, std::size_t item) {
        const Reduction& reduction = reductions[item];
        const std::uint64_t width = size_of(reduction.dtype);
        const Place output{reduction.output.buffer, reduction.output.offset + slice.begin};
        round.sum(reduction.dtype, (slice.end - slice.begin) / width,
                  shifted(work_.places_of(reduction.inputs), slice.begin), output);
      });
    }
  }

  void add_flows(std::span<const Flow> flows) {
    // Flows along one route are one sequence of bytes.
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
    add_rounds(groups, messages, [&](Round& round, const Slice& slice, std::size_t item) {
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
      std::vector<Round> rounds(count, Round(work_, members_, limits_));
      for (const Group& group : groups) {
        const auto cuts = split_evenly(group.sizes, count, split_alignment);
        for (std::size_t round = 0; round < cuts.size(); ++round) {
          for (const Slice& slice : cuts[round]) add_slice(rounds[round], slice, group.items[slice.item]);
        }
      }
      if (!needs_cuts || std::ranges::all_of(rounds, &Round::fits)) {
        std::ranges::move(rounds, std::back_inserter(rounds_));
        return;
      }
      if (count > largest) throw Error(ErrorCode::internal, "plan_rounds: a message fits in no slot");
    }
  }

  const TeamWork& work_;
  std::size_t members_;
  const RoundLimits& limits_;
  std::vector<Round> rounds_;
};

/// Numbers each own member's parts.
RoundPlan number(std::vector<Round>& rounds, const TeamWork& work, Protocol protocol, std::size_t members,
                 std::size_t first_own, std::size_t own_count) {
  RoundPlan plan;
  plan.protocol = protocol;
  plan.operand_count = work.homes.size();
  plan.member_count = members;
  plan.round_count = static_cast<std::uint32_t>(rounds.size());
  for (std::size_t member = first_own; member < first_own + own_count; ++member) {
    std::vector<RoundPart>& parts = plan.parts.emplace_back();
    // Before its first part a member says nothing: others must not get as far as to wait for it meanwhile.
    const auto first =
        std::ranges::find_if(rounds, [&](const Round& round) { return round.has_part(member); });
    if (first - rounds.begin() >= backend::TeamWindowLayout::slot_count)
      static_cast<void>(rounds[0].part(member));
    for (std::uint32_t round = 1; round <= plan.round_count; ++round) {
      if (!rounds[round - 1].has_part(member)) continue;
      if (!parts.empty()) parts.back().finished = round - 1;
      parts.push_back(std::move(rounds[round - 1].part(member)));
      parts.back().round = round;
    }
    if (parts.empty() && plan.round_count > 0) parts.emplace_back().round = plan.round_count;
    if (!parts.empty()) parts.back().finished = plan.round_count;
    std::set<BufferId> given;
    for (const RoundPart& part : parts) given.insert(part.given.begin(), part.given.end());
    plan.given.emplace_back(given.begin(), given.end());
    if (protocol == Protocol::low_latency || work.outputs_are_apart) continue;
    for (RoundPart& part : parts) {
      if (part.puts.segments.empty() || part.sums.segments.empty()) continue;
      // An output may be the input: all of it must have been put before any of it is written.
      add_once(part.readers, static_cast<LaneId>(member));
      add_once(part.sources, static_cast<LaneId>(member));
    }
  }
  return plan;
}

}  // namespace

RoundPlan plan_rounds(const TeamWork& work, std::size_t members, std::size_t first_own, std::size_t own_count,
                      const RoundLimits& limits) {
  // All processes see all members' parts, and so all come to the same.
  std::optional<std::vector<Round>> rounds = Lowering(work, members, limits).run();
  if (rounds) return number(*rounds, work, limits.protocol, members, first_own, own_count);
  RoundLimits through_slots = limits;
  through_slots.protocol = Protocol::slots;
  rounds = Lowering(work, members, through_slots).run();
  return number(*rounds, work, Protocol::slots, members, first_own, own_count);
}

RoundPlan plan_barrier(std::size_t members, std::size_t first_own, std::size_t own_count) {
  const TeamWork nothing;
  const RoundLimits no_limits;
  std::vector<Round> rounds(1, Round(nothing, members, no_limits));
  for (std::size_t member = first_own; member < first_own + own_count; ++member) {
    RoundPart& part = rounds.front().part(member);
    for (std::uint32_t other = 0; other < members; ++other) {
      if (other == member) continue;
      part.readers.push_back(other);
      part.sources.push_back(other);
    }
  }
  return number(rounds, nothing, Protocol::slots, members, first_own, own_count);
}

}  // namespace tutti::transport::ranks
