// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/dtype.hpp"
#include "tutti/nccl_api.h"
#include "tutti/reduce_op.hpp"

#include <array>
#include <cstddef>
#include <cstdint>

namespace tutti::nccl_api {

/// The element types of the interface, by their numbers.
inline constexpr std::array<DType, ncclNumTypes> dtypes{
    DType::int8,    DType::uint8,   DType::int32,   DType::uint32,   DType::int64,       DType::uint64,
    DType::float16, DType::float32, DType::float64, DType::bfloat16, DType::float8_e4m3, DType::float8_e5m2,
};

/// The built-in operations of the interface, by their numbers.
inline constexpr std::array<ReduceKind, ncclNumOps> operations{
    ReduceKind::sum, ReduceKind::prod, ReduceKind::max, ReduceKind::min, ReduceKind::avg,
};

}  // namespace tutti::nccl_api
