// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/tensor.hpp"

#include <cstddef>
#include <span>
#include <vector>

namespace tutti::collectives {

/// The largest sizes of buckets, in bytes.
struct BucketLimits {
  std::size_t first = 0;  ///< the first bucket of each element type
  std::size_t others = 0;
};

/// Returns the indices of the gradients of each bucket: from the last gradient to the first, those of an
/// element type together. A bucket is full as soon as it has its limit in bytes or more. Buckets are in the
/// order in which they are complete if gradients come in reverse order.
[[nodiscard]] std::vector<std::vector<int>> plan_buckets(std::span<const Tensor> gradients,
                                                         const BucketLimits& limits);

}  // namespace tutti::collectives
