// SPDX-License-Identifier: Apache-2.0
#include "collectives/call/describe.hpp"

#include "transport/plan/tuning.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

namespace tutti::collectives {
namespace {

using transport::BufferId;
using transport::Flow;
using transport::Place;
using transport::PlaceRange;
using transport::Problem;
using transport::Reduction;

/// Rows of operands next to one another.
struct Rows {
  std::size_t first = 0;
  std::size_t count = 0;
};

class Describer {
 public:
  Describer(const Request& request, Problem& problem)
      : problem_(problem),
        request_(request),
        columns_(request.columns),
        parts_(request.parts),
        traits_(traits_of(request.collective)),
        inputs_(input_rows()),
        outputs_(output_rows()) {}

  void broadcast() {
    const auto& [sizes, left_alone] = request_.copied();
    for (std::size_t column = 0; column < columns_; ++column) {
      add_tensor(sizes[column]);
      add_flows(input(0, column), sizes[column], 0, column, left_alone);
    }
  }

  void all_gather() {
    const auto& [sizes, left_alone] = request_.copied();
    for (std::size_t column = 0; column < columns_; ++column) {
      add_tensor(sizes[column]);
      std::uint64_t offset = 0;
      for (std::size_t member = 0; member < inputs_.count; ++member) {
        const std::uint64_t bytes = length_of_part(member, sizes[column]);
        add_flows(input(member, column), bytes, offset, column, left_alone);
        offset += bytes;
      }
    }
    if (parts_.empty()) problem_.shape.payload *= inputs_.count;
  }

  /// Adds a flow from every input to every output.
  void all_to_all() {
    const auto& [sizes, left_alone] = request_.copied();
    problem_.outputs_are_apart = left_alone.empty();
    for (const std::uint64_t output : left_alone)
      problem_.exchanged_in_place.push_back(static_cast<transport::BufferId>(output));
    problem_.may_swap = parts_.empty() && std::ranges::all_of(sizes, [&](std::uint64_t bytes) {
                          return bytes / outputs_.count % transport::swap_alignment == 0;
                        });
    for (std::size_t column = 0; column < columns_; ++column) {
      add_tensor(sizes[column]);
      std::vector<std::uint64_t> filled(outputs_.count, 0);
      for (std::size_t source = 0; source < inputs_.count; ++source) {
        std::uint64_t offset = 0;
        for (std::size_t target = 0; target < outputs_.count; ++target) {
          const std::uint64_t bytes =
              length_of_part(source * outputs_.count + target, sizes[column] / outputs_.count);
          const Place place = output(target, column);
          const bool is_left =
              source == target && std::ranges::binary_search(left_alone, std::uint64_t{place.buffer});
          if (!is_left) add_flow(behind(input(source, column), offset), behind(place, filled[target]), bytes);
          offset += bytes;
          filled[target] += bytes;
        }
      }
    }
  }

  /// Every output gets what all inputs are combined to.
  void reduce() {
    for (std::size_t column = 0; column < columns_; ++column) {
      const auto [count, dtype] = counted(request_.reduced().columns[column]);
      if (count == 0) continue;
      Reduction reduction{.dtype = dtype, .count = count, .inputs = inputs_at(column, 0), .outputs = {}};
      reduction.outputs.first = next_place();
      for (std::size_t row = 0; row < outputs_.count; ++row) add_place(output(row, column));
      reduction.outputs.count = next_place() - reduction.outputs.first;
      problem_.reductions.push_back(reduction);
    }
  }

  /// Every output gets its part of that.
  void reduce_scatter() {
    problem_.outputs_are_apart = true;
    for (std::size_t column = 0; column < columns_; ++column) {
      const auto [elements, dtype] = counted(request_.reduced().columns[column]);
      std::uint64_t offset = 0;
      for (std::size_t member = 0; member < outputs_.count; ++member) {
        const std::uint64_t count = length_of_part(member, elements / outputs_.count);
        if (count == 0) continue;
        Reduction reduction{.dtype = dtype,
                            .count = count,
                            .inputs = inputs_at(column, offset * size_of(dtype)),
                            .outputs = {next_place(), 1}};
        add_place(output(member, column));
        problem_.reductions.push_back(reduction);
        offset += count;
      }
    }
  }

