// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/detail/intrusive_ptr.hpp"
#include "tutti/device.hpp"
#include "tutti/dtype.hpp"
#include "tutti/export.hpp"
#include "tutti/layout.hpp"
#include "tutti/list_of.hpp"
#include "tutti/storage.hpp"
#include "tutti/stream.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <iosfwd>
#include <memory>
#include <optional>
#include <ranges>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace tutti {

/// A list of sizes or strides.
using IntList = ListOf<std::int64_t>;

/// Says whether a call that touches the host waits for the device.
enum class Blocking : std::uint8_t {
  yes,  ///< returns when the bytes are where they belong
  no,   ///< enqueues and returns; host memory should be pinned and must not be touched before the stream is
        ///< done
};

/// The kind of host memory that a tensor on the host uses.
enum class HostMemory : std::uint8_t { pageable, pinned };

/// Overrides for the `*_like` functions; an empty member copies the source's value.
struct LikeOptions {
  std::optional<DType> dtype = {};
  std::optional<Device> device = {};
  /// Empty: dense strides are kept if the sizes are the same; otherwise the result is contiguous.
  std::optional<MemoryFormat> format = {};
  HostMemory host_memory = HostMemory::pageable;  ///< whatever the other one's is
};

namespace detail {

template <class Values>
using ElementOf = std::ranges::range_value_t<Values>;

/// Elements in contiguous memory: a vector, a span, an array. (A std::vector<bool> is none.)
template <class Values>
concept Elements = std::ranges::contiguous_range<Values> && std::ranges::sized_range<Values>;

}  // namespace detail

/// A view of memory that somebody else owns: address, element type, sizes, strides and device. Cheap to copy.
/// The owner keeps the memory alive until queued work on it is done.
class TUTTI_EXPORT TensorView {
 public:
  TensorView() = default;  ///< undefined
  /// Makes a contiguous view. `data` is the first element's address, a multiple of the element size.
  TensorView(void* data, DType dtype, IntList sizes, Device device);
  TensorView(void* data, DType dtype, IntList sizes, IntList strides, Device device);
  TensorView(void* data, LayoutPtr layout, Device device)
      : data_(data),
        layout_(std::move(layout)),
        device_(device.is_current() ? Device(current_device()) : device) {}

  [[nodiscard]] bool defined() const noexcept { return static_cast<bool>(layout_); }
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  /// Describes the layout. This member and those below need a defined view.
  [[nodiscard]] const LayoutPtr& layout() const noexcept { return layout_; }
  [[nodiscard]] DType dtype() const noexcept { return layout_->dtype(); }
  [[nodiscard]] std::span<const std::int64_t> sizes() const noexcept { return layout_->sizes(); }
  [[nodiscard]] std::span<const std::int64_t> strides() const noexcept { return layout_->strides(); }
  /// Returns the size of a dimension; negative ones count from the end. Throws Error(invalid_argument) if it
  /// is out of range.
  [[nodiscard]] std::int64_t size(int dimension) const;
  [[nodiscard]] int dim() const noexcept { return layout_->rank(); }
  [[nodiscard]] std::int64_t numel() const noexcept { return layout_->numel(); }
  [[nodiscard]] std::size_t nbytes() const noexcept { return layout_->nbytes(); }
  [[nodiscard]] bool is_contiguous() const noexcept { return layout_->is_contiguous(); }
  [[nodiscard]] bool is_channels_last() const noexcept { return layout_->is_channels_last(); }

 private:
  void* data_ = nullptr;
  LayoutPtr layout_;
  Device device_;
};

/// A multi-dimensional array that shares ownership of its memory, on a device or on the host.
///
/// Copies of a Tensor share memory. Device memory comes from the caching allocator on the current stream of
/// its device. Operations enqueue on the current stream of the device they work on. Distinct Tensor objects
/// may be used from distinct threads; one object is not synchronised.
class TUTTI_EXPORT Tensor {
 public:
  Tensor() = default;  ///< undefined
  Tensor(detail::IntrusivePtr<Storage> storage, TensorView view) noexcept
      : storage_(std::move(storage)), view_(std::move(view)) {}
  /// Wraps memory without owning it: its owner keeps it alive, as for `view`. Nothing is checked: see
  /// `from_blob`.
  explicit Tensor(TensorView view) noexcept : view_(std::move(view)) {}

