// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/round_choice.hpp"

#include <algorithm>
#include <limits>

#include <fmt/format.h>

namespace tutti::transport::team {
namespace {

/// A thread adds 16 bytes of a message at a time, but the last one of a wide line has 8.
bool lines_divide_elements(const CallShape& shape, const TeamCapabilities& capabilities) noexcept {
  return capabilities.layout.lines == backend::TeamLines::wide && shape.inseparable_bytes > 8;
}

/// Returns the most bytes that a member may send or receive in low-latency rounds.
std::uint64_t low_latency_limit(const CallShape& shape, const TeamCapabilities& capabilities) noexcept {
  if (lines_divide_elements(shape, capabilities)) return 0;
  // Messages start at multiples of so much, and shares are cut at multiples of `split_alignment`.
  const std::uint64_t padding =
      (shape.members - 1) * (shape.tensors * capabilities.layout.message_alignment() + split_alignment);
  const std::uint64_t room = capabilities.layout.most_in_inbox();
  return std::min(low_latency_to(shape.collective, capabilities.layout.lines, capabilities.backend),
                  room - std::min(room, padding));
}

/// Returns the size above which direct rounds are faster, if they are possible.
std::uint64_t low_latency_limit(const CallShape& shape, const TeamCapabilities& capabilities,
                                bool may_be_direct) noexcept {
  const std::uint64_t limit = low_latency_limit(shape, capabilities);
  return may_be_direct && shape.members == 2 ? std::min(limit, direct_overtakes_from(shape.collective))
                                             : limit;
}

std::uint64_t most_kept(const CallShape& shape) noexcept {
  return shape.counted ? shape.counted->most_kept : 0;
}

bool can_relay(const CallShape& shape, const TeamCapabilities& capabilities) noexcept {
  const std::uint64_t limit = low_latency_limit(shape, capabilities);
  if (shape.members < 3 || limit == 0 || !capabilities.may_relay) return false;
  const RoundTuning tuning = round_tuning_of(capabilities.backend);
  const std::uint64_t busiest = shape.busiest_member();
  switch (shape.collective) {
    case Collective::all_reduce:
      return busiest > std::min(tuning.sums_relayed_from_sent, limit) && busiest / shape.members <= limit;
    case Collective::reduce:
      return busiest > std::min(tuning.root_sums_relayed_from, limit) && shape.payload <= limit;
    case Collective::broadcast:
      return busiest > std::min(tuning.copies_relayed_from_sent, limit) && shape.payload <= limit;
    default:
      return false;
  }
}

bool can_expose_all(const CallShape& shape, const TeamCapabilities& capabilities) noexcept {
  return 2 * shape.tensors * capabilities.most_members_of_a_rank <= capabilities.most_exposed;
}

bool can_be_direct(const CallShape& shape, const TeamCapabilities& capabilities) noexcept {
  return can_expose_all(shape, capabilities) &&
         shape.largest_message() > round_tuning_of(capabilities.backend).direct_from &&
         shape.largest_tensor < backend::SourcePlace::most_bytes;
}

/// Returns true if members write in both directions what they would otherwise read in both. For an all_to_all
/// that takes no more copies of memory that others cannot reach; for an all_gather, each member's whole
/// output instead of its part.
bool is_better_written(const CallShape& shape, const TeamCapabilities& capabilities) noexcept {
  return shape.collective == Collective::all_to_all &&
         shape.largest_message() > round_tuning_of(capabilities.backend).written_from;
}

std::string reason_against_low_latency(const CallShape& shape, const TeamCapabilities& capabilities) {
  const std::uint64_t limit = low_latency_limit(shape, capabilities);
  if (lines_divide_elements(shape, capabilities))
    return fmt::format("low-latency lines would split elements of {} bytes", shape.inseparable_bytes);
  if (limit == 0) return "there is no low latency";
  if (shape.has_rows_apart) return "rows are apart in memory";
  if (shape.busiest_member() <= limit)
    return fmt::format("a member keeps {} bytes, low latency carries up to {}", most_kept(shape), limit);
  return fmt::format("a member sends or receives {} bytes, low latency carries up to {}",
                     shape.busiest_member(), limit);
}

/// Returns why operands are not read in place.
std::string reason_against_direct(const CallShape& shape, const TeamCapabilities& capabilities) {
  const std::uint64_t direct_from = round_tuning_of(capabilities.backend).direct_from;
  if (capabilities.most_exposed == 0) {
    return capabilities.windows == TransportKind::p2p ? "members do not open one another's operands"
                                                      : "members do not reach one another's memory";
  }
  if (!can_expose_all(shape, capabilities))
    return fmt::format("more than {} operands of a rank would have to be opened", capabilities.most_exposed);
  if (shape.largest_message() <= direct_from)
    return fmt::format("operands are read in place above {} bytes", direct_from);
  return fmt::format("a tensor of {} bytes is too large", shape.largest_tensor);
}

}  // namespace

std::uint64_t direct_messages_from(const TeamCapabilities& capabilities) noexcept {
  if (capabilities.most_exposed == 0) return std::numeric_limits<std::uint64_t>::max();
  return std::max(link_tuning_of(capabilities.backend).direct_from, capabilities.layout.most_in_lines());
}

std::uint64_t message_bytes(const TeamCapabilities& capabilities) noexcept {
  return std::min(round_tuning_of(capabilities.backend).message_bytes, capabilities.layout.slot_bytes);
}

RoundChoice choose_rounds(const CallShape& shape, const TeamCapabilities& capabilities) noexcept {
  if (shape.members < 2) return {};
  if (can_relay(shape, capabilities)) return {.protocol = Protocol::low_latency, .is_relayed = true};
  const bool may_be_direct = can_be_direct(shape, capabilities);
  const std::uint64_t limit = low_latency_limit(shape, capabilities, may_be_direct);
  if (!shape.has_rows_apart && std::max(shape.busiest_member(), most_kept(shape)) <= limit)
    return {.protocol = Protocol::low_latency};
  if (!may_be_direct) return {.protocol = Protocol::slots};
  return {.protocol = Protocol::direct, .is_written = is_better_written(shape, capabilities)};
}

LowLatencyLimits low_latency_limits(std::size_t members, const TeamCapabilities& capabilities) noexcept {
  LowLatencyLimits limits{.least = std::numeric_limits<std::uint64_t>::max(), .most = 0};
  for (std::size_t value = 0; value < collective_count; ++value) {
    const auto collective = static_cast<Collective>(value);
    if (!moves_tensors(collective)) continue;
    const CallShape shape{.collective = collective, .members = members};
    const std::uint64_t limit = low_latency_limit(shape, capabilities, can_expose_all(shape, capabilities));
    limits = {.least = std::min(limits.least, limit), .most = std::max(limits.most, limit)};
  }
  return limits;
}

std::string reason_for(const CallShape& shape, const TeamCapabilities& capabilities, RoundChoice rounds) {
  if (shape.members < 2) return "there is one member";
  const std::uint64_t busiest = shape.busiest_member();
  if (rounds.is_relayed) {
    return fmt::format(
        "members pass shares on with low latency: otherwise one member would send or receive {} bytes",
        busiest);
  }
  switch (rounds.protocol) {
    case Protocol::low_latency:
      return fmt::format("no member sends or receives more than {} bytes; low latency carries up to {}",
                         busiest, low_latency_limit(shape, capabilities, can_be_direct(shape, capabilities)));
    case Protocol::direct:
      return fmt::format(
          "members exchange up to {} bytes, which are {} in place above {}; low latency carries up to {}",
          shape.largest_message(), rounds.is_written ? "written" : "read",
          rounds.is_written ? round_tuning_of(capabilities.backend).written_from
                            : round_tuning_of(capabilities.backend).direct_from,
          low_latency_limit(shape, capabilities, true));
    case Protocol::slots:
      break;
  }
  return fmt::format("through slots, in pieces of up to {} bytes: {}; {}", message_bytes(capabilities),
                     reason_against_low_latency(shape, capabilities),
                     reason_against_direct(shape, capabilities));
}

bool rounds_match_nccl(const CallShape& shape, const TeamCapabilities& capabilities,
                       RoundChoice rounds) noexcept {
  const bool is_list = shape.tensors > 1;
  const RoundZones zones = round_zones_of(shape.collective, shape.members, is_list);
  // It has no call for unequal parts: each would be a call of its own.
  if (shape.counted && rounds.protocol != Protocol::slots) return true;
  switch (rounds.protocol) {
    case Protocol::slots:
      return shape.payload <= zones.rounds_to && shape.largest_message() <= message_bytes(capabilities);
    case Protocol::direct:
      return shape.payload <= zones.rounds_to ||
             (shape.payload >= zones.direct_from && shape.payload <= zones.direct_to);
    case Protocol::low_latency:
      return shape.payload <= zones.rounds_to ||
             (capabilities.layout.lines == backend::TeamLines::wide &&
              shape.payload <= wide_lines_beat_nccl_to(shape.collective, shape.members, is_list));
  }
  return false;
}

}  // namespace tutti::transport::team
