// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/dtype.hpp"
#include "tutti/layout.hpp"
#include "tutti/reduce_op.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

/// Descriptors of the seam's operations.
namespace tutti::backend {

/// No limit: kernels use as many multiprocessors as they have work for.
inline constexpr std::uint32_t all_multiprocessors = ~std::uint32_t{0};

/// Describes a `copy` of rows of bytes.
struct Copy2D {
  std::byte* target = nullptr;
  std::size_t target_pitch = 0;  ///< bytes from one row to the next; ignored for one row
  const std::byte* source = nullptr;
  std::size_t source_pitch = 0;
  std::size_t row_bytes = 0;
  std::size_t rows = 1;
};

/// Tells when a copy of a round between members (`TeamRound::swaps`) is a swap.
enum class Swap : std::uint8_t {
  never,
  with_in_place,     ///< if the other member's memory is in place
  of_both_in_place,  ///< if it is; otherwise nothing is done here, as the other member swaps
};

/// One rectangle of bytes, read once and stored to `target_count` places.
///
/// Addresses are entries of the task's pointer table, so that a plan can keep the shape and rebind the
/// addresses.
struct FanOutSegment {
  std::uint64_t row_bytes = 0;
  std::uint64_t source_pitch = 0;  ///< ignored for one row
  std::uint64_t target_pitch = 0;
  std::uint32_t rows = 1;
  std::uint32_t source = 0;        ///< index into `FanOut::pointers`
  std::uint32_t first_target = 0;  ///< index into `FanOut::pointers`; targets are consecutive entries
  std::uint32_t target_count = 0;
  /// Other than `never`, there is one row and one target, and the pointer after the target's is the place for
  /// the block that goes the other way.
  Swap swap = Swap::never;
};

/// Describes a multi-segment copy by one kernel. Sources and targets may be memory of the executing device,
/// of peers it has access to, or pinned host memory. Targets overlap neither one another nor any source.
struct FanOut {
  std::span<const FanOutSegment> segments;
  std::span<std::byte* const> pointers;  ///< sources are only read
  std::uint32_t most_multiprocessors =
      all_multiprocessors;  ///< that the kernel may hold at a time, at least 1
};

/// The operation that combines elements. A plan leaves it open, like addresses.
struct Reducing {
  ReduceKind kind = ReduceKind::sum;
  /// The factors of `premul_sum`: one for all inputs, or one for each.
  std::span<const double> factors{};

  /// Returns the factor of the input at `index`.
  [[nodiscard]] double factor(std::size_t index) const noexcept {
    return factors[factors.size() == 1 ? 0 : index];
  }
};

/// `count` consecutive elements: each output = the sum of all inputs in ascending order.
struct OrderedReductionSegment {
  std::uint64_t count = 0;        ///< elements
  std::uint32_t first_input = 0;  ///< index into `OrderedReduction::pointers`; inputs are consecutive entries
  std::uint32_t first_output = 0;  ///< index into `OrderedReduction::pointers`
};

/// Describes a multi-segment elementwise sum by one kernel, with the arithmetic of `arithmetic.hpp`, or
/// another reduction (`reduction.hpp`) that the element type has. An output may be exactly one of its own
/// segment's inputs; otherwise outputs overlap nothing.
struct OrderedReduction {
  DType dtype = DType::float32;
  Reducing reducing{};
  std::uint32_t input_count = 0;   ///< per segment, at least 1
  std::uint32_t output_count = 1;  ///< per segment
  std::span<const OrderedReductionSegment> segments;
  std::span<std::byte* const> pointers;
  std::uint32_t most_multiprocessors = all_multiprocessors;  ///< see `FanOut`
};

/// Describes an elementwise copy with conversion between two strided arrays of one shape (strides in
/// elements, not negative).
struct Convert {
  std::byte* target = nullptr;
  const std::byte* source = nullptr;
  DType target_dtype = DType::float32;
  DType source_dtype = DType::float32;
  int rank = 0;
  std::array<std::int64_t, max_dimensions> sizes{};
  std::array<std::int64_t, max_dimensions> target_strides{};
  std::array<std::int64_t, max_dimensions> source_strides{};
};

/// Sets `count` elements of `element_bytes` (1, 2, 4, 8 or 16) to the bytes in `value`.
struct Fill {
  std::byte* target = nullptr;
  std::size_t count = 0;
  std::size_t element_bytes = 1;
  std::array<std::byte, 16> value{};
};

enum class Distribution : std::uint8_t { uniform, normal, integers, bernoulli };

/// Fills `count` consecutive elements as `philox.hpp` defines it. Types float16, bfloat16, float32 or
/// float64: uniform in [first, second), or normal with mean `first` and standard deviation `second`. Integer
/// types: `low` and up to `range` - 1 more. All types of at most 8 bytes: 1 with a probability of `range` /
/// 2^32, else 0.
struct RandomFill {
  std::byte* target = nullptr;
  std::size_t count = 0;
  DType dtype = DType::float32;
  Distribution distribution = Distribution::uniform;
  double first = 0.0;
  double second = 1.0;
  std::int64_t low = 0;
  std::uint64_t range = 0;
  std::uint64_t seed = 0;
  std::uint64_t offset = 0;  ///< a multiple of 4
  /// Memory of the executing device, read when the fill runs: the seed, which replaces `seed`, and a number
  /// that is added to `offset`. nullptr: `seed` is used, and nothing is added.
  const std::uint64_t* state = nullptr;
};

}  // namespace tutti::backend
