// SPDX-License-Identifier: Apache-2.0
#pragma once

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

/// How many pieces of memory one array of an operation is looked at in: what lies apart is looked at piece by
/// piece, as what lies between may be others'. Of more, the first ones stand for all.
inline constexpr std::size_t most_pieces_of_array = 64;

void add_bytes(Touches& touches, const std::byte* begin, std::size_t bytes, bool writes);
void add_rows(Touches& touches, const std::byte* begin, std::size_t row_bytes, std::size_t pitch,
              std::size_t rows, bool writes);
/// Strides in elements.
void add_strided(Touches& touches, const std::byte* begin, std::size_t element_bytes,
                 std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides, bool writes);

// What operations touch.
[[nodiscard]] Touches touches_of(const backend::FanOut& task);
[[nodiscard]] Touches touches_of(const backend::OrderedReduction& task);
[[nodiscard]] Touches touches_of(const backend::Convert& task);
[[nodiscard]] Touches touches_of(const backend::Fill& task);
[[nodiscard]] Touches touches_of(const backend::RandomFill& task);
/// What it does with memory of the member's own once it has waited for others. Windows are ordered by their
/// flags; what is put or given, whoever makes the rounds tells.
[[nodiscard]] Touches touches_of(const backend::TeamRound& task);
/// What it does with memory of the member's own.
[[nodiscard]] Touches touches_of(const backend::TeamLinks& task);

}  // namespace tutti::stream_sanitizer
