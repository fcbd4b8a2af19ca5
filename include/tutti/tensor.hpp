// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/detail/intrusive_ptr.hpp"
#include "tutti/device.hpp"
#include "tutti/dtype.hpp"
#include "tutti/export.hpp"
#include "tutti/layout.hpp"
#include "tutti/list_of.hpp"
#include "tutti/stream.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace tutti {

/// Sizes, or strides.
using IntList = ListOf<std::int64_t>;

/// Whether a call that touches the host waits for the device.
enum class Blocking : std::uint8_t {
  yes,  ///< returns when the bytes are where they belong
  no,   ///< enqueues and returns; host memory should be pinned and must not be touched before the stream is
        ///< done
};

/// What kind of host memory a tensor on the host lives in.
enum class HostMemory : std::uint8_t { pageable, pinned };

/// What a tensor made after another one has otherwise than that; nothing: the same.
struct LikeOptions {
  std::optional<DType> dtype = {};
  std::optional<Device> device = {};
  /// Nothing: strides that are dense are kept, where the sizes are the same; else contiguous.
  std::optional<MemoryFormat> format = {};
  HostMemory host_memory = HostMemory::pageable;  ///< whatever the other one's is
};

/// Whether memory may be written to.
enum class MemoryAccess : std::uint8_t {
  read_write,
  read_only,  ///< who owns it says so: `copy_`, fills, random ones too, and outputs refuse to write there
};

/// Who allocated a storage's memory.
enum class MemoryOrigin : std::uint8_t {
  library,  ///< its device and size are what they claim to be
  foreign,
};

/// Memory a tensor lives in; shared by all tensors that view it. The library's own type: users hold tensors.
class TUTTI_EXPORT Storage : public detail::RefCounted {
 public:
  Storage(void* data, std::size_t bytes, Device device, MemoryOrigin origin = MemoryOrigin::foreign,
          MemoryAccess access = MemoryAccess::read_write)
      : device_(device), origin_(origin), access_(access), data_(data), bytes_(bytes) {}
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] std::size_t bytes() const noexcept { return bytes_; }  ///< usable bytes from `data`
  [[nodiscard]] Device device() const noexcept { return device_; }
  /// Keeps the memory from being reused or given back, after its last owner is gone, before the work queued
  /// on `stream` at that time is done. Does nothing for pageable memory and for that of `Tensor::from_blob`.
  virtual void record_stream(const Stream& stream) { static_cast<void>(stream); }
  [[nodiscard]] bool is_library_memory() const noexcept { return origin_ == MemoryOrigin::library; }
  [[nodiscard]] MemoryAccess access() const noexcept { return access_; }

 private:
  Device device_;
  MemoryOrigin origin_;
  MemoryAccess access_;
  void* data_;
  std::size_t bytes_;
};

/// Memory that somebody else owns, seen as a tensor: pointer, element type, sizes, strides, device. Cheap to
/// copy. The owner keeps the memory alive until queued work on it is done.
class TUTTI_EXPORT TensorView {
 public:
  TensorView() = default;  ///< undefined
  /// Contiguous. `data` is the first element's address; it must be a multiple of the element size.
  TensorView(void* data, DType dtype, IntList sizes, Device device);
  TensorView(void* data, DType dtype, IntList sizes, IntList strides, Device device);
  TensorView(void* data, LayoutPtr layout, Device device)
      : data_(data),
        layout_(std::move(layout)),
        device_(device.is_current() ? Device(current_device()) : device) {}

  [[nodiscard]] bool defined() const noexcept { return static_cast<bool>(layout_); }
  [[nodiscard]] void* data() const noexcept { return data_; }
  [[nodiscard]] Device device() const noexcept { return device_; }
  /// The members below need a defined view.
  [[nodiscard]] const LayoutPtr& layout() const noexcept { return layout_; }
  [[nodiscard]] DType dtype() const noexcept { return layout_->dtype(); }
  [[nodiscard]] std::span<const std::int64_t> sizes() const noexcept { return layout_->sizes(); }
  [[nodiscard]] std::span<const std::int64_t> strides() const noexcept { return layout_->strides(); }
  /// Negative dimensions count from the end. Throws Error(invalid_argument) if out of range.
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
  /// A tensor over memory it does not own: as `view` says, the owner keeps it alive.
  explicit Tensor(TensorView view) noexcept : view_(std::move(view)) {}
  /// Takes over memory made elsewhere; `release` is called once with `view.data()`'s last owner gone, on the
  /// thread that lets go of it, and must not throw: that ends the program. The memory must by then not be in
  /// use by queued work: `release` arranges that.
  [[nodiscard]] static Tensor from_blob(const TensorView& view, std::function<void()> release);

