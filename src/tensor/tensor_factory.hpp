// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/tensor.hpp"

#include <string_view>

namespace tutti {

/// Uninitialised memory for a dense layout: what all functions that make tensors end in. Device memory is for
/// first use on the current stream. `function` is named in errors. Throws Error(invalid_argument),
/// OutOfMemoryError.
[[nodiscard]] Tensor allocate_tensor(LayoutPtr layout, Device device, HostMemory host_memory,
                                     std::string_view function);

/// What `tutti::empty` and `tutti::empty_like` make, for functions that fill it and name themselves in
/// errors.
[[nodiscard]] Tensor make_empty(IntList sizes, const TensorOptions& options, std::string_view function);
[[nodiscard]] Tensor make_like(const Tensor& other, const LikeOptions& options, std::string_view function);

/// While the current stream of the device `place` is being captured: keeps `temporary`, which the caller of
/// the library does not know of, until the graph is destroyed. Else nothing, as for the host.
void keep_if_captured(const Tensor& temporary, Device place);

/// `layout` itself if it is dense, else the contiguous one of its sizes: what a copy of a tensor gets.
[[nodiscard]] LayoutPtr dense_layout(const LayoutPtr& layout);

/// Throws Error(invalid_argument) "<function>: <argument> is undefined" unless `view` is defined.
void require_defined(const TensorView& view, std::string_view function, std::string_view argument);

/// Throws Error(invalid_argument) "<function>: <argument> is read-only ..." if `tensor` is.
void require_writable(const Tensor& tensor, std::string_view function, std::string_view argument);

/// Whether host memory at `data` is pinned: from the pinned allocator, or known to the backend.
[[nodiscard]] bool is_pinned_memory(const Storage* storage, const void* data);

}  // namespace tutti
