// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "transport/plan/plan.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <vector>

namespace tutti::transport {

/// The operands that a plan is launched on. Planning appends the plan's temporaries to the vectors by buffer.
struct Operands {
  std::vector<std::byte*> addresses;      ///< by BufferId
  std::vector<backend::StreamRef> lanes;  ///< by LaneId
  std::vector<Storage*> storages;         ///< by BufferId; nullptr where the caller keeps the memory alive
  /// Buffers whose storages have yet to record that their home lanes use them. A storage that the previous
  /// buffer shares on the same lane is recorded once.
  std::vector<BufferId> unrecorded;
  ReduceOp operation;  ///< combines elements
};

}  // namespace tutti::transport
