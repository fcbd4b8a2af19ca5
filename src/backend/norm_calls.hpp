// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "backend/handles.hpp"
#include "tutti/dtype.hpp"

#include <cstddef>
#include <cstdint>
#include <span>

namespace tutti::backend {

/// `count` consecutive elements of a device.
struct NormPiece {
  std::byte* address = nullptr;  ///< a multiple of the element's size
  std::uint64_t count = 0;
};

/// Elements of one real floating-point type.
struct NormPieces {
  DType dtype = DType::float32;
  std::span<const NormPiece> pieces;
};

/// Describes how sums of squares become a norm.
struct NormOfSums {
  const double* sums = nullptr;
  std::uint64_t count = 0;
  double* result = nullptr;  ///< the total; of a last step two numbers: its square root, and the factor
  bool is_last = false;
  double max_norm = 0;  ///< of a last step: see `clip_factor`
};

/// Measures and scales long vectors. All backends of devices offer it in addition to `Backend`. The results
/// are defined by `numbers/norm.hpp`, bit for bit. All descriptions are read before a call returns.
class NormCalls {
 public:
  NormCalls(const NormCalls&) = delete;
  NormCalls& operator=(const NormCalls&) = delete;

  /// Queues sums of squares, one for each tile of each piece, to consecutive numbers from `sums` on.
  virtual void square_sums(StreamRef stream, const NormPieces& task, double* sums) = 0;
  /// Queues the sum of the sums in an order that depends on their count alone.
  virtual void norm_of_sums(StreamRef stream, const NormOfSums& task) = 0;
  /// Queues the multiplication of all elements by the number at `factor`, in place. A factor of 1 leaves the
  /// elements untouched.
  virtual void scale(StreamRef stream, const NormPieces& task, const double* factor) = 0;

 protected:
  NormCalls() = default;
  ~NormCalls() = default;
};

}  // namespace tutti::backend