  [[nodiscard]] bool defined() const noexcept { return view_.defined(); }
  [[nodiscard]] const TensorView& view() const noexcept { return view_; }
  operator const TensorView&() const noexcept {
    return view_;
  }  // a tensor is usable as a view wherever one is asked
  [[nodiscard]] const detail::IntrusivePtr<Storage>& storage() const noexcept { return storage_; }

  [[nodiscard]] void* data() const noexcept { return view_.data(); }
  /// Returns the first element's address. Host code may dereference it for tensors on the host only. Throws
  /// Error(invalid_argument) if T is not the tensor's element type.
  template <class T>
  [[nodiscard]] T* data() const {
    require_dtype(dtype_of<T>, "Tensor::data");
    return static_cast<T*>(view_.data());
  }
  [[nodiscard]] Device device() const noexcept { return view_.device(); }
  [[nodiscard]] const LayoutPtr& layout() const noexcept { return view_.layout(); }
  [[nodiscard]] DType dtype() const noexcept { return view_.dtype(); }
  [[nodiscard]] std::span<const std::int64_t> sizes() const noexcept { return view_.sizes(); }
  [[nodiscard]] std::span<const std::int64_t> strides() const noexcept { return view_.strides(); }
  [[nodiscard]] std::int64_t size(int dimension) const { return view_.size(dimension); }
  [[nodiscard]] int dim() const noexcept { return view_.dim(); }
  [[nodiscard]] std::int64_t numel() const noexcept { return view_.numel(); }
  [[nodiscard]] std::size_t nbytes() const noexcept { return view_.nbytes(); }
  [[nodiscard]] bool is_contiguous() const noexcept { return view_.is_contiguous(); }
  [[nodiscard]] bool is_channels_last() const noexcept { return view_.is_channels_last(); }
  [[nodiscard]] bool is_pinned() const;
  /// Returns whether the memory's owner forbids writing: another library (`from_dlpack_versioned`), or the
  /// process that shares it.
  [[nodiscard]] bool is_read_only() const noexcept {
    return storage_ && storage_->access() == MemoryAccess::read_only;
  }

  /// Make new tensors of these sizes, with this tensor's element type and device unless `options` say
  /// otherwise. They throw what `tutti::empty` throws, and Error(invalid_argument) if this tensor is
  /// undefined.
  [[nodiscard]] Tensor new_empty(IntList sizes, const LikeOptions& options = {}) const;
  [[nodiscard]] Tensor new_zeros(IntList sizes, const LikeOptions& options = {}) const;
  [[nodiscard]] Tensor new_ones(IntList sizes, const LikeOptions& options = {}) const;
  [[nodiscard]] Tensor new_full(IntList sizes, double value, const LikeOptions& options = {}) const;

