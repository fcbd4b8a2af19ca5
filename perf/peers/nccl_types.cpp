// SPDX-License-Identifier: Apache-2.0
#include "perf/peers/nccl_types.hpp"

#include "perf/operations/reductions.hpp"
#include "tutti/float_types.hpp"

#include <cstdint>
#include <cstring>

namespace tutti::perf {

std::optional<SummedType> summed_type(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return SummedType{ncclFloat16, 1};
    case DType::bfloat16:
      return SummedType{ncclBfloat16, 1};
    case DType::float32:
      return SummedType{ncclFloat32, 1};
    case DType::float64:
      return SummedType{ncclFloat64, 1};
    case DType::int8:
      return SummedType{ncclInt8, 1};
    case DType::uint8:
      return SummedType{ncclUint8, 1};
    case DType::int32:
      return SummedType{ncclInt32, 1};
    case DType::uint32:
      return SummedType{ncclUint32, 1};
    case DType::int64:
      return SummedType{ncclInt64, 1};
    case DType::uint64:
      return SummedType{ncclUint64, 1};
    case DType::complex64:
      return SummedType{ncclFloat32, 2};
    case DType::complex128:
      return SummedType{ncclFloat64, 2};
    default:
      return std::nullopt;
  }
}

std::optional<ncclRedOp_t> own_operation_of(ReduceKind kind) {
  switch (kind) {
    case ReduceKind::sum:
      return ncclSum;
    case ReduceKind::avg:
      return ncclAvg;
    case ReduceKind::min:
      return ncclMin;
    case ReduceKind::max:
      return ncclMax;
    case ReduceKind::prod:
      return ncclProd;
    default:
      return std::nullopt;
  }
}

std::array<std::byte, sizeof(double)> factor_of(ncclDataType_t type) {
  std::array<std::byte, sizeof(double)> element{};
  const auto put = [&element](auto value) { std::memcpy(element.data(), &value, sizeof value); };
  switch (type) {
    case ncclFloat16:
      put(Float16(static_cast<float>(premul_factor)));
      break;
    case ncclBfloat16:
      put(BFloat16(static_cast<float>(premul_factor)));
      break;
    case ncclFloat32:
      put(static_cast<float>(premul_factor));
      break;
    case ncclFloat64:
      put(static_cast<double>(premul_factor));
      break;
    default:
      put(static_cast<std::int64_t>(premul_factor));  // its first bytes are every shorter integer's
      break;
  }
  return element;
}

}  // namespace tutti::perf