  /// One flow for each part that has bytes.
  void cut() {
    const bool is_apart = traits_.output == CollectiveOutput::part;
    const auto& [rows, whole_pitch, cuts] = request_.cut();
    const Rows& parts = is_apart ? outputs_ : inputs_;
    const Place whole = is_apart ? input(0, 0) : output(0, 0);
    problem_.shape.has_rows_apart = rows > 1;
    for (std::size_t index = 0; index < cuts.size(); ++index) {
      const std::uint64_t part_pitch = cuts[index].bytes;
      if (part_pitch == 0 || rows == 0) continue;
      Flow flow{.source = {whole.buffer, cuts[index].offset},
                .targets = {next_place(), 1},
                .row_bytes = part_pitch,
                .rows = rows,
                .source_pitch = whole_pitch,
                .target_pitch = part_pitch};
      Place part{buffer(parts.first + index, 0), 0};
      if (problem_.homes[part.buffer] == problem_.root) problem_.shape.kept_by_root += flow.bytes();
      if (!is_apart) {
        std::swap(flow.source, part);
        std::swap(flow.source_pitch, flow.target_pitch);
      }
      if (part_pitch == whole_pitch) {  // the part is all there is: no gaps
        flow.row_bytes *= rows;
        flow.rows = 1;
      }
      add_place(part);
      problem_.flows.push_back(flow);
    }
    problem_.shape.payload = problem_.bytes();
    problem_.shape.largest_tensor = problem_.shape.payload;
  }

 private:
  [[nodiscard]] bool is_for_one() const noexcept { return traits_.output == CollectiveOutput::one; }
  [[nodiscard]] bool is_from_one() const noexcept { return traits_.has_root && !is_for_one(); }
  [[nodiscard]] std::size_t members() const noexcept { return problem_.lane_devices.size(); }
  [[nodiscard]] Rows input_rows() const {
    if (problem_.is_of_team) return is_from_one() ? Rows{problem_.root, 1} : Rows{0, members()};
    return {0, is_from_one() ? 1 : problem_.homes.size() / columns_ - 1};
  }
  [[nodiscard]] Rows output_rows() const {
    if (problem_.is_of_team)
      return is_for_one() ? Rows{members() + problem_.root, 1} : Rows{members(), members()};
    return {inputs_.count, problem_.homes.size() / columns_ - inputs_.count};
  }

  /// Returns the length of a part: the given one, or else `equal`.
  [[nodiscard]] std::uint64_t length_of_part(std::size_t index, std::uint64_t equal) const {
    return parts_.empty() ? equal : parts_[index];
  }
  [[nodiscard]] static Place behind(Place place, std::uint64_t offset) noexcept {
    return {place.buffer, place.offset + offset};
  }
  [[nodiscard]] BufferId buffer(std::size_t row, std::size_t column) const {
    return static_cast<BufferId>(row * columns_ + column);
  }
  [[nodiscard]] Place input(std::size_t row, std::size_t column) const {
    return {buffer(inputs_.first + row, column), 0};
  }
  [[nodiscard]] Place output(std::size_t row, std::size_t column) const {
    return {buffer(outputs_.first + row, column), 0};
  }

  /// Counts a column's tensor as one of the call's.
  ReducedOperands::Column counted(ReducedOperands::Column column) {
    add_tensor(column.bytes());
    return column;
  }
  void add_tensor(std::uint64_t bytes) {
    problem_.shape.payload += bytes;
    problem_.shape.largest_tensor = std::max(problem_.shape.largest_tensor, bytes);
  }

  [[nodiscard]] std::uint32_t next_place() const {
    return static_cast<std::uint32_t>(problem_.places.size());
  }
  void add_place(Place place) { problem_.places.push_back(place); }
  PlaceRange inputs_at(std::size_t column, std::uint64_t offset) {
    const PlaceRange range{next_place(), static_cast<std::uint32_t>(inputs_.count)};
    for (std::size_t row = 0; row < inputs_.count; ++row) add_place({input(row, column).buffer, offset});
    return range;
  }

  void add_flow(Place source, Place target, std::uint64_t bytes) {
    if (bytes == 0) return;
    problem_.flows.push_back({.source = source, .targets = {next_place(), 1}, .row_bytes = bytes});
    add_place(target);
  }

  /// The bytes of `source` go to `offset` in the outputs of a column. In a team, what stays with its member
  /// is a flow of its own: only that member knows of it, which must not change what goes to the others.
  void add_flows(Place source, std::uint64_t bytes, std::uint64_t offset, std::size_t column,
                 std::span<const std::uint64_t> left_alone) {
    if (bytes == 0) return;
    Flow flow{.source = source, .targets = {next_place(), 0}, .row_bytes = bytes};
    Flow staying = flow;
    Place place_that_stays;
    for (std::size_t row = 0; row < outputs_.count; ++row) {
      const Place target{output(row, column).buffer, offset};
      const bool stays = problem_.is_of_team && problem_.lane_of(target) == problem_.lane_of(source);
      const bool may_be_left = stays || !problem_.is_of_team;
      if (may_be_left && std::ranges::binary_search(left_alone, std::uint64_t{target.buffer})) continue;
      if (stays) {
        place_that_stays = target;
        staying.targets.count = 1;
      } else {
        add_place(target);
        ++flow.targets.count;
      }
    }
    if (flow.targets.count > 0) problem_.flows.push_back(flow);
    if (staying.targets.count == 0) return;
    staying.targets.first = next_place();
    add_place(place_that_stays);
    problem_.flows.push_back(staying);
  }