  /// Returns a tensor with the same values on `device`; *this* if it is there already. Dense strides are
  /// kept. A result on the host is pinned with Blocking::no, else pageable. Stream order is that of `copy_`.
  [[nodiscard]] Tensor to(Device device, Blocking blocking = Blocking::yes) const;
  /// Returns a tensor with the values converted to `dtype` as by `copy_`; *this* if that is its element type
  /// already.
  [[nodiscard]] Tensor to(DType dtype) const;
  /// Copies `source`'s values into this tensor, across devices, layouts and element types. Sizes must be
  /// equal. Conversions follow C++ except: out-of-range floats saturate and NaN becomes 0 in integers;
  /// complex to real drops the imaginary part. A tensor may be copied onto itself; partial overlap is an
  /// error. Returns *this.
  ///
  /// The copy is ordered with the current streams of both devices: it runs after the work they have queued,
  /// and before what they queue next. A copy between devices does not block. A copy between a device and the
  /// host waits for the device's current stream, and for nothing else, if `blocking` is yes or the host
  /// memory is pageable; with pinned memory and Blocking::no it returns at once, and the pinned tensor may be
  /// destroyed at once. If the host tensor is not dense, its values are read during the call, or are written
  /// before it returns. A copy from host to host is done by the calling thread. In a capture, a copy between
  /// devices cannot use default streams. If the source's stream is being captured, the target's stream must
  /// have joined the capture before; the source's stream joins by itself. Otherwise the copy throws
  /// Error(unsupported).
  const Tensor& copy_(const Tensor& source, Blocking blocking = Blocking::yes) const;
  /// Returns *this* if it is dense in `format`, else a copy that is.
  [[nodiscard]] Tensor contiguous(MemoryFormat format = MemoryFormat::contiguous) const;
  /// Returns the part `start <= index < start + length` of `dimension` (negative counts from the end), which
  /// shares memory. Throws Error(invalid_argument) if there is no such dimension or part.
  [[nodiscard]] Tensor narrow(int dimension, std::int64_t start, std::int64_t length) const;
  /// Returns the same elements with other sizes, sharing memory. One size may be -1 and is inferred. Throws
  /// Error(invalid_argument) if the counts differ or the strides do not allow it.
  [[nodiscard]] Tensor view(IntList sizes) const;
  /// Returns a view with two dimensions exchanged (negative ones count from the end), which shares memory.
  /// Throws Error(invalid_argument) if a dimension does not exist.
  [[nodiscard]] Tensor transpose(int a, int b) const;
  /// Sets every element to `value` (converted as `copy_` does), in stream order.
  const Tensor& fill_(double value) const;
  /// Returns a copy in pinned host memory; *this* if it is pinned already. Throws Error(invalid_argument) if
  /// the tensor is not on the host.
  [[nodiscard]] Tensor pin_memory() const;
  /// Tells the allocator that `stream` uses this memory (see `Storage::record_stream`).
  void record_stream(const Stream& stream) const {
    if (storage_) storage_->record_stream(stream);
  }

  /// Returns the elements in index order, copied to the host as by `copy_`: it does not wait for writes on
  /// streams other than the device's current one. Throws Error(invalid_argument) if T is not the element
  /// type.
  template <class T>
  [[nodiscard]] std::vector<T> to_vector() const {
    static_assert(!std::is_same_v<T, bool>,
                  "read a bool tensor as std::vector<std::uint8_t> with to_bytes()");
    require_dtype(dtype_of<T>, "Tensor::to_vector");
    std::vector<T> result(static_cast<std::size_t>(numel()));
    copy_to_host(result.data());
    return result;
  }
  /// Copies the elements in index order to `values`, a contiguous range of as many elements of the tensor's
  /// type (a span, a vector, an array). Waits like `to_vector`. Throws Error(invalid_argument) if T is not
  /// the element type, or if there are more or fewer.
  template <detail::Elements Values>
  void copy_to(Values&& values) const;
  /// Copies `values`, a contiguous range of as many elements of the tensor's type, in index order into the
  /// tensor, as `copy_` does from pageable host memory: after the work that the device's current stream has
  /// queued, for which the call waits. The values may be changed on return. Returns *this. Throws like
  /// `copy_to`.
  template <detail::Elements Values>
  const Tensor& copy_from(const Values& values) const;
  /// Returns the elements' bytes in index order, copied to the host as by `to_vector`.
  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  /// Returns the value of a tensor with exactly one element, copied to the host as by `to_vector`. Throws
  /// Error(invalid_argument) if there are more or none, or if T is not the element type.
  template <class T>
  [[nodiscard]] T item() const {
    require_dtype(dtype_of<T>, "Tensor::item");
    require_one_element("Tensor::item");
    T value{};
    copy_to_host(&value);
    return value;
  }

 private:
  void require_dtype(DType dtype, const char* function) const;
  void require_one_element(const char* function) const;
  void require_elements(std::size_t given, const char* function) const;
  void copy_to_host(void* target) const;
  void copy_from_host(const void* source) const;

  detail::IntrusivePtr<Storage> storage_;
  TensorView view_;
};

