// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/collective.hpp"
#include "tutti/device.hpp"
#include "tutti/export.hpp"
#include "tutti/list_of.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

/// The collectives of one process that drives all devices.
///
/// All of them validate everything first, enqueue, and return. They block the host on device work only if an
/// output is host memory and the caller asked for a blocking copy, if an input is pageable host memory (it
/// has been read when the call returns), and at first use, when links are tested and NCCL is connected.
///
/// Errors. On bad input they throw Error(invalid_argument), naming function, argument, index, what was given
/// and what was expected, and Error(unsupported) for a transport that is asked for and cannot carry the call;
/// nothing has been enqueued then and no output byte has changed. Beside these: OutOfMemoryError,
/// Error(transport_failure) from NCCL, Error(device_failure) from the devices.
///
/// Stream order: an input is read after the work already queued on the current stream of its device, and
/// before work queued there later; an output is complete for work queued later on the current (or given)
/// stream of its device. Inputs, outputs and the returned tensors may be dropped right after the call: their
/// memory is kept as long as needed.
///
/// Thread safety: any thread may call, on any devices, concurrently.
///
/// With given outputs nothing is allocated except staging memory that some transports need, dense temporaries
/// for tensors that are strided or not laid out alike (copied on their own devices), and pinned temporaries
/// for pageable host memory.
///
/// Coalesced calls with empty lists of tensors are valid, do nothing and return empty lists.
///
/// Calls may be captured into a graph when the current stream of one participating device is being captured;
/// the others join the capture, which default streams cannot, and the graph owns the memory of new outputs on
/// every device (`tutti/graph.hpp`). The operands must need no temporaries: device tensors must be dense and
/// laid out alike (`gather`: like the output), host tensors pinned. An output on the host needs
/// `Blocking::no`, because a capture cannot wait. Otherwise the calls throw Error(unsupported), with nothing
/// enqueued. Links are tested and NCCL is connected at first use, which waits for devices: make one such call
/// before the capture.
namespace tutti {

using DeviceList = ListOf<Device>;
using TensorList = ListOf<Tensor>;
/// One list of tensors per device.
using TensorLists = ListOf<std::vector<Tensor>>;

/// The means that carry the bytes.
///
/// NCCL launches a kernel on each device, and these kernels wait for each other. If another thread meanwhile
/// queues a copy of its own (`cudaMemcpyAsync`) to or from pageable memory on a stream of such a call, CUDA
/// makes that thread wait for the stream's kernel, and may make NCCL's next launch wait for the thread: a
/// deadlock. Queue such a copy after the call has returned, or use `Tensor::copy_`, which does not block
/// other threads. Between processes, with one device each, this cannot happen. It can happen within one
/// process if collectives use rounds among its devices, as they do up to 64 MiB between two and 1 MiB among
/// three or four devices (environment variable `TUTTI_ROUNDS`). The kernels of rounds also wait for each
/// other. They hold multiprocessors, up to 86 from 1 MiB on, until the streams of all operands reach the
/// call. A kernel that needs a whole device at once has to wait for them, so such a stream must not wait for
/// that kernel. A sending device's stream gets at most eight calls ahead of the receiving ones; above 1 MiB,
/// the data is read in place, and the sending stream waits until that is done. Windows take 12 MiB of each
/// device's memory for the rest of the process, for each of at most four sets of devices.
enum class TransportKind : std::uint8_t {
  automatic,  ///< chosen by topology, size, element type, layout and required determinism
  p2p,  ///< devices access each other's memory; pairs that cannot are bridged through pinned host memory, but
        ///< at least one pair must. A `Communicator` bridges none: all its members must
  nccl,    ///< NVIDIA's library
  staged,  ///< through pinned host memory, in overlapped chunks
};
/// Returns the enumerator's name, but "auto" for `automatic`.
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(TransportKind kind) noexcept;
/// Parses a name as `name_of` returns it. Throws Error(invalid_argument) for any other text.
[[nodiscard]] TUTTI_EXPORT TransportKind parse_transport(std::string_view text);

/// The guarantee on a sum's bits.
enum class Determinism : std::uint8_t {
  fastest,  ///< any transport; NCCL may add in its own order, the others are bitwise
  bitwise,  ///< ascending input order, documented accumulator: the same bits on all transports and backends
};

/// Options of every collective.
struct CollectiveOptions {
  /// `automatic` lets the environment variable `TUTTI_TRANSPORT` decide, if it is set. Any other value is
  /// binding: the call throws Error(unsupported), with the reason, if that transport cannot carry it.
  TransportKind transport = TransportKind::automatic;
  Determinism determinism = Determinism::fastest;
  /// Bound on the multiprocessors that each of the call's kernels may hold at a time, leaving the rest to
  /// other work; a number above the device's means all. Empty: as many as are fastest (`explain` says how
  /// many). 0: no kernels, only copy engines move bytes between devices; sums then throw Error(unsupported).
  /// NCCL cannot be bounded: it is not chosen if this is given, and naming it throws Error(unsupported), as
  /// do compiled operations. Copies of strided operands to and from dense temporaries on their own devices
  /// are not bounded.
  std::optional<int> multiprocessors{};
  /// Says whether a call with outputs on the host waits. `yes`: returns when they are complete. `no`: they
  /// are complete for work queued later on the stream that is current on the first input's device at the
  /// call. Pageable and strided outputs are always waited for.
  Blocking blocking = Blocking::yes;
};

/// Default bound on the staging memory of coalesced calls, in bytes per device that needs some. At least 64
/// KiB is used per tensor that is handled at a time, such as inputs of one sum that are on one device.
inline constexpr std::size_t default_buffer_size = std::size_t{10} << 20U;

/// Copies `tensor`, on the host or any device, to every device of the list; one result per entry, in order.
///
/// An entry equal to the source's device returns `tensor` itself, not a copy. Duplicate entries are separate
/// copies. Results keep a dense tensor's strides and are contiguous otherwise.
/// Cost: over P2P the root sends (n-1)·S below the fan-out threshold, about S above it.
[[nodiscard]] TUTTI_EXPORT std::vector<Tensor> broadcast(const Tensor& tensor, DeviceList devices,
                                                         const CollectiveOptions& options = {});
/// Copies `tensor` into every tensor of `out`: same element type and sizes, on devices. One of them may be
/// `tensor` itself, which is skipped; otherwise outputs overlap neither each other nor `tensor`.
TUTTI_EXPORT void broadcast(const Tensor& tensor, TensorList out, const CollectiveOptions& options = {});

/// Broadcasts many tensors as one operation: results[d][t] is tensors[t] on devices[d]. All tensors are on
/// one device, or all on the host; element types and sizes may differ; tensors without elements keep their
/// shape.
///
/// P2P does not flatten the list: a kernel walks a table of pieces balanced by bytes. It runs on the root if
/// there is little data, else on each receiving device. To a single device, copy engines move large lists.
/// The results of one device share one allocation. `buffer_size` bounds staging memory where a transport
/// needs it.
[[nodiscard]] TUTTI_EXPORT std::vector<std::vector<Tensor>> broadcast_coalesced(
    TensorList tensors, DeviceList devices, std::size_t buffer_size = default_buffer_size,
    const CollectiveOptions& options = {});
/// Writes into out[d][t]; all tensors of out[d] are on one device. out[d][t] may be tensors[t] itself, once
/// for each t, which is skipped. Nothing is allocated beside staging memory, unless tensors are strided or
/// laid out differently from their sources: these need temporaries.
TUTTI_EXPORT void broadcast_coalesced(TensorList tensors, TensorLists out,
                                      std::size_t buffer_size = default_buffer_size,
                                      const CollectiveOptions& options = {});

/// Returns the elementwise sum of `inputs`, one or more tensors of one element type and one shape on any
/// devices, as a tensor on `destination` (the current device if not given), which need not hold an input.
///
/// Sums in ascending input order. float16, bfloat16 and float8 accumulate in float32 and round once; float32,
/// float64 and complex accumulate in themselves; integers wrap around; bool is logical or. NaN results are
/// the canonical quiet NaN. The bits do not depend on size, transport (except NCCL: see `Determinism`), split
/// or backend. Inputs are never modified.
[[nodiscard]] TUTTI_EXPORT Tensor reduce_add(TensorList inputs, std::optional<Device> destination = {},
                                             const CollectiveOptions& options = {});
namespace detail {
TUTTI_EXPORT void reduce_add_into(TensorList inputs, const Tensor& out, const CollectiveOptions& options);
TUTTI_EXPORT void reduce_add_coalesced_into(TensorLists inputs, TensorList out, std::size_t buffer_size,
                                            const CollectiveOptions& options);
}  // namespace detail

/// Writes the sum into `out`, which may be one of the inputs and otherwise overlaps none. (This overload and
/// its like below are templates without parameters so that `{}` in place of `out` means no destination.)
template <class = void>
void reduce_add(TensorList inputs, const Tensor& out, const CollectiveOptions& options = {}) {
  detail::reduce_add_into(inputs, out, options);
}

/// Sums each column of inputs[device][tensor] as `reduce_add` does, as one operation. All rows have the same
/// length and, per column, the same element type and shape.
[[nodiscard]] TUTTI_EXPORT std::vector<Tensor> reduce_add_coalesced(
    TensorLists inputs, std::optional<Device> destination = {}, std::size_t buffer_size = default_buffer_size,
    const CollectiveOptions& options = {});
/// Writes into out[t], all on one device, which may be one of inputs[d][t]. Temporaries are allocated as in
/// `broadcast_coalesced`.
template <class = void>
void reduce_add_coalesced(TensorLists inputs, TensorList out, std::size_t buffer_size = default_buffer_size,
                          const CollectiveOptions& options = {}) {
  detail::reduce_add_coalesced_into(inputs, out, buffer_size, options);
}

/// Does what `reduce_add` does with any operation in place of the sum, also in ascending order of inputs.
/// Also throws Error(invalid_argument) for an operation that the element type does not support, and for a
/// wrong number of factors. Cost: that of a sum; NCCL carries only minimum, maximum and product of integers.
[[nodiscard]] TUTTI_EXPORT Tensor reduce(TensorList inputs, const ReduceOp& op,
                                         std::optional<Device> destination = {},
                                         const CollectiveOptions& options = {});
/// Writes into `out`, which may be one of the inputs and otherwise overlaps none.
TUTTI_EXPORT void reduce(TensorList inputs, const Tensor& out, const ReduceOp& op,
                         const CollectiveOptions& options = {});
/// Reduces each column of inputs[device][tensor] as `reduce` does, as one operation.
[[nodiscard]] TUTTI_EXPORT std::vector<Tensor> reduce_coalesced(TensorLists inputs, const ReduceOp& op,
                                                                std::optional<Device> destination = {},
                                                                std::size_t buffer_size = default_buffer_size,
                                                                const CollectiveOptions& options = {});
TUTTI_EXPORT void reduce_coalesced(TensorLists inputs, TensorList out, const ReduceOp& op,
                                   std::size_t buffer_size = default_buffer_size,
                                   const CollectiveOptions& options = {});

/// Splits `tensor`, on the host or a device, along `dim` (negative counts from the end); one result per
/// device, in order.
///
/// Without `chunk_sizes`: ceil(size / n) each, the last smaller; always one result per device, empty ones
/// where the dimension is too short. With them: one size per device, not negative, whose sum is the
/// dimension's size. A chunk on the source's own device is a view. Results of a channels-last source are
/// channels-last. `streams`, if not empty, has one stream of each output's device, which replaces its current
/// stream.
[[nodiscard]] TUTTI_EXPORT std::vector<Tensor> scatter(const Tensor& tensor, DeviceList devices,
                                                       ListOf<std::int64_t> chunk_sizes = {}, int dim = 0,
                                                       StreamList streams = {},
                                                       const CollectiveOptions& options = {});
/// Writes into `out`, whose sizes along `dim` give the chunks and add up to the tensor's.
TUTTI_EXPORT void scatter(const Tensor& tensor, TensorList out, int dim = 0, StreamList streams = {},
                          const CollectiveOptions& options = {});

/// Concatenates `tensors`, on any devices, along `dim`; sizes along `dim` may differ, all others and the
/// element type are equal. `destination` is a device (the current one if not given) or the host; on the host,
/// the result is pinned and the call waits once, for all (`options.blocking`). The result is channels-last if
/// all inputs are.
///
/// Tensors without dimensions, all of them, are joined like vectors of one element, and `dim` is 0 or -1. So
/// gathering scalars such as losses gives a vector with an element for each, not their sum or mean.
[[nodiscard]] TUTTI_EXPORT Tensor gather(TensorList tensors, int dim = 0,
                                         std::optional<Device> destination = {},
                                         const CollectiveOptions& options = {});
/// Writes into `out`, on a device or the host.
TUTTI_EXPORT void gather(TensorList tensors, const Tensor& out, int dim = 0,
                         const CollectiveOptions& options = {});

/// Says in words what carried a call, for tables and logs.
struct PlanSummary {
  std::string transport;  ///< "p2p", "nccl", "staged", or "none" where nothing had to move
  std::string algorithm;  ///< for instance "root push", "split and fan out", "copy engines"
};
/// Returns the plan of the last eager collective of one process that the calling thread launched; empty
/// strings before the first. Its algorithm ends with "through stand-ins" if operands were copied because
/// other devices have no access to their memory. Persistent forms and communicators have their own.
[[nodiscard]] TUTTI_EXPORT PlanSummary last_plan();

/// Describes a call by shapes alone, of one process or of a `Communicator`.
struct Workload {
  Collective collective = Collective::broadcast;
  /// Bytes of the root's or each member's data; for a scatter or gather, bytes of the whole, which is cut as
  /// `scatter` does without sizes. Rounded down to whole elements, and to equal parts if the call needs them.
  /// 256 GiB at most. Ignored if `tensor_bytes` is given.
  std::size_t bytes = 0;
  std::vector<std::size_t> tensor_bytes =
      {};  ///< bytes of each tensor of a call that takes lists (`…_coalesced`)
  DType dtype = DType::float32;
  ReduceKind reduce_kind = ReduceKind::sum;  ///< where the collective takes an operation
  std::vector<DType> tensor_dtypes = {};     ///< of each of `tensor_bytes`; empty: all are `dtype`
  std::vector<Device> devices = {};          ///< participants; empty: all. A communicator has its own
  /// Source of a broadcast or scatter, destination of a reduce or gather: a device, or for a communicator's
  /// call the index of a member. Ignored by calls without a root.
  Device root = 0;
  int dim = 0;                     ///< 0, or 1 for a two-dimensional tensor cut along its rows
  CollectiveOptions options = {};  ///< a communicator has its own
};
/// Describes the plan that a call would use, in several lines, without moving data: the chosen transport and
/// why, the refused transports and why, and the steps with amounts, sources and targets. With `dim` 1, the
/// call is assumed to have 256 rows, because the length of rows decides how they travel. The first time, it
/// tests the links between the devices, makes their windows and connects NCCL, as the call would. For calls
/// that only a `Communicator` has, use its `explain`. Throws Error(invalid_argument) for an invalid call,
/// Error(unsupported) if the transport that `options` ask for cannot carry it.
[[nodiscard]] TUTTI_EXPORT std::string explain(const Workload& workload);

}  // namespace tutti
