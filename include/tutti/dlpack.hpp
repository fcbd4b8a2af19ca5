// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/tensor.hpp"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace tutti {

/// Hands a tensor to another library, zero-copy (DLPack, unversioned). The result shares memory until its
/// `deleter` is called.
///
/// Device memory is exported as kDLCUDA on GPUs. Virtual devices are exported as kDLExtDev: only tutti can
/// reach their memory. Pinned host memory is kDLCUDAHost on GPUs. If the stream `consumer` is given, it is
/// made to wait for the work queued on the current stream of the tensor's device, so that work queued on
/// `consumer` may read the tensor at once. The memory is then not reused before the work is done that is
/// queued on `consumer` when `deleter` is called. Throws Error(invalid_argument) if the tensor is undefined,
/// or read-only, which this struct cannot express.
[[nodiscard]] TUTTI_EXPORT DLManagedTensor* to_dlpack(const Tensor& tensor, const Stream* consumer = nullptr);
/// Does the same with the struct of DLPack 1.x (version 1.0), which is marked read-only if the tensor is, or
/// if `access` asks for it. With headers of DLPack before 1.0, which lack the struct, the library declares it
/// as the specification does.
[[nodiscard]] TUTTI_EXPORT DLManagedTensorVersioned* to_dlpack_versioned(
    const Tensor& tensor, const Stream* consumer = nullptr, MemoryAccess access = MemoryAccess::read_write);

/// Takes a tensor over from another library, zero-copy; the result owns `managed`.
///
/// If `producer` is given, the current stream of the device first waits for the work queued there; for host
/// memory the call itself waits. When the last owner is gone, the stream that is current at this call and
/// those named with `record_stream` are waited for, and then the deleter is called; a failure found then is
/// logged. If one of these streams is being captured, the deleter is called when its graph is gone; if the
/// last owner is a virtual kernel, it is called by work that runs after those streams' work.
///
/// Throws Error(invalid_argument), and then takes nothing over, for an element type, device, rank or negative
/// stride that the library does not support, for a missing shape or missing data, for a `byte_offset` beyond
/// the last address, for an address that is not a multiple of the element size, and for kDLExtDev memory of
/// another virtual machine.
[[nodiscard]] TUTTI_EXPORT Tensor from_dlpack(DLManagedTensor* managed, const Stream* producer = nullptr);
/// Does the same with the struct of DLPack 1.x. If it is marked read-only, so is the tensor
/// (`Tensor::is_read_only`). Also throws Error(invalid_argument), and then takes nothing over, for a major
/// version other than 1.
[[nodiscard]] TUTTI_EXPORT Tensor from_dlpack_versioned(DLManagedTensorVersioned* managed,
                                                        const Stream* producer = nullptr);

}  // namespace tutti