/// Options of functions that make tensors.
struct TensorOptions {
  /// Without it, elements have the type of the values that a function is given, or else float32.
  std::optional<DType> dtype = {};
  Device device = Device::host();
  MemoryFormat format = MemoryFormat::contiguous;
  HostMemory host_memory = HostMemory::pageable;
};

/// Makes a tensor with uninitialised memory. Call it as `tutti::empty`: without the namespace, a call with
/// nothing but a standard container means `std::empty`. All creation functions throw OutOfMemoryError if the
/// device has no memory left, and Error(invalid_argument) for a bad size or device.
[[nodiscard]] TUTTI_EXPORT Tensor empty(IntList sizes, const TensorOptions& options = {});
[[nodiscard]] TUTTI_EXPORT Tensor zeros(IntList sizes, const TensorOptions& options = {});
[[nodiscard]] TUTTI_EXPORT Tensor ones(IntList sizes, const TensorOptions& options = {});
[[nodiscard]] TUTTI_EXPORT Tensor full(IntList sizes, double value, const TensorOptions& options = {});
/// Makes an uninitialised tensor with the sizes, element type, device and memory format of `other` (dense
/// strides are kept), except for what `options` override. A result on the host is pageable unless they say
/// otherwise.
[[nodiscard]] TUTTI_EXPORT Tensor empty_like(const Tensor& other, const LikeOptions& options = {});
[[nodiscard]] TUTTI_EXPORT Tensor zeros_like(const Tensor& other, const LikeOptions& options = {});
[[nodiscard]] TUTTI_EXPORT Tensor ones_like(const Tensor& other, const LikeOptions& options = {});
[[nodiscard]] TUTTI_EXPORT Tensor full_like(const Tensor& other, double value,
                                            const LikeOptions& options = {});
/// Makes a tensor of the values, which are copied: `tensor({1.0, 2.0}, {.device = 0})`. Any contiguous range
/// of an element type will do, such as a vector, an array or a span. The element type is that of the values,
/// unless `options` name another, to which they are converted as by `copy_`. With `sizes`, the values are the
/// tensor's elements in index order; otherwise the tensor has one dimension.
///
/// The copy is ordered as `copy_` from pageable host memory is: on a device it runs on the current stream,
/// for which the call waits. The values may be changed on return. Throws what `tutti::empty` throws, and
/// Error(invalid_argument) if there are more or fewer values than `sizes` say.
template <detail::Elements Values>
[[nodiscard]] Tensor tensor(const Values& values, const TensorOptions& options = {});
template <detail::Elements Values>
[[nodiscard]] Tensor tensor(const Values& values, IntList sizes, const TensorOptions& options = {});
/// Does the same with sizes in braces; `{}` makes a tensor without dimensions.
template <detail::Elements Values>
[[nodiscard]] Tensor tensor(const Values& values, std::initializer_list<std::int64_t> sizes,
                            const TensorOptions& options = {}) {
  return tensor(values, IntList(sizes), options);
}
template <class T>
[[nodiscard]] Tensor tensor(std::initializer_list<T> values, const TensorOptions& options = {});
/// Does the same for the rows of a matrix, all of one length: `tensor({{1, 2}, {3, 4}})`.
template <class T>
[[nodiscard]] Tensor tensor(std::initializer_list<std::initializer_list<T>> rows,
                            const TensorOptions& options = {});

/// Makes a tensor over memory that the caller has, on the host or on a device: no copy. `data` is the address
/// of the first element, a multiple of the element size; it may be nullptr if there are none. `options` give
/// the element type, the device and, without `strides` (in elements), the format; `host_memory` is not looked
/// at, as the memory is what it is.
///
/// Without `release`, the caller keeps the memory alive until queued work on it is done. With it, the tensor
/// owns the memory: when the last tensor that shares it is gone, `release(data)` is called once, on that
/// owner's thread. It must not throw, which would terminate the program, and must itself make sure that
/// queued work no longer uses the memory. If the call throws, it is not called.
///
/// Throws Error(invalid_argument) for bad sizes, strides, addresses and devices, and if the memory is known
/// to be on another device than `options` say, or on one where they say the host.
[[nodiscard]] TUTTI_EXPORT Tensor from_blob(void* data, IntList sizes, const TensorOptions& options = {},
                                            std::function<void(void*)> release = {});
