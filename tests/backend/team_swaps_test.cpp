// SPDX-License-Identifier: Apache-2.0
#include "backend/team_rounds.hpp"
#include "support/environment.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <gtest/gtest.h>

/// Exchanges of blocks of which each member may have its own in place, and does not know whether others do.
namespace tutti::backend {
namespace {

/// A multiple of it is an exchanged block.
constexpr std::uint64_t unit = 256;
constexpr std::uint64_t most_units = 200;

/// A member's side of the exchange of one tensor.
struct Side {
  bool is_in_place = false;
  std::byte* input = nullptr;    ///< a block for each member
  std::byte* output = nullptr;   ///< likewise; the input, if that is in place
  std::byte* exposed = nullptr;  ///< in readers' tables
};

class Exchange {
 public:
  Exchange(TeamExercise& team, std::uint32_t tensors, std::uint64_t block, bool is_written)
      : team_(team),
        block_(block),
        is_written_(is_written),
        sides_(tensors, std::vector<Side>(team.members())) {}

  Side& side(std::uint32_t tensor, std::uint32_t member) { return sides_[tensor][member]; }

  /// Adds the only round of a call.
  void add_to(TeamCall& call) {
    for (std::uint32_t member = 0; member < team_.members(); ++member) begin(call.part(member, 1), member);
    for (std::uint32_t member = 0; member < team_.members(); ++member) {
      for (std::vector<Side>& sides : sides_) {
        for (const std::uint32_t other : team_.everyone_but(member))
          add(call.part(member, 1), sides, member, other);
        Side& own = sides[member];
        const std::uint64_t at = member * block_;
        if (own.is_in_place) continue;
        append(call.part(member, 1), block_,
               {SourcePlace::own(own.input + at), SourcePlace::own(own.output + at)});
      }
    }
  }

 private:
  void begin(TeamPart& part, std::uint32_t member) {
    part.is_direct = part.swaps = true;
    part.readers = part.sources = team_.everyone_but(member);
    bool are_some_in_place = false;
    for (std::vector<Side>& sides : sides_) {
      Side& own = sides[member];
      are_some_in_place |= own.is_in_place;
      own.exposed = team_.expose(part, member, is_written_ ? own.output : own.input);
    }
    part.writes_exposed = is_written_ || are_some_in_place;
    for (std::size_t t = 0; t < sides_.size(); ++t) {
      part.exposed[t] =
          ExposedAddress::marked(part.exposed[t], sides_[t][member].is_in_place, t == 0 && are_some_in_place);
    }
  }
  void add(TeamPart& part, const std::vector<Side>& sides, std::uint32_t member, std::uint32_t other) const {
    const Side& own = sides[member];
    const std::uint64_t bytes = own.is_in_place ? block_ / 2 : block_;
    const std::uint64_t half = own.is_in_place && member > other ? bytes : 0;
    std::byte* const given = SourcePlace::own(own.input + other * block_ + half);
    std::byte* const taken = SourcePlace::own(own.output + other * block_ + half);
    std::byte* const exposed = sides[other].exposed + member * block_ + half;
    if (is_written_) {
      append(part, bytes, {given, exposed, taken});
    } else {
      append(part, bytes, {exposed, taken, given});
    }
    part.copies.back().swap = own.is_in_place ? Swap::of_both_in_place : Swap::with_in_place;
  }
  static void append(TeamPart& part, std::uint64_t bytes, const std::vector<std::byte*>& pointers) {
    const auto first = static_cast<std::uint32_t>(part.copy_pointers.size());
    part.copies.push_back(
        {.row_bytes = bytes, .source = first, .first_target = first + 1, .target_count = 1});
    part.copy_pointers.insert(part.copy_pointers.end(), pointers.begin(), pointers.end());
  }

  TeamExercise& team_;
  std::uint64_t block_;
  bool is_written_;
  std::vector<std::vector<Side>> sides_;  ///< by tensor and member
};

}  // namespace

TEST_P(TeamRounds, SwapBlocksThatAreInPlace) {
  constexpr std::uint32_t most_tensors = 4;  // further addresses than the first two go another way
  const std::uint64_t room = members() * most_units * unit + 16;
  std::array<std::vector<std::byte*>, 2 * most_tensors> memory;
  for (std::vector<std::byte*>& each : memory) {
    for (std::uint32_t member = 0; member < members(); ++member)
      each.push_back(team().allocate(member, room));
  }
  for (std::int64_t i = 0; i < test::scaled(100); ++i) {
    const std::uint64_t block = draw(1, most_units) * unit;
    const std::uint64_t bytes = members() * block;
    const bool is_written = team().random().one_in(2);
    const auto tensors = static_cast<std::uint32_t>(draw(1, most_tensors));
    Exchange exchange(team(), tensors, block, is_written);
    std::vector<std::vector<std::span<const std::byte>>> patterns(tensors);
    for (std::uint32_t t = 0; t < tensors; ++t) {
      for (std::uint32_t member = 0; member < members(); ++member) {
        Side& side = exchange.side(t, member);
        side.is_in_place = team().random().one_in(2);
        side.input = memory[2 * t][member];
        side.output = side.is_in_place ? side.input : memory[2 * t + 1][member];
        // What is not exposed may lie anywhere.
        const std::uint64_t shift = side.is_in_place ? 0 : std::array<std::uint64_t, 3>{0, 4, 1}[draw(0, 2)];
        (is_written ? side.input : side.output) += shift;
        const std::uint64_t from = draw(0, static_cast<std::int64_t>(TeamExercise::bits_bytes - bytes));
        patterns[t].push_back(team().input_bytes(member).subspan(from, bytes));
        machine().copy(team().stream(member),
                       {.target = side.input, .source = team().input(member) + from, .row_bytes = bytes});
      }
    }
    TeamCall call = call_of(1);
    exchange.add_to(call);
    if (team().random().one_in(10)) team().delay(any_member());
    team().enqueue(call);
    for (std::uint32_t t = 0; t < tensors; ++t) {
      for (std::uint32_t member = 0; member < members(); ++member) {
        for (std::uint32_t other = 0; other < members(); ++other) {
          std::byte* const kept = team().expect(member, patterns[t][other].subspan(member * block, block));
          machine().copy(team().stream(member), {.target = kept,
                                                 .source = exchange.side(t, member).output + other * block,
                                                 .row_bytes = block});
        }
      }
    }
    team().check_if_full();
    if (HasFatalFailure()) return;
  }
  team().check();
}

}  // namespace tutti::backend
