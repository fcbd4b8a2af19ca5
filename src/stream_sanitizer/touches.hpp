// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/norm_calls.hpp"
#include "backend/operations.hpp"
#include "backend/team_links.hpp"
#include "backend/team_round.hpp"
#include "stream_sanitizer/happens_before.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace tutti::stream_sanitizer {

using Touches = std::vector<Touch>;

/// The most pieces as which one array of an operation is checked: separate pieces are checked one by one, as
/// what lies between may belong to others. If there are more, only the first ones are checked.
inline constexpr std::size_t most_pieces_of_array = 64;

void add_bytes(Touches& touches, const std::byte* begin, std::size_t bytes, bool writes);
void add_rows(Touches& touches, const std::byte* begin, std::size_t row_bytes, std::size_t pitch,
              std::size_t rows, bool writes);
/// Adds a strided array; strides are in elements.
void add_strided(Touches& touches, const std::byte* begin, std::size_t element_bytes,
                 std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides, bool writes);

// These return the accesses of operations.
[[nodiscard]] Touches touches_of(const backend::FanOut& task);
[[nodiscard]] Touches touches_of(const backend::OrderedReduction& task);
[[nodiscard]] Touches touches_of(const backend::Convert& task);
[[nodiscard]] Touches touches_of(const backend::Fill& task);
[[nodiscard]] Touches touches_of(const backend::RandomFill& task);
[[nodiscard]] Touches touches_of(const backend::NormPieces& task, bool writes);
/// Returns the round's accesses to the member's own memory once it has waited for others. Windows are ordered
/// by their flags; what is put or exposed is reported by the caller of the rounds.
[[nodiscard]] Touches touches_of(const backend::TeamRound& task);
/// Returns the accesses to the member's own memory.
[[nodiscard]] Touches touches_of(const backend::TeamLinks& task);

}  // namespace tutti::stream_sanitizer
