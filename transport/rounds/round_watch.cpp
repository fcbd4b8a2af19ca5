// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/round_watch.hpp"

#include <algorithm>

namespace tutti::transport::team {
namespace {

/// Collects accesses before a member has waited for others: what it puts, and the memory that it exposes,
/// which others read or write, for which it waits.
class EarlyAccesses {
 public:
  EarlyAccesses(const RoundPlan& plan, const backend::TeamWindowLayout& layout,
                std::span<std::byte* const> addresses)
      : plan_(plan), layout_(layout), addresses_(addresses), accesses_(plan.parts.size()) {}

  void add(std::size_t local, const RoundPart& part) {
    for (const backend::FanOutSegment& put : part.puts.segments) {
      const Place source = part.puts.pointers[put.source];
      for (std::uint64_t row = 0; row < put.rows; ++row) {
        const std::uint64_t offset = source.offset + row * put.source_pitch;
        accesses_[local].push_back({.address = addresses_[source.buffer] + offset, .bytes = put.row_bytes});
      }
    }
    for (const BufferId buffer : part.exposed) {
      if (!std::ranges::binary_search(plan_.in_place, buffer)) continue;
      accesses_[local].push_back(
          {.address = addresses_[buffer], .bytes = plan_.reaches[buffer], .writes = true});
    }
    for (const backend::FanOutSegment& copy : part.copies.segments) {
      const Place source = part.copies.pointers[copy.source];
      for (std::uint64_t row = 0; row < copy.rows; ++row)
        add(part.round, {source.buffer, source.offset + row * copy.source_pitch}, copy.row_bytes);
      for (std::uint32_t i = 0; i < copy.target_count; ++i) {
        const Place target = part.copies.pointers[copy.first_target + i];
        for (std::uint64_t row = 0; row < copy.rows; ++row)
          add(part.round, {target.buffer, target.offset + row * copy.target_pitch}, copy.row_bytes, true);
      }
    }
    for (const backend::OrderedReductionSegment& sum : part.reductions.segments) {
      const std::uint64_t bytes = sum.count * size_of(part.dtype);
      for (std::uint32_t i = 0; i < part.input_count; ++i)
        add(part.round, part.reductions.pointers[sum.first_input + i], bytes);
      for (std::uint32_t i = 0; i < part.output_count; ++i)
        add(part.round, part.reductions.pointers[sum.first_output + i], bytes, true);
    }
  }
  /// By local member.
  [[nodiscard]] const std::vector<std::vector<backend::WatchedAccess>>& all() const noexcept {
    return accesses_;
  }

 private:
  void add(std::uint32_t round, Place place, std::uint64_t bytes, bool writes = false) {
    if (place.buffer < plan_.exposed_buffer(0)) return;
    const std::uint64_t number = place.buffer - plan_.exposed_buffer(0);
    const std::uint64_t member = number / layout_.most_exposed();
    if (member < plan_.first_local || member - plan_.first_local >= plan_.parts.size()) return;
    const std::size_t local = member - plan_.first_local;
    const std::vector<RoundPart>& parts = plan_.parts[local];
    const auto giver = std::ranges::find(parts, round, &RoundPart::round);
    if (giver == parts.end()) return;
    const std::byte* const exposed = addresses_[giver->exposed[number % layout_.most_exposed()]];
    accesses_[local].push_back({.address = exposed + place.offset, .bytes = bytes, .writes = writes});
  }

  const RoundPlan& plan_;
  const backend::TeamWindowLayout& layout_;
  std::span<std::byte* const> addresses_;
  std::vector<std::vector<backend::WatchedAccess>> accesses_;
};

/// By local member, whom it follows.
using Followed = std::vector<std::vector<bool>>;

void note_followed(Followed& followed, const Followed& before, std::size_t later, std::size_t earlier) {
  followed[later][earlier] = true;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (before[earlier][i]) followed[later][i] = true;
  }
}

}  // namespace

std::vector<backend::MeetingOrder> orders_after(const RoundPlan& plan) {
  const std::size_t locals = plan.parts.size();
  Followed followed(locals, std::vector<bool>(locals, locals < plan.member_count));
  if (locals == plan.member_count) {
    for (std::uint32_t round = 1; round <= plan.round_count; ++round) {
      const Followed before = followed;
      for (std::size_t local = 0; local < locals; ++local) {
        const auto part = std::ranges::find(plan.parts[local], round, &RoundPart::round);
        if (part == plan.parts[local].end()) continue;
        for (const std::uint32_t source : part->sources) note_followed(followed, before, local, source);
        if (part->exposed.empty()) continue;
        for (const std::uint32_t reader : part->readers) note_followed(followed, before, local, reader);
      }
    }
  }
  std::vector<backend::MeetingOrder> orders;
  for (std::size_t later = 0; later < locals; ++later) {
    for (std::size_t earlier = 0; earlier < locals; ++earlier) {
      if (followed[later][earlier] && earlier != later) orders.push_back({earlier, later});
    }
  }
  return orders;
}

void tell_of_rounds(backend::Backend& backend, const RoundPlan& plan, const backend::TeamWindowLayout& layout,
                    std::span<std::byte* const> addresses, std::span<const backend::StreamRef> streams) {
  EarlyAccesses early(plan, layout, addresses);
  for (std::size_t local = 0; local < plan.parts.size(); ++local) {
    for (const RoundPart& part : plan.parts[local]) early.add(local, part);
  }
  for (std::size_t local = 0; local < streams.size(); ++local) {
    if (!early.all()[local].empty())
      backend.accesses(streams[local], "what a member puts or gives in rounds", early.all()[local]);
  }
  if (const auto meeting = backend.begin_meeting(streams)) backend.end_meeting(meeting, orders_after(plan));
}

}  // namespace tutti::transport::team
