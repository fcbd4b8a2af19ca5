// SPDX-License-Identifier: Apache-2.0
#include "tutti/tensor.hpp"

#include "device/runtime.hpp"
#include "storage/storage.hpp"
#include "tensor/tensor_factory.hpp"
#include "tutti/error.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace tutti {
namespace {

/// Returns `dimension` counted from the front.
std::size_t resolve_dimension(int dimension, int rank, std::string_view function, std::string_view argument) {
  if (dimension < -rank || dimension >= rank) {
    const std::string expected =
        rank == 0 ? "nothing: the tensor is a scalar" : fmt::format("{} to {}", -rank, rank - 1);
    throw Error(ErrorCode::invalid_argument,
                fmt::format("{}: {} is {}, expected {}", function, argument, dimension, expected));
  }
  return static_cast<std::size_t>(dimension < 0 ? dimension + rank : dimension);
}

using Extents = std::array<std::int64_t, max_dimensions>;

/// Returns the sizes with -1 replaced so that the count is `numel`.
Extents infer_sizes(IntList sizes, const Layout& layout) {
  const auto fail = [&](const char* why) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Tensor::view: sizes are {}, but the tensor has sizes {}: {}", to_string(sizes),
                            to_string(layout.sizes()), why));
  };
  if (sizes.size() > max_dimensions) fail("more dimensions than a tensor may have");
  Extents result{};
  std::size_t inferred = sizes.size();
  std::int64_t known = 1;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    result[i] = sizes[i];
    if (sizes[i] == -1) {
      if (inferred != sizes.size()) fail("only one size may be -1");
      inferred = i;
    } else if (sizes[i] < 0) {
      fail("a size is negative");
    } else if (__builtin_mul_overflow(known, sizes[i], &known)) {
      fail("the numbers of elements differ");
    }
  }
  if (inferred != sizes.size()) {
    if (known == 0) fail("-1 is ambiguous beside a size of 0");
    if (layout.numel() % known != 0) fail("no size in place of -1 gives as many elements");
    result[inferred] = layout.numel() / known;
    known *= result[inferred];
  }
  if (known != layout.numel()) fail("the numbers of elements differ");
  return result;
}

/// Computes strides that give the elements of `layout` the sizes `sizes` in the same order. Returns false if
/// there are none.
///
/// Old dimensions that continue each other form a run of evenly spaced elements. Each run must be a product
/// of consecutive new sizes; these divide it among themselves.
bool strides_for_view(const Layout& layout, std::span<const std::int64_t> sizes,
                      std::span<std::int64_t> strides) {
  auto fresh = static_cast<std::ptrdiff_t>(sizes.size()) - 1;
  const auto at = [](auto span, std::ptrdiff_t i) -> auto& { return span[static_cast<std::size_t>(i)]; };
  for (std::ptrdiff_t old = layout.rank() - 1; old >= 0;) {
    const std::int64_t run_stride = at(layout.strides(), old);
    std::int64_t run = at(layout.sizes(), old--);
    if (run == 1) continue;
    while (old >= 0 && (at(layout.sizes(), old) == 1 || at(layout.strides(), old) == run_stride * run)) {
      run *= at(layout.sizes(), old--);
    }
    std::int64_t covered = 1;
    while (covered < run && fresh >= 0) {
      at(strides, fresh) = run_stride * covered;
      covered *= at(sizes, fresh--);
    }
    if (covered != run) return false;
  }
  // Only sizes of 1 can be left; their strides do not matter.
  for (; fresh >= 0; --fresh) at(strides, fresh) = layout.numel();
  return true;
}

}  // namespace

void require_address(const void* data, const Layout& layout) {
  if (layout.numel() == 0) return;
  if (data == nullptr) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format("TensorView: data is nullptr, expected the address of {} elements", layout.numel()));
  }
  if (reinterpret_cast<std::uintptr_t>(data) % size_of(layout.dtype()) != 0) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("TensorView: data is {}, expected a multiple of the {} bytes of {}", data,
                            size_of(layout.dtype()), name_of(layout.dtype())));
  }
}

void require_defined(const TensorView& view, std::string_view function, std::string_view argument) {
  if (view.defined()) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: {} is undefined, expected a tensor with memory", function, argument));
}

