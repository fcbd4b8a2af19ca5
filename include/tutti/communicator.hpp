// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/collectives.hpp"
#include "tutti/exchange.hpp"
#include "tutti/export.hpp"

#include <chrono>
#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Collectives between processes.
namespace tutti {

/// What a communicator is made with. Unless a member says that it is the same on all ranks, it is each rank's
/// own.
struct CommunicatorOptions {
  /// The devices this process brings in, 1 to 16, each once; each is a member. Empty: the calling thread's
  /// current device, on GPUs CUDA's. No call of a communicator's leaves another device current than it found.
  std::vector<Device> devices{};
  /// How long a call may wait for other ranks, or for another member of its own, before all ranks give up; a
  /// second more where a GPU does not say how far it has come. It counts from when the call is made, or from
  /// when the call before it has been completed here, whichever is later: so this rank's own work that its
  /// streams do in between counts too. Each step of making a communicator waits so long, too, if its exchange
  /// knows how to
  /// (`Exchange::limit_waits`). More than 0; more than a year is a year.
  std::chrono::milliseconds timeout{60'000};
  /// Memory through which a member gives its data to the others, the same on all ranks, 512 KiB to 1 GiB: on
  /// its device, if all devices reach one another's memory, else on every host. On GPUs, low-latency messages
  /// take up to five times as much again: 35 MiB at most, and 9 MiB where NVLink does not join all members or
  /// one is of a compute capability below 9.0.
  std::size_t window_bytes = std::size_t{8} << 20U;
  /// How data travels; the same on all ranks. Automatic: as `TUTTI_TRANSPORT` says, or the best there is. One
  /// that is named and cannot be had is Error(unsupported): p2p takes access between the devices of all pairs
  /// of members.
  TransportKind transport = TransportKind::automatic;
  /// Bitwise: NCCL, which adds in an order of its own, carries no sums. The same on all ranks.
  Determinism determinism = Determinism::fastest;
};

/// A call of a communicator described by shapes alone.
struct CommunicatorWorkload {
  Collective collective = Collective::broadcast;
  /// Of what a root or each member has; of the whole where it is scattered or gathered. Rounded down to whole
  /// elements, and to equal parts where members have such. 256 GiB at most. Ignored if `tensor_bytes` is
  /// given.
  std::size_t bytes = 0;
  std::vector<std::size_t> tensor_bytes = {};  ///< coalesced operations: bytes of each tensor
  DType dtype = DType::float32;
  std::vector<DType> tensor_dtypes = {};  ///< of each of `tensor_bytes`; empty: all are `dtype`
  int root = 0;                           ///< a member; ignored where there is none
  int dim = 0;  ///< scatter, gather: 0, or 1 for a tensor of 256 rows that is cut along its rows
};

/// A group of devices in several processes, of one host or of several, and the collectives among them.
///
/// Every process is a *rank*; every device it brings in is a *member*, numbered through all ranks: the
/// members of rank 0 in its order, then those of rank 1. With one device per process, members are ranks. A
/// `root` is a member.
///
/// All ranks make the same calls in the same order, with the same root, element types and sizes; `all_gather`
/// and `reduce_scatter_add`, for which tensors are flat, with the same numbers of elements. A call takes
/// one tensor for each member of this process, in their order, each on that member's device; it enqueues on
/// these devices' current streams, or on `streams`, one per own member, and returns. Inputs and outputs
/// follow the streams as those of the collectives of one process do, and calls of one communicator follow one
/// another, whatever streams they are made on. Tensors may be dropped right after the call. Scatter and
/// gather return only when all ranks have made the call, because they must learn each other's sizes; the
/// others do not wait for anyone, but for the first call that goes by NCCL, and a rank gets at most 32 calls
/// ahead.
///
/// Where members reach one another's device memory, large operands are read where they lie: whoever gives an
/// operand has its stream wait until the others have read it. The caching allocator's segment around it is
/// opened by the other processes when it is first needed, which the call waits for on the host, whatever they
/// are doing otherwise. When it is to be freed (`empty_cache`, or when memory is short), they close it as
/// soon as they have no calls under way, of this communicator or another, and not at all while one of theirs
/// lives of which calls have been captured; freeing waits for them for a second at most, and else leaves it
/// for the next time. Memory of other origin, or not aligned to 16 bytes, is copied first, which takes as
/// much memory again; where there is none, the communicator ends.
///
/// Sums go in ascending order of members, with the accumulators of `reduce_add`: the same bits as in one
/// process, for whatever numbers of ranks and members per rank, except where NCCL carries them (GPUs, large
/// payloads, unless `options.determinism` is bitwise).
///
/// Calls may be captured into CUDA graphs, by all ranks alike; their operands must be contiguous. If one of a
/// call's streams is being captured, those that are not join the capture, and come back to that stream after
/// each call: it waits for them there. To capture calls that go on by themselves on every device, have all
/// streams join first, as `Graph::capture` of several does. What has joined stays part of the capture until
/// that ends: work that the caller queues there afterwards is the caller's to bring back. One graph takes
/// calls at a time: Error(unsupported) where another that holds calls is still being captured. Launches of
/// such a graph and other calls on the same members follow one another in stream order, which is the caller's
/// to see to. Replays are not compared among ranks, nor watched for being late. An `ExternalStream` that a
/// captured call is made on stays alive until the next captured call has been made, or the communicator is
/// destroyed.
///
/// Several hosts, told apart by themselves or by `TUTTI_HOST_ID`, need an exchange that has a `Network`. GPUs
/// reach one another by NCCL then, which carries every call that it can, whatever its size. The rest, and all
/// calls on virtual devices, goes through host memory and the network: a thread of the communicator's, which
/// sleeps most of the time when nothing is to be done, sends every byte once to each host that needs it. Such
/// calls cannot be captured: Error(unsupported).
///
/// Errors. Bad arguments throw Error(invalid_argument) on the rank that gives them; nothing is enqueued
/// there. What only another rank can cause ends the communicator on all ranks, within the timeout: calls that
/// differ (invalid_argument, with both calls), a rank that is late (timeout, naming it and its last call), a
/// process that is gone (peer_unavailable; by the timeout, if none of its host is left to see it), a rank
/// that has destroyed its communicator where the others make a call (peer_unavailable, at once), `abort`
/// (aborted), a network that fails (as the network says). The reason is thrown by the next call, by `check`
/// and, with the same code, by whatever waits for a device that had calls under way: `synchronize` of a
/// device, stream or event, a `query` that says that they are over, and copies to the host; on GPUs once for
/// each device, and while the communicator lives. Such calls leave anything in their outputs. (Who waits by
/// CUDA's own calls asks `check`.) An ended communicator makes no more calls.
///
/// Kernels of several members of one process wait for one another. Where launches return only when their
/// kernels have ended (CUDA_LAUNCH_BLOCKING=1, some debuggers and profilers), which is found out when the
/// first communicator with several own members is made, each member's are launched by a thread of its own,
/// and NCCL carries nothing; where not even that helps, the communicator is refused: Error(unsupported).
///
/// A child forked off later cannot use it: calls throw Error(unsupported) there.
///
/// Thread safety: one call at a time, from any thread; `abort`, `is_running` and `flight_record` at any time.
/// Calls of several communicators on the same stream are made in the same order on all ranks, too: each waits
/// there for the other ranks, and what is queued behind it waits with it. On streams of their own, calls of
/// several may wait on a GPU at once: the more communicators a process has there, the smaller is what a call
/// takes of the GPU. (Captured calls, and those under way when another communicator is made, keep what they
/// had.)
class TUTTI_EXPORT Communicator {
 public:
  /// Collective: all processes of the exchange make it together. The exchange is not used afterwards. Throws
  /// on all ranks if one cannot take part: invalid_argument on a rank whose options are no good,
  /// peer_unavailable on the others; invalid_argument on all if they differ in what all must give alike
  /// (`window_bytes`, `transport`, `determinism`, the backend); unsupported if they are on several hosts that
  /// have no network; timeout, saying what other ranks have not done, if they do not come.
  explicit Communicator(Exchange& exchange, const CommunicatorOptions& options = {});
  /// Of this process's devices alone.
  explicit Communicator(const CommunicatorOptions& options);
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Waits for own calls that are still under way; then, where data goes through device memory, until the
  /// other ranks have completed as many calls (if some have been captured: for them to come here too), and
  /// where ranks are on several hosts, for the others to come here too: for the timeout each, at most, and
  /// for none whose process is known to be gone. Own calls that are not complete by then are ended; what they
  /// use is kept until the process ends if their streams do not come to them. Not for other work of virtual
  /// devices. On GPUs, memory of the own devices is freed, for which the driver waits for all their work; and
  /// if calls have been captured, after the timeout what waits for other ranks there is ended. In a forked
  /// child nothing is done.
  ///
  /// Device memory that other ranks still have open a second later is freed once they have closed it: when
  /// communicators are made or destroyed, by `empty_cache`, or when memory is short. Ranks may destroy their
  /// communicators in different orders, unless they are on several hosts or have captured calls: then those
  /// that wait for one another wait until the timeout.
  ~Communicator();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int rank_count() const noexcept;
  /// Of all ranks.
  [[nodiscard]] int member_count() const noexcept;
  /// The number of this process's first member.
  [[nodiscard]] int first_member() const noexcept;
  /// Of this process's members.
  [[nodiscard]] const std::vector<Device>& devices() const noexcept;

