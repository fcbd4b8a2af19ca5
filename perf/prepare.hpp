// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "operation.hpp"

/// The buffers of one call, for the collectives of one process and those between processes alike: this
/// process's part of them.
namespace tutti::perf {

/// A source on the root and a copy for every member. In place, the root's copy is its source.
[[nodiscard]] Call prepare_broadcast(const Case& what, Placement placement, bool coalesced);
/// An input from every member; the sum on the root. In place, it is the root's input.
[[nodiscard]] Call prepare_reduce(const Case& what, Placement placement, bool coalesced);
/// An input from every member; the sum on each. In place, it is the member's input.
[[nodiscard]] Call prepare_all_reduce(const Case& what, Placement placement, bool coalesced);

/// A tensor on the root and one on the case's partner.
[[nodiscard]] Call prepare_copy(const Case& what);

/// A tensor from every member for the next one, and one from the one before.
[[nodiscard]] Call prepare_around(const Case& what);
/// No tensors.
[[nodiscard]] Call prepare_nothing(const Case& what);

/// The two ends of scatter and gather.
enum class Whole : std::uint8_t { input, output };
/// A whole tensor on the root and its chunks, one per member: equal parts along a dimension, the last ones
/// smaller or empty. Chunks may not share memory with the whole: there is no in-place form.
[[nodiscard]] Call prepare_chunks(const Case& what, Placement placement, Whole whole);
/// Whether members have parts of one length, or of lengths from 1 to n, times as much as makes up the
/// payload: some are empty where there is little.
enum class Parts : std::uint8_t { equal, unequal };
/// Of one tensor, or of each of a list, whose parts are equal.
struct Cut {
  Parts parts = Parts::equal;
  bool coalesced = false;
};
/// A part from every member; the whole on each. In place, the part lies there already.
[[nodiscard]] Call prepare_all_gather(const Case& what, Placement placement, Cut cut);
/// A whole from every member; a part of the sum for each.
[[nodiscard]] Call prepare_reduce_scatter(const Case& what, Placement placement, Cut cut);
/// A whole from every member, cut into parts for all, the shortest for itself; as much for each. In place,
/// that is the member's input.
[[nodiscard]] Call prepare_all_to_all(const Case& what, Placement placement, Cut cut);

}  // namespace tutti::perf
