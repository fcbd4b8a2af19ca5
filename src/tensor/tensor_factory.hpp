// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/tensor.hpp"

#include <string_view>

namespace tutti {

/// Allocates uninitialised memory for a dense layout; all functions that make tensors use it. Device memory
/// is for first use on the current stream. Errors name `function`. Throws Error(invalid_argument),
/// OutOfMemoryError.
[[nodiscard]] Tensor allocate_tensor(LayoutPtr layout, Device device, HostMemory host_memory,
                                     std::string_view function);

/// Make what `tutti::empty` and `tutti::empty_like` make. Errors name `function`, the caller that fills the
/// tensor.
[[nodiscard]] Tensor make_empty(IntList sizes, const TensorOptions& options, std::string_view function);
[[nodiscard]] Tensor make_like(const Tensor& other, const LikeOptions& options, std::string_view function);

/// Keeps `temporary`, a tensor that the library's caller does not know of, until the graph is destroyed, if
/// the current stream of the device `place` is being captured. Otherwise does nothing, as for the host.
void keep_if_captured(const Tensor& temporary, Device place);

/// Returns the layout of a tensor's copy: `layout` itself if it is dense, else the contiguous one of the same
/// sizes.
[[nodiscard]] LayoutPtr dense_layout(const LayoutPtr& layout);

/// Throws Error(invalid_argument) "TensorView: data is ..." if the layout has elements and `data` is nullptr
/// or not aligned to them.
void require_address(const void* data, const Layout& layout);

/// Throws Error(invalid_argument) "<function>: <argument> is undefined" unless `view` is defined.
void require_defined(const TensorView& view, std::string_view function, std::string_view argument);

/// Throws Error(invalid_argument) "<function>: <argument> is read-only ..." if `tensor` is.
void require_writable(const Tensor& tensor, std::string_view function, std::string_view argument);

/// Returns whether host memory at `data` is pinned, by the pinned allocator or as far as the backend knows.
[[nodiscard]] bool is_pinned_memory(const Storage* storage, const void* data);

}  // namespace tutti
