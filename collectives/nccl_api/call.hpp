// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/dtype.hpp"
#include "tutti/nccl_api.h"

#include <array>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <vector>

namespace tutti::nccl_api {

/// A factor of `ncclRedOpCreatePreMulSum`: a number, or an element in a device's memory.
struct Factor {
  DType dtype = DType::float32;
  double value = 1;
  void* element = nullptr;  ///< on a device; nullptr: `value` counts
};

enum class Kind : std::uint8_t {
  all_reduce,
  broadcast,
  reduce,
  all_gather,
  reduce_scatter,
  all_to_all,
  send,
  recv,
};

[[nodiscard]] constexpr bool is_message(Kind kind) noexcept {
  return kind >= Kind::send;
}

/// One call of a collective or message, as a program makes it for one rank.
struct Call {
  Kind kind = Kind::all_reduce;
  DType dtype = DType::float32;
  ncclRedOp_t op = ncclSum;  ///< a built-in one; ncclSum where there is a factor
  int peer = 0;              ///< the root, or the other rank of a message
  std::size_t count = 0;     ///< of elements, as the function counts them
  const void* in = nullptr;  ///< may be null where the rank gives nothing
  void* out = nullptr;       ///< likewise, where it gets nothing
  ncclComm_t comm = nullptr;
  cudaStream_t stream = nullptr;
  std::shared_ptr<const Factor> factor{};  ///< of the input
};

/// Holds the calls that one rank has queued in a group, in order.
struct Batch {
  ncclComm_t comm = nullptr;
  std::vector<Call> collectives{};
  std::vector<Call> messages{};
  bool is_done = false;
  std::exception_ptr error{};
};

}  // namespace tutti::nccl_api
