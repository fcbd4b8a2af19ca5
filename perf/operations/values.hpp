// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/dtype.hpp"
#include "tutti/reduce_op.hpp"

#include <cstddef>
#include <cstdint>

/// The values of inputs and the expected values of outputs. Every element is a cheap function of its
/// position, so that any part of any output can be predicted exactly and no reference is kept in memory.
namespace tutti::perf {

/// The function from positions to elements.
enum class Pattern : std::uint8_t {
  bits,      ///< arbitrary bits: for operations that only move data
  integers,  ///< small integers, small enough that sums over all sources are exact in any order
};

/// The values of one tensor: a window onto an imaginary array that is larger or equal.
///
/// Element k, in index order, is the array's element `offset + (k / row_length) · row_stride + k %
/// row_length`. Its value is the sum, or another reduction, of the values of the sources
/// `first_source` to `first_source + source_count - 1` (for `bits`, there is one).
struct Content {
  DType dtype = DType::float32;
  Pattern pattern = Pattern::bits;
  std::uint64_t seed = 0;
  int first_source = 0;
  int source_count = 1;
  int all_sources = 1;                       ///< how many may ever be summed: bounds the integers
  ReduceKind reduce_kind = ReduceKind::sum;  ///< what they are reduced by
  bool is_input = false;                     ///< one source's, not reduced yet
  std::int64_t row_length = 1;
  std::int64_t row_stride = 1;
  std::int64_t offset = 0;
};

/// Mixes `value` into `seed`, and returns another seed.
[[nodiscard]] std::uint64_t mix_seed(std::uint64_t seed, std::uint64_t value) noexcept;

/// Writes elements `first` to `first + count - 1` of `content` to `target`.
void generate(const Content& content, std::int64_t first, std::int64_t count, void* target);
/// Writes elements that all differ from those that `generate` writes: the contents of outputs before an
/// operation.
void generate_poison(const Content& content, std::int64_t first, std::int64_t count, void* target);
/// Returns how many of these elements differ, bit for bit, from those that `generate` writes.
[[nodiscard]] std::uint64_t count_wrong(const Content& content, std::int64_t first, std::int64_t count,
                                        const void* actual);

}  // namespace tutti::perf
