// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "device/runtime.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace tutti::collectives {

/// The place where results are made: on `device`, for first use on `stream`, which may be another device's.
struct ResultPlace {
  Device device;
  backend::StreamRef stream;
};

/// Returns a new tensor of a dense layout. Throws OutOfMemoryError.
[[nodiscard]] Tensor allocate_for(Runtime& runtime, LayoutPtr layout, const ResultPlace& place);

/// Returns lists of new tensors of the given dense layouts, one list per place, in one allocation each. Costs
/// a nanosecond or two per tensor. Throws OutOfMemoryError.
[[nodiscard]] std::vector<std::vector<Tensor>> allocate_together(Runtime& runtime,
                                                                 std::span<const Layout* const> layouts,
                                                                 std::span<const ResultPlace> places);
/// Returns the bytes of each such allocation.
[[nodiscard]] std::size_t bytes_together(std::span<const Layout* const> layouts);

}  // namespace tutti::collectives
