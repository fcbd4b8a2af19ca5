// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/message_route.hpp"
#include "transport/plan/problem.hpp"
#include "transport/select/plan_cache.hpp"
#include "tutti/collective.hpp"
#include "tutti/reduce_op.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tutti::collectives {

/// Describes a call of one process or of a team in numbers, without addresses and streams. With lanes and
/// options it is all that a plan depends on.
struct Request {
  Collective collective = Collective::barrier;
  /// The function that was called, for messages and traces; it lives as long as the program, and plans do not
  /// depend on it.
  std::string_view name = {};
  ReduceKind reduce_kind = ReduceKind::sum;
  /// Tensors of each row of operands. Buffer b is column b % columns of row b / columns.
  std::size_t columns = 1;
  /// Copies have the bytes of each column of an input (of unequal parts, as said there), then, ascending, the
  /// buffers of outputs that are left alone; in a team they are left alone by the copy of their own member's
  /// input. (Of an exchange, these outputs are the inputs.)
  /// Sums have for each column the number of elements of an input, and their type.
  /// Scatter and gather have rows and bytes of a row of the whole, then for each part its offset in the row
  /// and its bytes there.
  std::vector<std::uint64_t> shape{};
  /// Where members' parts of the one column differ in length; else empty. Of an all_gather the bytes of each
  /// member's input, of which the column has all. Of sums the elements of each member's part. Of an
  /// all_to_all the bytes from each member to each, by sender, then receiver; the column has as many as the
  /// largest input or output.
  std::vector<std::uint64_t> parts{};

  /// Makes it a request of nothing, which keeps its memory.
  void clear() noexcept {
    collective = Collective::barrier;
    name = {};
    reduce_kind = ReduceKind::sum;
    columns = 1;
    shape.clear();
    parts.clear();
  }
  void add_copied(std::uint64_t bytes) { shape.push_back(bytes); }
  /// Adds an output that stays as it is; comes after all columns.
  void leave_alone(std::uint64_t output) { shape.push_back(output); }
  /// The same of a team of so many members.
  void leave_alone_in_team(std::size_t members, std::size_t member, std::size_t column) {
    leave_alone((members + member) * columns + column);
  }
  /// Returns true if some of that output of copies stays as it is.
  [[nodiscard]] bool is_left_alone(std::uint64_t output) const {
    return !traits_of(collective).reduces &&
           std::binary_search(shape.begin() + static_cast<std::ptrdiff_t>(columns), shape.end(), output);
  }
  void add_summed(std::uint64_t elements, DType dtype) {
    if (shape.empty()) shape.reserve(2 * columns);
    shape.push_back(elements);
    shape.push_back(static_cast<std::uint64_t>(dtype));
  }
  void begin_cut(std::uint64_t rows, std::uint64_t row_bytes, std::size_t part_count) {
    shape.reserve(2 + 2 * part_count);
    shape.push_back(rows);
    shape.push_back(row_bytes);
  }
  void add_part(std::uint64_t offset, std::uint64_t bytes) {
    shape.push_back(offset);
    shape.push_back(bytes);
  }
  /// Returns the bytes of one member's tensors, where all have such, or of the whole, where it is scattered
  /// or gathered, or its parts differ in length.
  [[nodiscard]] std::uint64_t bytes() const;
  /// How many numbers `add_to` adds.
  [[nodiscard]] std::size_t words() const noexcept { return 4 + shape.size() + parts.size(); }
  void add_to(transport::PlanKey& key) const {
    key.add(static_cast<std::uint64_t>(reduce_kind));
    key.add(columns);  // how much of the shape is about them
    key.add_all(shape);
    key.add_all(parts);
  }
};

/// Where members' inputs are copied to all outputs of a team, as by a broadcast or an all_gather, the request
/// leaves those outputs alone of which `is_left(member, column)` says that they need no copy of their own
/// member's input: the root's, or everyone's where all have inputs. This comes after all columns.
template <class IsLeft>
void leave_own_copies_alone(Request& request, std::size_t members, std::size_t root, const IsLeft& is_left) {
  const CollectiveTraits& traits = traits_of(request.collective);
  if (traits.reduces || traits.output != CollectiveOutput::all) return;
  for (std::size_t member = 0; member < members; ++member) {
    if (traits.has_root && member != root) continue;
    for (std::size_t column = 0; column < request.columns; ++column) {
      if (is_left(member, column)) request.leave_alone_in_team(members, member, column);
    }
  }
}

/// Completes a problem whose collective, lanes, homes and root are set: places, flows, reductions, shape.
///
/// A call of one process has a row of operands for each that takes part: the source of a broadcast or
/// scatter first, the result of a sum or gather last. A team has a row of inputs for each member, then a row
/// of outputs for each.
void describe(const Request& request, transport::Problem& problem);
/// The same of messages among all members of a team, which are an exchange: message i goes from buffer 2i to
/// buffer 2i + 1. Sets the homes of these, too.
void describe(std::span<const transport::InsideMessage> messages, transport::Problem& problem);

}  // namespace tutti::collectives
