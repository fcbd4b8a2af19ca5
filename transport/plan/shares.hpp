// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/pieces.hpp"
#include "transport/plan/problem.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// How much is shared among many. Instead of moving or adding a payload at one place, several lanes take a
/// share each: they read it, or add it up, and hand it on to those who want it. Steps and rounds do the same,
/// the ones in an order by events, the others by flags.
///
/// A root takes no share: the whole payload goes over its link anyway, and with a share of its own that link
/// would have more to carry than the others'. Whoever deals with several others begins with the one after
/// itself (`steps_after`): if all began with the same one, its link would hold up all of them.
namespace tutti::transport {

/// What one lane does of a payload.
struct Share {
  LaneId lane = 0;
  std::vector<Slice> slices;  ///< by item; may be none
};

/// A payload of items of so many bytes, cut into nearly even shares, one for each entry of `lanes` in order.
[[nodiscard]] std::vector<Share> share_out(std::span<const std::uint64_t> sizes,
                                           std::span<const LaneId> lanes);

/// All of `count` lanes but the root's.
[[nodiscard]] std::vector<LaneId> lanes_but(LaneId root, std::size_t count);

/// From the lane after `lane` on, in a circle of `count`: 0 for that one, and the most for `lane` itself.
[[nodiscard]] constexpr std::size_t steps_after(std::size_t lane, std::size_t other,
                                                std::size_t count) noexcept {
  return (other + count - lane - 1) % count;
}

}  // namespace tutti::transport
