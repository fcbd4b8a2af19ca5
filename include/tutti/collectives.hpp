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
/// All of them validate everything first, enqueue, and return. They block the host on device work only where
/// an output is host memory and the caller asked for a blocking copy, where an input is pageable host memory,
/// which has been read when the call returns, and at first use, when links are tested and NCCL is connected.
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
/// With given outputs nothing is allocated except staging memory some transports need, dense stand-ins for
/// tensors that are strided or not laid out alike, which are copied on their own devices, and pinned ones for
/// pageable host memory.
///
/// Coalesced calls with lists of no tensors are made like others, and do nothing: what they return are lists
/// of none.
///
/// Calls may be captured into a graph when the current stream of one participating device is being captured;
/// the others join the capture, which default streams cannot, and outputs that are made are memory of the
/// graph on every device (`tutti/graph.hpp`). Their operands must need no stand-ins: be dense and laid out
/// alike (`gather`: like the output), and what is on the host pinned. Nor can they wait for an output on the
/// host: that takes `Blocking::no`. Otherwise they throw Error(unsupported), with nothing enqueued. Links are
/// tested and NCCL is connected at first use, which waits for devices: make one such call before the capture.
namespace tutti {

using DeviceList = ListOf<Device>;
using TensorList = ListOf<Tensor>;
/// One list of tensors per device.
using TensorLists = ListOf<std::vector<Tensor>>;

/// What carries the bytes.
///
/// NCCL launches a kernel on each device, and they wait for one another. If another thread meanwhile queues a
/// copy of its own (`cudaMemcpyAsync`) to or from pageable memory on a stream of such a call, CUDA makes that
/// thread wait for the kernel before it, and may make NCCL's next launch wait for the thread: then neither
/// ends. Let such a copy wait until the call has returned, or use `Tensor::copy_`, which holds nobody up.
/// Between processes, with one device each, this cannot happen. It can in one process where collectives go by
/// rounds among its devices: up to 64 MiB between two and 1 MiB among three or four (environment variable
/// `TUTTI_ROUNDS`). Their kernels wait for one another likewise, and hold multiprocessors, up to 86 from 1
/// MiB on, until the streams of all operands get there. A kernel that needs a whole device at once has to
/// wait for them, and must not be what such a stream waits for. Whose bytes go to others gets at most eight
/// calls ahead of their streams; above 1 MiB they are read where they lie, and it waits until that has been
/// done. Windows take 12 MiB of each device's memory for the rest of the process, for each of at most
/// four sets of devices.
enum class TransportKind : std::uint8_t {
  automatic,  ///< chosen by topology, size, element type, layout and required determinism
  p2p,     ///< devices access one another's memory; pairs that cannot are bridged through pinned host memory,
           ///< but at least one pair must. A `Communicator` bridges none: all its members must
  nccl,    ///< NVIDIA's library
  staged,  ///< through pinned host memory, in overlapped chunks
};
/// The enumerator's name, but "auto" for `automatic`.
[[nodiscard]] TUTTI_EXPORT std::string_view name_of(TransportKind kind) noexcept;
/// The inverse of `name_of`. Throws Error(invalid_argument).
[[nodiscard]] TUTTI_EXPORT TransportKind parse_transport(std::string_view text);

/// What a sum promises.
enum class Determinism : std::uint8_t {
  fastest,  ///< any transport; NCCL may add in its own order, the others are bitwise
  bitwise,  ///< ascending input order, documented accumulator: the same bits on all transports and backends
};

/// What every collective takes.
struct CollectiveOptions {
  /// `automatic` lets the environment variable `TUTTI_TRANSPORT` decide, if it is set. Any other value is
  /// binding: the call throws Error(unsupported), with the reason, if that transport cannot carry it.
  TransportKind transport = TransportKind::automatic;
  Determinism determinism = Determinism::fastest;
  /// How many multiprocessors each of the call's kernels may hold at a time, so that other work has
  /// the rest; more than there are means all. Nothing: as many as make it fastest (`explain` says how many).
  /// 0: none, only copy engines move bytes between devices; then sums are Error(unsupported). NCCL takes as
  /// many as it likes, and is not chosen where this is given; to name it is Error(unsupported), and so are
  /// compiled operations. Not bounded are copies of strided operands to dense stand-ins and back on their own
  /// devices.
  std::optional<int> multiprocessors{};
  /// For outputs on the host: `yes` returns when they are complete; with `no` they are complete for work
  /// queued later on the stream that is current on the first input's device at the call. Pageable and strided
  /// outputs are always waited for.
  Blocking blocking = Blocking::yes;
};

/// Bound on the staging memory of coalesced calls, in bytes per device that needs some. Less than 64 KiB per
/// tensor at a time, such as inputs of one sum that are on one device, is not taken.
inline constexpr std::size_t default_buffer_size = std::size_t{10} << 20U;

/// Copies `tensor`, on the host or any device, to every device of the list; one result per entry, in order.
///
/// An entry equal to the source's device returns `tensor` itself, not a copy. Duplicate entries are separate
/// copies. Results keep a dense tensor's strides and are contiguous otherwise.
/// Cost: over P2P the root sends (n-1)·S below the fan-out threshold, about S above it.
[[nodiscard]] TUTTI_EXPORT std::vector<Tensor> broadcast(const Tensor& tensor, DeviceList devices,
                                                         const CollectiveOptions& options = {});
/// Copies `tensor` into every tensor of `out`: same element type and sizes, on devices. One of them may be
/// exactly `tensor`, and is skipped; otherwise outputs overlap neither one another nor `tensor`.
TUTTI_EXPORT void broadcast(const Tensor& tensor, TensorList out, const CollectiveOptions& options = {});

/// `broadcast` of many tensors as one operation: results[d][t] is tensors[t] on devices[d]. All tensors are
/// on one device, or all on the host; element types and sizes may differ; tensors without elements keep their
/// shape.
///
/// Over P2P no flattening: a kernel walks a table of pieces balanced by bytes, of the root for little, of
/// each receiving device for much. To a single device, large lists go by copy engine. The results of one
/// device share one allocation. `buffer_size` bounds staging memory where a transport needs it.
[[nodiscard]] TUTTI_EXPORT std::vector<std::vector<Tensor>> broadcast_coalesced(
    TensorList tensors, DeviceList devices, std::size_t buffer_size = default_buffer_size,
    const CollectiveOptions& options = {});
/// Writes into out[d][t]; all tensors of out[d] are on one device. out[d][t] may be exactly tensors[t], once
/// for each t, and is skipped. No allocation beside staging memory, unless tensors are strided or laid out
/// otherwise than their sources: these need stand-ins.
TUTTI_EXPORT void broadcast_coalesced(TensorList tensors, TensorLists out,
                                      std::size_t buffer_size = default_buffer_size,
                                      const CollectiveOptions& options = {});

/// The elementwise sum of `inputs`, one or more tensors of one element type and one shape on any devices, on
/// `destination` (the current device if not given), which need not hold an input.
///
/// Sums in ascending input order. float16, bfloat16 and float8 accumulate in float32 and round once; float32,
/// float64 and complex accumulate in themselves; integers wrap around; bool is logical or. NaN results are
/// the canonical quiet NaN. The same bits whatever the size, transport (NCCL excepted: see `Determinism`),
/// split or backend.
/// Inputs are never modified.
[[nodiscard]] TUTTI_EXPORT Tensor reduce_add(TensorList inputs, std::optional<Device> destination = {},
                                             const CollectiveOptions& options = {});
namespace detail {
TUTTI_EXPORT void reduce_add_into(TensorList inputs, const Tensor& out, const CollectiveOptions& options);
TUTTI_EXPORT void reduce_add_coalesced_into(TensorLists inputs, TensorList out, std::size_t buffer_size,
                                            const CollectiveOptions& options);
}  // namespace detail

/// Writes the sum into `out`, which may be exactly one of the inputs and otherwise overlaps none. (A template
/// of nothing, as are its like below, so that `{}` in the place of `out` means no destination.)
template <class = void>
void reduce_add(TensorList inputs, const Tensor& out, const CollectiveOptions& options = {}) {
  detail::reduce_add_into(inputs, out, options);
}

/// `reduce_add` of each column of inputs[device][tensor], as one operation. All rows have the same length
/// and, per column, the same element type and shape.
[[nodiscard]] TUTTI_EXPORT std::vector<Tensor> reduce_add_coalesced(
    TensorLists inputs, std::optional<Device> destination = {}, std::size_t buffer_size = default_buffer_size,
    const CollectiveOptions& options = {});
/// Writes into out[t], all on one device, which may be exactly one of inputs[d][t]. Stand-ins are allocated
/// as in `broadcast_coalesced`.
template <class = void>
void reduce_add_coalesced(TensorLists inputs, TensorList out, std::size_t buffer_size = default_buffer_size,
                          const CollectiveOptions& options = {}) {
  detail::reduce_add_coalesced_into(inputs, out, buffer_size, options);
}

/// `reduce_add` with any operation in the place of the sum, likewise in ascending order of inputs. Throws
/// Error(invalid_argument) too for an operation that the element type does not have, and for a wrong number
/// of factors. Cost: as of a sum; NCCL carries minimum, maximum and product of integers alone.
[[nodiscard]] TUTTI_EXPORT Tensor reduce(TensorList inputs, const ReduceOp& op,
                                         std::optional<Device> destination = {},
                                         const CollectiveOptions& options = {});
/// Writes into `out`, which may be exactly one of the inputs and otherwise overlaps none.
TUTTI_EXPORT void reduce(TensorList inputs, const Tensor& out, const ReduceOp& op,
                         const CollectiveOptions& options = {});
/// `reduce` of each column of inputs[device][tensor], as `reduce_add_coalesced` adds them.
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
/// channels-last.
/// `streams`, if not empty, has one stream of each output's device, which takes the place of its current
/// stream.
[[nodiscard]] TUTTI_EXPORT std::vector<Tensor> scatter(const Tensor& tensor, DeviceList devices,
                                                       ListOf<std::int64_t> chunk_sizes = {}, int dim = 0,
                                                       StreamList streams = {},
                                                       const CollectiveOptions& options = {});
/// Writes into `out`, whose sizes along `dim` give the chunks and add up to the tensor's.
TUTTI_EXPORT void scatter(const Tensor& tensor, TensorList out, int dim = 0, StreamList streams = {},
                          const CollectiveOptions& options = {});

/// Concatenates `tensors`, on any devices, along `dim`; sizes along `dim` may differ, all others and the
/// element type are equal. `destination` is a device (the current one if not given) or the host, and then the
/// result is pinned and the call waits once, for all (`options.blocking`). Channels-last when all inputs are.
///
/// Tensors without dimensions, all of them, are joined like vectors of one element, and `dim` is 0 or -1.
/// Mind it where scalars such as losses are gathered: the result is a vector with an element for each, not
/// their sum or mean.
[[nodiscard]] TUTTI_EXPORT Tensor gather(TensorList tensors, int dim = 0,
                                         std::optional<Device> destination = {},
                                         const CollectiveOptions& options = {});
/// Writes into `out`, on a device or the host.
TUTTI_EXPORT void gather(TensorList tensors, const Tensor& out, int dim = 0,
                         const CollectiveOptions& options = {});

/// What carried a call, in words for tables and logs.
struct PlanSummary {
  std::string transport;  ///< "p2p", "nccl", "staged", or "none" where nothing had to move
  std::string algorithm;  ///< for instance "root push", "split and fan out", "copy engines"
};
/// The plan of the eager collective of one process that the calling thread launched last; empty strings
/// before the first. Persistent forms and communicators have their own.
[[nodiscard]] TUTTI_EXPORT PlanSummary last_plan();

/// A call described by shapes alone, of one process or of a `Communicator`.
struct Workload {
  Collective collective = Collective::broadcast;
  /// Bytes of what a root or each member has; of the whole where it is scattered or gathered, as `scatter`
  /// cuts it without sizes. Rounded down to whole elements, and to equal parts where members have such. 256
  /// GiB at most. Ignored if `tensor_bytes` is given.
  std::size_t bytes = 0;
  std::vector<std::size_t> tensor_bytes = {};  ///< coalesced operations alone: bytes of each tensor
  DType dtype = DType::float32;
  ReduceKind reduce_kind = ReduceKind::sum;  ///< where the collective takes an operation
  std::vector<DType> tensor_dtypes = {};     ///< of each of `tensor_bytes`; empty: all are `dtype`
  std::vector<Device> devices = {};          ///< taking part; empty: all. A communicator has its own
  /// Source of a broadcast or scatter, destination of a reduce or gather: a device, or of a communicator's
  /// call the index of a member. Ignored where there is none.
  Device root = 0;
  int dim = 0;                     ///< 0, or 1 for a two-dimensional tensor cut along its rows
  CollectiveOptions options = {};  ///< A communicator has its own
};
/// The plan a call would use (with `dim` 1, one on 256 rows, as the length of rows decides how they travel),
/// without moving anything of the caller's: the transport and why, the transports refused and why, and the
/// steps with who moves how much to whom. Several lines. The first time, it tests the links between the
/// devices, makes their windows and connects NCCL, as the call would. What only a `Communicator` does, its
/// own `explain` tells. Throws Error(invalid_argument) for what could not be called, Error(unsupported) if
/// the transport that `options` ask for cannot carry it.
[[nodiscard]] TUTTI_EXPORT std::string explain(const Workload& workload);

}  // namespace tutti