  /// Copies the root's tensor into all others.
  void broadcast(TensorList tensors, int root, StreamList streams = {});
  /// Copies the root's `tensor`, which others need not give, into every `out`; the root's may be `tensor`.
  /// Ranks may mix the two forms.
  void broadcast(const Tensor& tensor, TensorList out, int root, StreamList streams = {});
  /// `broadcast` of many tensors as one operation; `tensors[i]`, `out[i]` are those of own member i. With
  /// lists of no tensors, which all ranks then give, the coalesced calls do nothing; but they are calls,
  /// which all ranks make.
  void broadcast_coalesced(TensorLists tensors, int root, StreamList streams = {});
  void broadcast_coalesced(TensorList tensors, TensorLists out, int root, StreamList streams = {});
  /// The elementwise sum of all members' inputs goes to the root's `out`; those of others are not looked at,
  /// and a process without the root may give none. `out` may be the root's input.
  void reduce_add(TensorList inputs, TensorList out, int root, StreamList streams = {});
  void reduce_add_coalesced(TensorLists inputs, TensorLists out, int root, StreamList streams = {});
  /// The sum goes to all. Each `out` may be that member's input.
  void all_reduce_add(TensorList inputs, TensorList out, StreamList streams = {});
  void all_reduce_add_coalesced(TensorLists inputs, TensorLists out, StreamList streams = {});
  /// Every `out` becomes the concatenation of all members' inputs, which are equally long, flat, in order of
  /// members. An input may be the part of its member's `out` where it belongs.
  void all_gather(TensorList inputs, TensorList out, StreamList streams = {});
  /// The sum of all inputs, flat, is cut into equal parts, one per member; every `out` is that member's part,
  /// of as many elements. An `out` may be the part of its member's input where it belongs.
  void reduce_scatter_add(TensorList inputs, TensorList out, StreamList streams = {});
  /// Cuts the root's `tensor` along `dim` (negative counts from the end): member i gets the part that its
  /// `out` has room for. Processes without the root give an undefined tensor.
  void scatter(const Tensor& tensor, TensorList out, int root, int dim = 0, StreamList streams = {});
  /// Joins all members' tensors along `dim` in the root's `out`. Tensors without dimensions are joined to a
  /// vector with an element for each, as by `tutti::gather`.
  void gather(TensorList tensors, const Tensor& out, int root, int dim = 0, StreamList streams = {});
  /// Work queued afterwards on these streams, on all ranks, comes after all that was queued on any of them
  /// before. Like the other calls it returns without waiting.
  void barrier(StreamList streams = {});

