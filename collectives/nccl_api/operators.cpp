// SPDX-License-Identifier: Apache-2.0
#include "collectives/nccl_api/base/errors.hpp"
#include "collectives/nccl_api/forwarding.hpp"
#include "collectives/nccl_api/handle.hpp"
#include "collectives/nccl_api/types.hpp"

#include <cstddef>
#include <cstring>
#include <memory>
#include <type_traits>

#include <fmt/format.h>

/// Operations that programs create.
namespace tutti::nccl_api {
namespace {

double value_at(const void* scalar, DType dtype) {
  return visit_dtype(dtype, [&]<class T>() {
    T value{};
    std::memcpy(&value, scalar, sizeof(value));
    if constexpr (std::is_arithmetic_v<T>) {
      return static_cast<double>(value);
    } else if constexpr (std::is_constructible_v<float, T>) {
      return static_cast<double>(static_cast<float>(value));
    } else {
      return 1.0;  // complex types, which the interface does not have
    }
  });
}

Factor factor_of(void* scalar, ncclDataType_t datatype, ncclScalarResidence_t residence) {
  const DType dtype = dtypes[static_cast<std::size_t>(datatype)];
  if (residence == ncclScalarDevice) return {.dtype = dtype, .element = scalar};
  return {.dtype = dtype, .value = value_at(scalar, dtype)};
}

}  // namespace
}  // namespace tutti::nccl_api

namespace face = tutti::nccl_api;

extern "C" {

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t datatype,
                                      ncclScalarResidence_t residence, ncclComm_t comm) {
  const auto work = [&] {
    const char* const function = "ncclRedOpCreatePreMulSum";
    face::require_communicator(function, comm);
    face::require(function, op, "op");
    face::require(function, scalar, "scalar");
    if (datatype < 0 || datatype >= ncclNumTypes)
      throw face::Refusal{ncclInvalidArgument, fmt::format("{}: datatype is {}, expected 0 to {}", function,
                                                           static_cast<int>(datatype), ncclNumTypes - 1)};
    const auto factor = std::make_shared<const face::Factor>(face::factor_of(scalar, datatype, residence));
    std::size_t place = 0;
    while (place < comm->factors.size() && comm->factors[place] != nullptr) ++place;
    if (place == comm->factors.size()) comm->factors.emplace_back();
    comm->factors[place] = factor;
    *op = static_cast<ncclRedOp_t>(ncclNumOps + static_cast<int>(place));
  };
  return face::called_now<&ncclRedOpCreatePreMulSum>("ncclRedOpCreatePreMulSum", work, op, scalar, datatype,
                                                     residence, comm);
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
  const auto work = [&] {
    face::require_communicator("ncclRedOpDestroy", comm);
    const int place = static_cast<int>(op) - ncclNumOps;
    if (place < 0 || place >= static_cast<int>(comm->factors.size()) ||
        comm->factors[static_cast<std::size_t>(place)] == nullptr)
      throw face::Refusal{
          ncclInvalidArgument,
          fmt::format("ncclRedOpDestroy: op is {}, expected one that was created for this communicator",
                      static_cast<int>(op))};
    comm->factors[static_cast<std::size_t>(place)] = nullptr;
  };
  return face::called_now<&ncclRedOpDestroy>("ncclRedOpDestroy", work, op, comm);
}

}  // extern "C"
