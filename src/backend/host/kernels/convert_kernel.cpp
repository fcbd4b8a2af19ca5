// SPDX-License-Identifier: Apache-2.0
#include "backend/host/kernels/kernels.hpp"
#include "backend/numbers/conversion.hpp"
#include "os/floating_point_environment.hpp"

#include <cstring>

namespace tutti::backend::host {

namespace {

/// `count` elements, one every `target_stride` and `source_stride` bytes.
template <class To, class From>
void convert_row(std::byte* target, std::ptrdiff_t target_stride, const std::byte* source,
                 std::ptrdiff_t source_stride, std::ptrdiff_t count) {
  for (std::ptrdiff_t i = 0; i < count; ++i) {
    typename SumOf<From>::Storage value;
    std::memcpy(&value, source + i * source_stride, sizeof(value));
    const typename SumOf<To>::Storage converted = convert_value<To, From>(value);
    std::memcpy(target + i * target_stride, &converted, sizeof(converted));
  }
}

using ConvertRow = void (*)(std::byte*, std::ptrdiff_t, const std::byte*, std::ptrdiff_t, std::ptrdiff_t);

ConvertRow select_convert_row(DType target, DType source) {
  return visit_dtype(target, [source]<class To>() {
    return visit_dtype(source, []<class From>() -> ConvertRow { return convert_row<To, From>; });
  });
}

/// Walks the outer dimensions; the innermost one is a row.
struct Walk {
  const Convert& task;
  ConvertRow convert_row;
  std::ptrdiff_t target_bytes;  ///< per element
  std::ptrdiff_t source_bytes;
  bool rows_are_bytes;  ///< one type, both rows contiguous

  void dimension(int index, std::byte* target, const std::byte* source) const {
    const auto d = static_cast<std::size_t>(index);
    const std::ptrdiff_t target_stride = task.target_strides[d] * target_bytes;
    const std::ptrdiff_t source_stride = task.source_strides[d] * source_bytes;
    if (index + 1 < task.rank) {
      for (std::int64_t i = 0; i < task.sizes[d]; ++i) {
        dimension(index + 1, target + i * target_stride, source + i * source_stride);
      }
    } else if (rows_are_bytes) {
      std::memcpy(target, source, static_cast<std::size_t>(task.sizes[d] * target_bytes));
    } else {
      convert_row(target, target_stride, source, source_stride, task.sizes[d]);
    }
  }
};

/// The same elements with adjacent dimensions that lie contiguously in both arrays merged, so that rows are
/// long; rank 1 at least.
Convert merge_dimensions(const Convert& task) {
  Convert merged = task;
  merged.rank = 1;
  merged.sizes[0] = 1;
  merged.target_strides[0] = merged.source_strides[0] = 1;
  std::size_t last = 0;
  bool empty_shape = true;
  for (std::size_t d = 0; d < static_cast<std::size_t>(task.rank); ++d) {
    if (task.sizes[d] == 1) continue;
    const bool continues = !empty_shape &&
                           merged.target_strides[last] == task.target_strides[d] * task.sizes[d] &&
                           merged.source_strides[last] == task.source_strides[d] * task.sizes[d];
    if (!empty_shape && !continues) ++last;
    merged.sizes[last] = continues ? merged.sizes[last] * task.sizes[d] : task.sizes[d];
    merged.target_strides[last] = task.target_strides[d];
    merged.source_strides[last] = task.source_strides[d];
    empty_shape = false;
  }
  merged.rank = static_cast<int>(last) + 1;
  return merged;
}

}  // namespace

std::size_t strided_bytes(const Convert& task, const std::array<std::int64_t, max_dimensions>& strides,
                          DType dtype) {
  std::int64_t last = 0;
  for (std::size_t d = 0; d < static_cast<std::size_t>(task.rank); ++d) {
    if (task.sizes[d] == 0) return 0;
    last += (task.sizes[d] - 1) * strides[d];
  }
  return (static_cast<std::size_t>(last) + 1) * size_of(dtype);
}

void convert_elements(const Convert& task) {
  const FloatingPointScope scope;  // of a host's elements, the calling thread converts them
  if (strided_bytes(task, task.target_strides, task.target_dtype) == 0) return;
  const Convert merged = merge_dimensions(task);
  const auto last = static_cast<std::size_t>(merged.rank - 1);
  const Walk walk{
      .task = merged,
      .convert_row = select_convert_row(task.target_dtype, task.source_dtype),
      .target_bytes = static_cast<std::ptrdiff_t>(size_of(task.target_dtype)),
      .source_bytes = static_cast<std::ptrdiff_t>(size_of(task.source_dtype)),
      .rows_are_bytes = task.target_dtype == task.source_dtype && merged.target_strides[last] == 1 &&
                        merged.source_strides[last] == 1,
  };
  walk.dimension(0, task.target, task.source);
}

}  // namespace tutti::backend::host