bool is_pinned_memory(const Storage* storage, const void* data) {
  if (dynamic_cast<const PinnedStorage*>(storage) != nullptr) return true;
  if (dynamic_cast<const PageableStorage*>(storage) != nullptr) return false;
  Runtime* const runtime = Runtime::get_if_initialized();
  return runtime != nullptr && runtime->backend().pointer_info(data).kind == backend::MemoryKind::pinned;
}

TensorView::TensorView(void* data, DType dtype, IntList sizes, Device device)
    : TensorView(data, make_layout(dtype, sizes), device) {
  require_address(data_, *layout_);
}

TensorView::TensorView(void* data, DType dtype, IntList sizes, IntList strides, Device device)
    : TensorView(data, make_layout(dtype, sizes, strides), device) {
  require_address(data_, *layout_);
}

std::int64_t TensorView::size(int dimension) const {
  return sizes()[resolve_dimension(dimension, dim(), "TensorView::size", "dimension")];
}

bool Tensor::is_pinned() const {
  return defined() && device().is_host() && is_pinned_memory(storage_.get(), data());
}

Tensor Tensor::narrow(int dimension, std::int64_t start, std::int64_t length) const {
  require_defined(view_, "Tensor::narrow", "the tensor");
  const std::size_t along = resolve_dimension(dimension, dim(), "Tensor::narrow", "dimension");
  const std::int64_t size = sizes()[along];
  if (start < 0 || length < 0 || start > size || length > size - start) {
    throw Error(ErrorCode::invalid_argument,
                fmt::format("Tensor::narrow: start is {} and length is {}, expected a range within the {} "
                            "indices of dimension {}",
                            start, length, size, dimension));
  }
  Extents narrowed{};
  std::ranges::copy(sizes(), narrowed.begin());
  narrowed[along] = length;
  const bool has_elements = length != 0 && numel() != 0;  // otherwise a larger address may not exist
  const std::int64_t skipped =
      has_elements ? start * strides()[along] * static_cast<std::int64_t>(size_of(dtype())) : 0;
  return {storage_,
          TensorView(static_cast<std::byte*>(data()) + skipped,
                     make_layout(dtype(), std::span(narrowed).first(sizes().size()), strides()), device())};
}

Tensor Tensor::view(IntList sizes) const {
  require_defined(view_, "Tensor::view", "the tensor");
  const Extents inferred = infer_sizes(sizes, *layout());
  const auto new_sizes = std::span(inferred).first(sizes.size());
  if (is_contiguous()) return {storage_, TensorView(data(), make_layout(dtype(), new_sizes), device())};
  Extents strides{};
  const auto new_strides = std::span(strides).first(sizes.size());
  if (!strides_for_view(*layout(), new_sizes, new_strides)) {
    throw Error(
        ErrorCode::invalid_argument,
        fmt::format(
            "Tensor::view: sizes are {}, expected sizes that a tensor with sizes {} and strides {} can have "
            "without a copy: call contiguous first",
            to_string(sizes), to_string(this->sizes()), to_string(this->strides())));
  }
  return {storage_, TensorView(data(), make_layout(dtype(), new_sizes, new_strides), device())};
}

Tensor Tensor::transpose(int a, int b) const {
  require_defined(view_, "Tensor::transpose", "the tensor");
  const std::size_t first = resolve_dimension(a, dim(), "Tensor::transpose", "a");
  const std::size_t second = resolve_dimension(b, dim(), "Tensor::transpose", "b");
  Extents new_sizes{};
  Extents new_strides{};
  std::ranges::copy(sizes(), new_sizes.begin());
  std::ranges::copy(strides(), new_strides.begin());
  std::swap(new_sizes[first], new_sizes[second]);
  std::swap(new_strides[first], new_strides[second]);
  const std::size_t rank = sizes().size();
  return {storage_, TensorView(data(),
                               make_layout(dtype(), std::span(new_sizes).first(rank),
                                           std::span(new_strides).first(rank)),
                               device())};
}

void Tensor::require_dtype(DType dtype, const char* function) const {
  require_defined(view_, function, "the tensor");
  if (dtype == this->dtype()) return;
  throw Error(ErrorCode::invalid_argument, fmt::format("{}: T is {}, but the tensor holds {}", function,
                                                       name_of(dtype), name_of(this->dtype())));
}

void Tensor::require_one_element(const char* function) const {
  if (numel() == 1) return;
  throw Error(ErrorCode::invalid_argument,
              fmt::format("{}: the tensor has sizes {}, expected one element", function, to_string(sizes())));
}

}  // namespace tutti