  Problem& problem_;
  const Request& request_;
  std::size_t columns_;
  std::span<const std::uint64_t> parts_;
  const CollectiveTraits& traits_;
  Rows inputs_;
  Rows outputs_;
};

/// Counts what a problem of a team moves.
transport::CallShape::Counted count_moved(const Problem& problem) {
  struct Moved {
    std::uint64_t put = 0;
    std::uint64_t sent = 0;
    std::uint64_t received = 0;
    std::uint64_t kept = 0;
  };
  std::vector<Moved> members(problem.lane_devices.size());
  const auto add = [&](Place source, Place target, std::uint64_t bytes) {
    const bool stays = problem.lane_of(source) == problem.lane_of(target);
    (stays ? members[problem.lane_of(source)].kept : members[problem.lane_of(source)].sent) += bytes;
    if (!stays) members[problem.lane_of(target)].received += bytes;
    return !stays;
  };
  for (const Flow& flow : problem.flows) {
    bool is_put = false;
    for (const Place target : problem.places_of(flow.targets))
      is_put |= add(flow.source, target, flow.bytes());
    if (is_put) members[problem.lane_of(flow.source)].put += flow.bytes();
  }
  for (const Reduction& reduction : problem.reductions) {
    for (const Place input : problem.places_of(reduction.inputs)) {
      if (add(input, problem.output_of(reduction), reduction.bytes()))
        members[problem.lane_of(input)].put += reduction.bytes();
    }
  }
  transport::CallShape::Counted most;
  for (const Moved& moved : members) {
    most.largest_message = std::max(most.largest_message, moved.put);
    most.busiest_member = std::max({most.busiest_member, moved.sent, moved.received});
    most.most_kept = std::max(most.most_kept, moved.kept);
  }
  // Elsewhere a member sends or receives as much as it keeps, and what an all_gather leaves in place only its
  // own rank knows.
  if (problem.shape.collective != Collective::all_to_all) most.most_kept = 0;
  return most;
}

void add_work(const Request& request, Problem& problem) {
  Describer describer(request, problem);
  switch (request.collective) {
    case Collective::broadcast:
      return describer.broadcast();
    case Collective::all_gather:
      return describer.all_gather();
    case Collective::reduce:
    case Collective::all_reduce:
      return describer.reduce();
    case Collective::reduce_scatter:
      return describer.reduce_scatter();
    case Collective::all_to_all:
      return describer.all_to_all();
    case Collective::scatter:
    case Collective::gather:
      return describer.cut();
    default:
      break;
  }
}

std::uint64_t inseparable_bytes(const Problem& problem) {
  std::uint64_t most = 1;
  if (problem.reduce_kind != ReduceKind::prod) return most;
  for (const transport::Reduction& reduction : problem.reductions) {
    const bool is_complex = reduction.dtype == DType::complex64 || reduction.dtype == DType::complex128;
    if (is_complex) most = std::max<std::uint64_t>(most, size_of(reduction.dtype));
  }
  return most;
}

}  // namespace

void describe(const Request& request, Problem& problem) {
  problem.name = request.name;
  problem.shape = {
      .collective = request.collective, .members = problem.lane_devices.size(), .tensors = request.columns};
  if (traits_of(request.collective).reduces) problem.reduce_kind = request.reduced().kind;
  if (request.is_empty()) return;
  add_work(request, problem);
  problem.shape.inseparable_bytes = inseparable_bytes(problem);
  if (!request.parts.empty()) problem.shape.counted = count_moved(problem);
}

void describe(std::span<const transport::InsideMessage> messages, Problem& problem) {
  struct Has {
    std::size_t messages = 0;
    std::uint64_t bytes = 0;
  };
  const std::size_t members = problem.lane_devices.size();
  std::vector<Has> sent(members);
  std::vector<Has> received(members);
  transport::CallShape& shape = problem.shape;
  shape = {.collective = Collective::all_to_all, .members = members};
  const auto add = [&](Has& has, std::uint64_t bytes) {
    has = {has.messages + 1, has.bytes + bytes};
    shape.tensors = std::max(shape.tensors, has.messages);
    shape.payload = std::max(shape.payload, has.bytes);
  };
  for (const transport::InsideMessage& message : messages) {
    const auto source = static_cast<transport::BufferId>(problem.homes.size());
    problem.homes.push_back(static_cast<transport::LaneId>(message.sender));
    problem.homes.push_back(static_cast<transport::LaneId>(message.receiver));
    problem.flows.push_back({.source = {source, 0},
                             .targets = {static_cast<std::uint32_t>(problem.places.size()), 1},
                             .row_bytes = message.bytes});
    problem.places.push_back({source + 1, 0});
    add(sent[message.sender], message.bytes);
    add(received[message.receiver], message.bytes);
    shape.largest_tensor = std::max(shape.largest_tensor, message.bytes);
  }
  shape.counted = count_moved(problem);
  problem.ready = problem.homes;
  problem.outputs_are_apart = true;
}

}  // namespace tutti::collectives
