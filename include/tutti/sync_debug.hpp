// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/export.hpp"

#include <cstdint>
#include <string_view>

namespace tutti {

/// The consequence of a call that is about to block the calling thread, until a device has made progress or
/// code has been compiled.
enum class SyncDebugMode : std::uint8_t {
  none,   ///< nothing: "default" in words
  warn,   ///< each such call writes a line, with its name, to the log (see `TUTTI_LOG`)
  error,  ///< each such call throws Error(unsupported), with its name, instead, and does nothing
};

/// Returns the mode in words: "default", "warn" or "error".
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(SyncDebugMode mode) noexcept;

/// Sets the mode for the whole process, from the next call on, to find calls that make the host wait when it
/// should queue work ahead. Works on GPUs and on virtual devices alike. Thread-safe. Costs one load from
/// memory for each call that blocks, and nothing for others.
///
/// The following calls count as blocking, whether or not there is something to wait for at the time:
///  - `synchronize`, `Stream::synchronize`, `Event::synchronize`;
///  - `Tensor::copy_` between the host and a device, if it is blocking or the memory on the host is not
///    pinned, and with it `Tensor::to`, `Tensor::to_vector`, `tensor` and others that copy so;
///  - `from_dlpack` of memory of the host, with a stream; making a `SharedTensor`;
///  - `gather` to the host, unless `CollectiveOptions::blocking` is no;
///  - `empty_cache`, `empty_pinned_cache`, making a `GraphGuard`; allocations that find no memory free and so
///    wait for what is in use, or collect what is cached (`garbage_collection_threshold`);
///  - `make_graphed_callables`, which warms its callables up;
///  - the first use of a function of `tutti/jiterator.hpp`, or of a `ReduceOp::compiled`, on a device for an
///    element type, in `prepare` too: it is compiled, and loaded there;
///  - making a `Communicator`; the first collective among devices that have not been used together, which
///    tests how they are connected, connects NCCL with them, or finds out how their kernels can be launched;
///  - of `tutti/cuda_libraries.hpp`, `current_blas_handle` and `FftPlanCache::plan` where they make one, and
///    `set_max_size` and `clear` where plans go;
///  - `virtual_devices::start` and `virtual_devices::set_interleaving_seed`.
///
/// Destructors that wait for devices, those of a `Communicator`, of imported tensors, of persistent calls
/// that have failed, of an `FftPlanCache` that has plans, and of the last use of a plan that is no longer in
/// its cache, `device_free`, and with `TUTTI_TRACE` the first collective on each device, which reads its
/// clock, write the line in either mode, as they must not throw. Not among the calls are those that wait only
/// for room in a full queue, or for other processes, and what `TUTTI_LAUNCH_BLOCKING` makes of calls that
/// queue work.
///
/// Throws Error(invalid_argument) for a number that is no mode.
TUTTI_EXPORT void set_sync_debug_mode(SyncDebugMode mode);
/// Sets the mode by its name. Throws Error(invalid_argument) for an unknown one.
TUTTI_EXPORT void set_sync_debug_mode(std::string_view mode);
/// Returns the mode, initially `none`.
[[nodiscard]] TUTTI_EXPORT SyncDebugMode get_sync_debug_mode() noexcept;

}  // namespace tutti
