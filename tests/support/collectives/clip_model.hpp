// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/values/host_array.hpp"

#include <span>
#include <vector>

/// The tests' own model of clipping, which shares no code with the library.
namespace tutti::test {

/// Returns the norm of gradients that all of so many members hold, as these find it bit for bit.
[[nodiscard]] double norm_of(std::span<const HostArray> gradients, int members);
/// Returns the norm of gradients of which member i holds parts[i].
[[nodiscard]] double norm_of_parts(std::span<const HostArray> parts);
/// Returns the gradient that clipping leaves.
[[nodiscard]] HostArray clipped(const HostArray& gradient, double norm, double max_norm);

}  // namespace tutti::test