  [[nodiscard]] bool defined() const noexcept { return view_.defined(); }
  [[nodiscard]] const TensorView& view() const noexcept { return view_; }
  operator const TensorView&() const noexcept {
    return view_;
  }  // a tensor is usable as a view wherever one is asked
  [[nodiscard]] const detail::IntrusivePtr<Storage>& storage() const noexcept { return storage_; }

  [[nodiscard]] void* data() const noexcept { return view_.data(); }
  /// The first element's address. Host code may dereference it for tensors on the host only. Throws
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
  /// Whether who owns its memory forbids writing to it: another library (`from_dlpack_versioned`), or the
  /// process that shares it.
  [[nodiscard]] bool is_read_only() const noexcept {
    return storage_ && storage_->access() == MemoryAccess::read_only;
  }

  /// New tensors of these sizes, of this one's element type and on its device, but for what `options` say.
  /// Throw as `tutti::empty` does, and Error(invalid_argument) if this tensor is undefined.
  [[nodiscard]] Tensor new_empty(IntList sizes, const LikeOptions& options = {}) const;
  [[nodiscard]] Tensor new_zeros(IntList sizes, const LikeOptions& options = {}) const;
  [[nodiscard]] Tensor new_ones(IntList sizes, const LikeOptions& options = {}) const;
  [[nodiscard]] Tensor new_full(IntList sizes, double value, const LikeOptions& options = {}) const;

  /// A tensor with the same values on `device`; *this* if it is there already. Dense strides are kept. To the
  /// host with Blocking::no the result is pinned, else pageable. Stream order as for `copy_`.
  [[nodiscard]] Tensor to(Device device, Blocking blocking = Blocking::yes) const;
  /// The same values converted; *this* if the type is the same. See `copy_` for conversions.
  [[nodiscard]] Tensor to(DType dtype) const;
  /// Copies `source`'s values here, across devices, layouts and element types. Sizes must be equal.
  /// Conversions follow C++ except: out-of-range floats saturate and NaN becomes 0 in integers; complex to
  /// real drops the imaginary part. A tensor may be copied onto itself; partial overlap is an error. Returns
  /// *this.
  ///
  /// The copy is ordered with the current streams of both ends: it comes after what they have queued, and
  /// before what they queue next. A copy between devices does not block. One between a device and the host
  /// waits for the device's current stream, and for nothing else, if `blocking` is yes or the host memory is
  /// pageable; with pinned memory and Blocking::no it returns at once, and the pinned tensor may be let go of
  /// at once. Values on the host that are not dense are gathered at the call, or arrive before it returns.
  /// Host to host the call copies itself.
  /// Between devices, no default stream can take part in a capture. Where the source's stream is being
  /// captured, the target's has joined before; the source's joins by itself. Else Error(unsupported).
  const Tensor& copy_(const Tensor& source, Blocking blocking = Blocking::yes) const;
  /// *this* if already dense in `format`, else a copy that is.
  [[nodiscard]] Tensor contiguous(MemoryFormat format = MemoryFormat::contiguous) const;
  /// The part `start <= index < start + length` of `dimension` (negative counts from the end); shares memory.
  /// Throws Error(invalid_argument) if there is no such dimension or part.
  [[nodiscard]] Tensor narrow(int dimension, std::int64_t start, std::int64_t length) const;
  /// The same elements under other sizes; shares memory. One size may be -1 and is inferred. Throws
  /// Error(invalid_argument) if the counts differ or the strides do not allow it.
  [[nodiscard]] Tensor view(IntList sizes) const;
  /// Two dimensions (negative count from the end) exchanged; shares memory. Throws Error(invalid_argument) if
  /// there is none such.
  [[nodiscard]] Tensor transpose(int a, int b) const;
  /// Sets every element to `value` (converted as `copy_` does), in stream order.
  const Tensor& fill_(double value) const;
  /// A copy in pinned host memory; *this* if it is there already. Throws Error(invalid_argument) if the
  /// tensor is not on the host.
  [[nodiscard]] Tensor pin_memory() const;
  /// Tells the allocator that `stream` uses this memory (see `Storage::record_stream`).
  void record_stream(const Stream& stream) const {
    if (storage_) storage_->record_stream(stream);
  }

