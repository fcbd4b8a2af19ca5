// SPDX-License-Identifier: Apache-2.0
#include "tutti/layout.hpp"

#include "base/enumerators.hpp"
#include "tutti/error.hpp"
#include "types/layout_pool.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace tutti {
namespace {

/// Lists dimensions, fastest first; only the first `rank` entries count.
using Order = std::array<int, max_dimensions>;

Order order_of(MemoryFormat format, int rank) {
  Order order{};
  int next = 0;
  if (format == MemoryFormat::channels_last) {
    order[static_cast<std::size_t>(next++)] = 1;
    for (int dimension = rank - 1; dimension >= 2; --dimension)
      order[static_cast<std::size_t>(next++)] = dimension;
    order[static_cast<std::size_t>(next)] = 0;
  } else {
    for (int dimension = rank - 1; dimension >= 0; --dimension)
      order[static_cast<std::size_t>(next++)] = dimension;
  }
  return order;
}

Order order_by_stride(std::span<const std::int64_t> strides) {
  Order order{};
  const auto end = order.begin() + static_cast<std::ptrdiff_t>(strides.size());
  std::iota(order.begin(), end, 0);
  std::stable_sort(order.begin(), end, [&](int a, int b) {
    return strides[static_cast<std::size_t>(a)] < strides[static_cast<std::size_t>(b)];
  });
  return order;
}

bool has_channels_last(int rank) {
  return rank == 4 || rank == 5;
}

/// Returns whether walking the dimensions in `order` meets the elements one after the other.
bool is_dense_in(const Order& order, std::span<const std::int64_t> sizes,
                 std::span<const std::int64_t> strides) {
  std::int64_t expected = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto dimension = static_cast<std::size_t>(order[i]);
    if (sizes[dimension] == 1) continue;
    if (strides[dimension] != expected) return false;
    expected *= sizes[dimension];
  }
  return true;
}

/// Returns whether each dimension steps over everything that the faster ones reach.
bool is_nested_in(const Order& order, std::span<const std::int64_t> sizes,
                  std::span<const std::int64_t> strides) {
  std::int64_t reach = 0;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto dimension = static_cast<std::size_t>(order[i]);
    if (sizes[dimension] == 1) continue;
    if (strides[dimension] <= reach) return false;
    reach += (sizes[dimension] - 1) * strides[dimension];
  }
  return true;
}

}  // namespace

std::string to_string(std::span<const std::int64_t> sizes) {
  return fmt::format("[{}]", fmt::join(sizes, ", "));
}

Layout::Layout(DType dtype, std::span<const std::int64_t> sizes, MemoryFormat format) : dtype_(dtype) {
  require_enumerator(format, MemoryFormat::channels_last, "Layout", "format");
  set_sizes(sizes);
  if (format == MemoryFormat::channels_last && !has_channels_last(rank_)) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Layout: sizes {} have {} dimensions, expected 4 or 5 for channels_last",
                            to_string(sizes), rank_));
  }
  const Order order = order_of(format, rank_);
  std::int64_t stride = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const auto dimension = static_cast<std::size_t>(order[i]);
    strides_[dimension] = stride;
    stride *= std::max<std::int64_t>(sizes_[dimension], 1);
  }
  derive();
}

Layout::Layout(DType dtype, std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides)
    : dtype_(dtype) {
  set_sizes(sizes);
  if (strides.size() != sizes.size()) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Layout: strides {} have {} dimensions, expected {} as in sizes {}",
                            to_string(strides), strides.size(), sizes.size(), to_string(sizes)));
  }
  for (std::size_t i = 0; i < strides.size(); ++i) {
    if (strides[i] < 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("Layout: strides[{}] is {}, expected 0 or more", i, strides[i]));
    }
    strides_[i] = strides[i];
  }
  derive();
}

void Layout::set_sizes(std::span<const std::int64_t> sizes) {
  require_enumerator(dtype_, all_dtypes.back(), "Layout", "dtype");
  if (sizes.size() > max_dimensions) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Layout: sizes {} have {} dimensions, expected at most {}", to_string(sizes),
                            sizes.size(), max_dimensions));
  }
  rank_ = static_cast<int>(sizes.size());
  numel_ = 1;
  // Empty dimensions count as 1 here, so that dense strides cannot overflow either.
  auto bytes = static_cast<std::int64_t>(size_of(dtype_));
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] < 0) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("Layout: sizes[{}] is {}, expected 0 or more", i, sizes[i]));
    }
    if (__builtin_mul_overflow(bytes, std::max<std::int64_t>(sizes[i], 1), &bytes)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("Layout: sizes {} of {} need more than 2^63 - 1 bytes", to_string(sizes),
                              name_of(dtype_)));
    }
    sizes_[i] = sizes[i];
    numel_ *= sizes[i];
  }
}

bool Layout::has_same_strides(const Layout& other) const noexcept {
  for (std::size_t i = 0; i < sizes().size(); ++i) {
    if (sizes_[i] != 1 && strides_[i] != other.strides_[i]) return false;
  }
  return true;
}

void Layout::derive() {
  if (numel_ == 0) {
    contiguous_ = dense_ = non_overlapping_ = true;
    channels_last_ = has_channels_last(rank_);
    return;
  }
  const auto element = static_cast<std::int64_t>(size_of(dtype_));
  std::int64_t span = element;
  for (std::size_t i = 0; i < sizes().size(); ++i) {
    std::int64_t reach = 0;
    if (__builtin_mul_overflow(sizes_[i] - 1, strides_[i], &reach) ||
        __builtin_mul_overflow(reach, element, &reach) || __builtin_add_overflow(span, reach, &span)) {
      throw Error(ErrorCode::invalid_argument,
                  fmt::format("Layout: sizes {} with strides {} of {} span more than 2^63 - 1 bytes",
                              to_string(sizes()), to_string(strides()), name_of(dtype_)));
    }
  }
  span_bytes_ = static_cast<std::size_t>(span);
  contiguous_ = is_dense_in(order_of(MemoryFormat::contiguous, rank_), sizes(), strides());
  channels_last_ = has_channels_last(rank_) &&
                   is_dense_in(order_of(MemoryFormat::channels_last, rank_), sizes(), strides());
  dense_ = non_overlapping_ = contiguous_ || channels_last_;
  if (dense_) return;
  const Order order = order_by_stride(strides());
  dense_ = is_dense_in(order, sizes(), strides());
  non_overlapping_ = is_nested_in(order, sizes(), strides());
}

LayoutPtr make_layout(DType dtype, std::span<const std::int64_t> sizes, MemoryFormat format) {
  return LayoutPool::get().find_or_make(Layout(dtype, sizes, format));
}

LayoutPtr make_layout(DType dtype, std::span<const std::int64_t> sizes,
                      std::span<const std::int64_t> strides) {
  return LayoutPool::get().find_or_make(Layout(dtype, sizes, strides));
}

}  // namespace tutti
