// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/detail/intrusive_ptr.hpp"
#include "tutti/dtype.hpp"
#include "tutti/export.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tutti {

/// Maximum number of a tensor's dimensions.
inline constexpr int max_dimensions = 8;

/// The order of dimensions in memory for new tensors.
enum class MemoryFormat : std::uint8_t {
  contiguous,     ///< last dimension fastest
  channels_last,  ///< dimension 1 fastest: N,H,W,C (rank 4) or N,D,H,W,C (rank 5)
};

/// Element type, sizes and strides of a tensor. Immutable and shared: a thousand tensors of one shape may
/// share one.
///
/// Sizes count elements and are not negative; strides count elements and are not negative. Rank 0 is a
/// scalar.
class TUTTI_EXPORT Layout final : public detail::RefCounted {
 public:
  /// Makes a dense layout in the given format. Throws Error(invalid_argument): negative size, more than
  /// `max_dimensions`, element count overflow, channels_last with a rank other than 4 or 5.
  Layout(DType dtype, std::span<const std::int64_t> sizes, MemoryFormat format = MemoryFormat::contiguous);
  /// Makes a strided layout. Throws Error(invalid_argument) also for strides that are negative or of another
  /// rank.
  Layout(DType dtype, std::span<const std::int64_t> sizes, std::span<const std::int64_t> strides);

  [[nodiscard]] DType dtype() const noexcept { return dtype_; }
  [[nodiscard]] int rank() const noexcept { return rank_; }
  [[nodiscard]] std::span<const std::int64_t> sizes() const noexcept {
    return {sizes_.data(), static_cast<std::size_t>(rank_)};
  }
  [[nodiscard]] std::span<const std::int64_t> strides() const noexcept {
    return {strides_.data(), static_cast<std::size_t>(rank_)};
  }
  /// Returns the number of elements.
  [[nodiscard]] std::int64_t numel() const noexcept { return numel_; }
  /// Returns the bytes of all elements without gaps.
  [[nodiscard]] std::size_t nbytes() const noexcept {
    return static_cast<std::size_t>(numel_) * size_of(dtype_);
  }
  /// Returns the bytes from the first element's first byte to one past the last element's last; 0 if there
  /// are no elements.
  [[nodiscard]] std::size_t span_bytes() const noexcept { return span_bytes_; }

  /// Returns whether elements lie in order of indices, last fastest, without gaps. Strides of dimensions of
  /// size 1 do not matter.
  [[nodiscard]] bool is_contiguous() const noexcept { return contiguous_; }
  /// Returns whether the rank is 4 or 5, with dimension 1 fastest and without gaps.
  [[nodiscard]] bool is_channels_last() const noexcept { return channels_last_; }
  /// Returns whether some order of dimensions makes it contiguous: the elements fill `nbytes()` bytes, each
  /// once.
  [[nodiscard]] bool is_dense() const noexcept { return dense_; }
  /// Returns whether no two indices share an element because each dimension steps over all that the faster
  /// ones reach. It is false for expanded dimensions, and for the rare strides that interleave dimensions
  /// without sharing an element.
  [[nodiscard]] bool is_non_overlapping() const noexcept { return non_overlapping_; }
  /// Returns whether element type and sizes are equal, and every element lies at the same place: strides may
  /// differ where they do not matter.
  [[nodiscard]] bool operator==(const Layout& other) const noexcept {
    if (this == &other) return true;
    if (dtype_ != other.dtype_ || rank_ != other.rank_ || numel_ != other.numel_) return false;
    for (std::size_t i = 0; i < sizes().size(); ++i) {
      if (sizes_[i] != other.sizes_[i]) return false;
    }
    return (contiguous_ && other.contiguous_) || has_same_strides(other);
  }
  /// Returns channels_last if the layout is that and not contiguous, else contiguous.
  [[nodiscard]] MemoryFormat preferred_format() const noexcept {
    return !contiguous_ && channels_last_ ? MemoryFormat::channels_last : MemoryFormat::contiguous;
  }

 private:
  void set_sizes(std::span<const std::int64_t> sizes);
  void derive();
  /// Compares strides where they matter. `other` has the same sizes.
  [[nodiscard]] bool has_same_strides(const Layout& other) const noexcept;

  DType dtype_;
  bool contiguous_ = false;
  bool channels_last_ = false;
  bool dense_ = false;
  bool non_overlapping_ = false;
  int rank_ = 0;
  std::int64_t numel_ = 0;
  std::size_t span_bytes_ = 0;
  std::array<std::int64_t, max_dimensions> sizes_{};
  std::array<std::int64_t, max_dimensions> strides_{};
};

using LayoutPtr = detail::IntrusivePtr<const Layout>;

/// Returns a layout to share among tensors; arguments and errors are those of the constructors. The first
/// 4096 different ones that a process asks for are kept for good, so that equal ones are the same object.
/// Thread-safe.
[[nodiscard]] TUTTI_EXPORT LayoutPtr make_layout(DType dtype, std::span<const std::int64_t> sizes,
                                                 MemoryFormat format = MemoryFormat::contiguous);
[[nodiscard]] TUTTI_EXPORT LayoutPtr make_layout(DType dtype, std::span<const std::int64_t> sizes,
                                                 std::span<const std::int64_t> strides);

/// Formats sizes, for instance "[2, 3, 4]".
[[nodiscard]] TUTTI_EXPORT std::string to_string(std::span<const std::int64_t> sizes);

}  // namespace tutti
