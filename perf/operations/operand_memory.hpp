// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

namespace tutti::perf {

/// Where the operands of calls lie that a peer makes, if it wants them elsewhere than tutti's are.
class OperandMemory {
 public:
  /// Of what begins there, in bytes.
  static constexpr std::size_t alignment = 512;

  OperandMemory() = default;
  OperandMemory(const OperandMemory&) = delete;
  OperandMemory& operator=(const OperandMemory&) = delete;
  virtual ~OperandMemory() = default;

  /// What is made from now on is of set `set` of buffers, counted from 0. Of every set the same tensors are
  /// made, first those that all members have.
  virtual void start_set(std::size_t set) = 0;
  /// A dense tensor for local member `local`, whose contents are unspecified. It does not outlive this
  /// object.
  [[nodiscard]] virtual Tensor make(const std::vector<std::int64_t>& sizes, DType dtype,
                                    std::size_t local) = 0;
};

}  // namespace tutti::perf