  /// A communicator of the ranks that give the same `color`, in order of `key`, then of rank, with their
  /// devices and this one's options; nothing for ranks that give no color. Collective: all ranks call it.
  /// This one goes on as before. Waits on the host for the others; what has been queued need not be complete.
  /// Throws as other calls and the constructor do; Error(unsupported) while the current stream is captured.
  [[nodiscard]] std::optional<Communicator> split(std::optional<int> color, int key = 0);

  /// How the last call of this process travels; empty strings before the first.
  [[nodiscard]] PlanSummary last_plan() const;

  /// How data may travel between the members, and why not otherwise, in a few lines.
  [[nodiscard]] std::string explain() const;
  /// How a call would travel, in place where it can be and outside captures: the transport and why, the
  /// transports refused and why, and what this process's members would do. Several lines. Moves nothing, and
  /// waits for nobody. Throws Error(invalid_argument) for what could not be called, Error(unsupported) if the
  /// transport that `options` ask for cannot carry it.
  [[nodiscard]] std::string explain(const CommunicatorWorkload& workload) const;

  /// Ends the communicator on all ranks. Returns at once.
  void abort(std::string_view reason) noexcept;
  /// False once the communicator has been ended, by whatever.
  [[nodiscard]] bool is_running() const noexcept;
  /// Throws what has ended the communicator, if anything has. After waiting for the streams of a call: if it
  /// does not throw, the call's outputs are what they should be.
  void check() const;
  /// Every rank's last calls, whether they are complete and how long ago they were made, as one line of JSON.
  /// When a call times out, one rank writes the last few to the log, or appends them to a file of its own if
  /// `TUTTI_FLIGHT_RECORD` names one; the others say in a line why they end. What other ranks' GPUs have
  /// completed may be known some 50 ms later.
  [[nodiscard]] std::string flight_record() const;

 private:
  class Impl;
  explicit Communicator(std::unique_ptr<Impl> impl) noexcept;

  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti
