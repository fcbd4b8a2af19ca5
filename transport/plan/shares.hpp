// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "transport/plan/pieces.hpp"
#include "transport/plan/problem.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

/// Divides work among lanes. Instead of moving or adding a payload at one place, several lanes take a share
/// each: they read it, or add it up, and pass it on to the receivers. Steps and rounds do the same, ordered
/// by events and by flags.
///
/// A root takes no share: the whole payload goes over its link anyway, and its own share would make that link
/// busier than the others. Each lane serves others beginning with the one after itself (`steps_after`): if
/// all began with the same one, its link would delay all of them.
namespace tutti::transport {

/// One lane's share of a payload.
struct Share {
  LaneId lane = 0;
  std::vector<Slice> slices;  ///< by item; may be none
};

/// Cuts a payload of items of these sizes in bytes into nearly even shares, one for each entry of `lanes` in
/// order.
[[nodiscard]] std::vector<Share> share_out(std::span<const std::uint64_t> sizes,
                                           std::span<const LaneId> lanes);

/// Returns all of `count` lanes but the root's.
[[nodiscard]] std::vector<LaneId> lanes_but(LaneId root, std::size_t count);

/// Returns the distance from the lane after `lane` to `other`, in a circle of `count`: 0 for that lane, and
/// the most for `lane` itself.
[[nodiscard]] constexpr std::size_t steps_after(std::size_t lane, std::size_t other,
                                                std::size_t count) noexcept {
  return (other + count - lane - 1) % count;
}

}  // namespace tutti::transport