  /// The elements in index order, copied to the host as `copy_` does: what other streams than the device's
  /// current one still write there is not waited for. Throws Error(invalid_argument) if T is not the element
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
  /// The elements' bytes in index order, copied to the host as `to_vector` does.
  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  /// The value of a tensor with one element, copied to the host as `to_vector` does. Throws
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
  void copy_to_host(void* target) const;

  detail::IntrusivePtr<Storage> storage_;
  TensorView view_;
};

/// Where and how a new tensor is made.
struct TensorOptions {
  DType dtype = DType::float32;
  Device device = Device::host();
  MemoryFormat format = MemoryFormat::contiguous;
  HostMemory host_memory = HostMemory::pageable;
};

/// Uninitialised memory. Call it as `tutti::empty`: unqualified, with nothing but a standard container, it is
/// `std::empty`. All creation functions throw OutOfMemoryError if the device has no room, and
/// Error(invalid_argument) for a bad size or device.
[[nodiscard]] TUTTI_EXPORT Tensor empty(IntList sizes, const TensorOptions& options = {});
[[nodiscard]] TUTTI_EXPORT Tensor zeros(IntList sizes, const TensorOptions& options = {});
[[nodiscard]] TUTTI_EXPORT Tensor ones(IntList sizes, const TensorOptions& options = {});
[[nodiscard]] TUTTI_EXPORT Tensor full(IntList sizes, double value, const TensorOptions& options = {});
/// Same sizes, element type, device and memory format as `other` (dense strides are kept), but for what
/// `options` say. On the host, in pageable memory unless they say otherwise.
[[nodiscard]] TUTTI_EXPORT Tensor empty_like(const Tensor& other, const LikeOptions& options = {});
[[nodiscard]] TUTTI_EXPORT Tensor zeros_like(const Tensor& other, const LikeOptions& options = {});
[[nodiscard]] TUTTI_EXPORT Tensor ones_like(const Tensor& other, const LikeOptions& options = {});
[[nodiscard]] TUTTI_EXPORT Tensor full_like(const Tensor& other, double value,
                                            const LikeOptions& options = {});
/// Copies the elements at `data`, in host memory in index order, as many as `sizes` say, into a new tensor;
/// the source may be reused on return. With spans and vectors, Error(invalid_argument) if there are more or
/// fewer.
[[nodiscard]] TUTTI_EXPORT Tensor from_host(const void* data, IntList sizes, const TensorOptions& options);
template <class T>
[[nodiscard]] Tensor from_host(std::span<const T> values, IntList sizes, Device device = Device::host());
template <class T>
[[nodiscard]] Tensor from_host(const std::vector<T>& values, IntList sizes, Device device = Device::host()) {
  return from_host(std::span<const T>(values), sizes, device);
}

/// For people: element type, sizes, device and the values in nested brackets; of tensors with more than 1000
/// elements three from each end of every dimension, with "..." between them. The values are copied to the
/// host as `Tensor::to_vector` does, which waits for the current stream of the device; where that is being
/// captured they are left out.
[[nodiscard]] TUTTI_EXPORT std::string to_string(const Tensor& tensor);
TUTTI_EXPORT std::ostream& operator<<(std::ostream& stream, const Tensor& tensor);

namespace detail {
TUTTI_EXPORT void require_count(std::size_t given, IntList sizes);
}

template <class T>
Tensor from_host(std::span<const T> values, IntList sizes, Device device) {
  detail::require_count(values.size(), sizes);
  return from_host(values.data(), sizes, TensorOptions{.dtype = dtype_of<T>, .device = device});
}

}  // namespace tutti