[[nodiscard]] TUTTI_EXPORT Tensor from_blob(void* data, IntList sizes, const TensorOptions& options,
                                            IntList strides, std::function<void(void*)> release = {});
/// Does the same with strides in braces, also `{0}` and `{}`.
[[nodiscard]] inline Tensor from_blob(void* data, IntList sizes, const TensorOptions& options,
                                      std::initializer_list<std::int64_t> strides,
                                      std::function<void(void*)> release = {}) {
  return from_blob(data, sizes, options, IntList(strides), std::move(release));
}

/// Describes a tensor for people: element type, sizes, device and the values in nested brackets. Beyond 1000
/// elements, it shows three from each end of every dimension, with "..." between them. The values are copied
/// to the host as by `Tensor::to_vector`, which waits for the current stream of the device; if that stream is
/// being captured, they are left out.
[[nodiscard]] TUTTI_EXPORT std::string to_string(const Tensor& tensor);
TUTTI_EXPORT std::ostream& operator<<(std::ostream& stream, const Tensor& tensor);

namespace detail {

/// Copies `count` elements of type `dtype` at `values`, in host memory and of any alignment, to a new tensor.
[[nodiscard]] TUTTI_EXPORT Tensor tensor_of(const void* values, std::size_t count, DType dtype, IntList sizes,
                                            const TensorOptions& options);
/// Throws Error(invalid_argument) because rows of a matrix have different lengths.
[[noreturn]] TUTTI_EXPORT void refuse_rows(std::size_t row, std::size_t length, std::size_t expected);

template <Elements Values>
std::span<const ElementOf<Values>> elements(const Values& values) {
  return {std::ranges::data(values), std::ranges::size(values)};
}

}  // namespace detail

template <detail::Elements Values>
Tensor tensor(const Values& values, IntList sizes, const TensorOptions& options) {
  const auto elements = detail::elements(values);
  return detail::tensor_of(elements.data(), elements.size(), dtype_of<detail::ElementOf<Values>>, sizes,
                           options);
}

template <detail::Elements Values>
Tensor tensor(const Values& values, const TensorOptions& options) {
  return tensor(values, {static_cast<std::int64_t>(std::ranges::size(values))}, options);
}

template <class T>
Tensor tensor(std::initializer_list<T> values, const TensorOptions& options) {
  return tensor(std::span(values.begin(), values.size()), options);
}

template <class T>
Tensor tensor(std::initializer_list<std::initializer_list<T>> rows, const TensorOptions& options) {
  const std::size_t length = rows.size() == 0 ? 0 : rows.begin()->size();
  const auto values = std::make_unique<T[]>(rows.size() * length);
  T* next = values.get();
  for (const std::initializer_list<T>& row : rows) {
    if (row.size() != length)
      detail::refuse_rows(static_cast<std::size_t>(&row - rows.begin()), row.size(), length);
    next = std::ranges::copy(row, next).out;
  }
  return tensor(std::span<const T>(values.get(), rows.size() * length),
                {static_cast<std::int64_t>(rows.size()), static_cast<std::int64_t>(length)}, options);
}

template <detail::Elements Values>
const Tensor& Tensor::copy_from(const Values& values) const {
  const auto elements = detail::elements(values);
  require_dtype(dtype_of<detail::ElementOf<Values>>, "Tensor::copy_from");
  require_elements(elements.size(), "Tensor::copy_from");
  copy_from_host(elements.data());
  return *this;
}

template <detail::Elements Values>
void Tensor::copy_to(Values&& values) const {
  require_dtype(dtype_of<detail::ElementOf<Values>>, "Tensor::copy_to");
  require_elements(std::ranges::size(values), "Tensor::copy_to");
  copy_to_host(std::ranges::data(values));
}

}  // namespace tutti
