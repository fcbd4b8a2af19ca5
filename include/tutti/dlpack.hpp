// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"
#include "tutti/tensor.hpp"

struct DLManagedTensor;
struct DLManagedTensorVersioned;

namespace tutti {

/// Hands a tensor to another library, zero-copy (DLPack, unversioned). The result shares memory; its
/// `deleter` gives it back.
///
/// Device memory is exported as kDLCUDA on GPUs. Virtual devices are exported as kDLExtDev: their memory is
/// reachable through tutti alone. Pinned host memory is kDLCUDAHost on GPUs. If `consumer` is given, it first
/// waits for the work queued on the current stream of the tensor's device, so that the consumer may read
/// there at once, and the memory is not reused before what `consumer` has queued by the time of the `deleter`
/// is done. Throws Error(invalid_argument) if the tensor is undefined, or read-only, which this struct cannot
/// say.
[[nodiscard]] TUTTI_EXPORT DLManagedTensor* to_dlpack(const Tensor& tensor, const Stream* consumer = nullptr);
/// The same by the struct of DLPack 1.x, version 1.0, which says that it is read-only if the tensor is, or if
/// `access` asks for it. Headers of DLPack older than 1.0 do not have the struct: what is used then is its
/// layout as the specification has it.
[[nodiscard]] TUTTI_EXPORT DLManagedTensorVersioned* to_dlpack_versioned(
    const Tensor& tensor, const Stream* consumer = nullptr, MemoryAccess access = MemoryAccess::read_write);

/// Takes a tensor from another library, zero-copy; `managed` belongs to the result.
///
/// If `producer` is given, the current stream of the device first waits for the work queued there; for host
/// memory the call itself waits. The deleter is called when the last owner is gone, after waiting for the
/// stream that is current at this call and for those named with `record_stream`; a failure found then is
/// logged. If one of them is being captured, the deleter is called when its graph is gone; if the last owner
/// is a virtual kernel, by work behind what those streams have queued.
///
/// Throws Error(invalid_argument), and then takes nothing over, for an element type, device, rank or negative
/// stride the library does not have, for a shape or data that are not there, for a `byte_offset` that leads
/// beyond the last address, for an address that is not a multiple of the element size, and for
/// kDLExtDev memory that is not this machine's.
[[nodiscard]] TUTTI_EXPORT Tensor from_dlpack(DLManagedTensor* managed, const Stream* producer = nullptr);
/// The same by the struct of DLPack 1.x. What says that it is read-only gives a tensor that is
/// (`Tensor::is_read_only`). Also throws Error(invalid_argument), and then takes nothing over, for another
/// major version than 1.
[[nodiscard]] TUTTI_EXPORT Tensor from_dlpack_versioned(DLManagedTensorVersioned* managed,
                                                        const Stream* producer = nullptr);

}  // namespace tutti
