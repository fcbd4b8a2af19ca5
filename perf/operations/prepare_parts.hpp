// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "perf/operations/operation.hpp"
#include "perf/operations/payload.hpp"

/// The buffers of one call of a collective in which members have parts of a whole.
namespace tutti::perf {

/// Of one tensor, or of each of a list, whose parts are equal.
struct Cut {
  Parts parts = Parts::equal;
  bool coalesced = false;
};

/// The two ends of scatter and gather.
enum class Whole : std::uint8_t { input, output };
/// A whole tensor on the root and its chunks, one per member: equal parts along a dimension, the last ones
/// smaller or empty. Chunks may not share memory with the whole: there is no in-place form.
[[nodiscard]] Call prepare_chunks(const Case& what, Placement placement, Whole whole);
/// A part from every member; the whole on each. In place, the part lies there already.
[[nodiscard]] Call prepare_all_gather(const Case& what, Placement placement, Cut cut);
/// A whole from every member; a part of the sum for each.
[[nodiscard]] Call prepare_reduce_scatter(const Case& what, Placement placement, Cut cut);
/// A whole from every member, cut into parts for all, the shortest for itself; as much for each. In place,
/// that is the member's input.
[[nodiscard]] Call prepare_all_to_all(const Case& what, Placement placement, Cut cut);

}  // namespace tutti::perf
