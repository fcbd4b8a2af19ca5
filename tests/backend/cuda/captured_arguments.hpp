// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/cuda_interop.hpp"

namespace tutti::test {

/// Returns whether a captured kernel of a low-latency round lets the next one start before it has ended.
[[nodiscard]] bool lets_next_in(cudaGraphNode_t kernel);

}  // namespace tutti::test
