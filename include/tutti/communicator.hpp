// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/collectives.hpp"
#include "tutti/communicator_collectives.hpp"
#include "tutti/communicator_options.hpp"
#include "tutti/exchange.hpp"
#include "tutti/export.hpp"
#include "tutti/list_of.hpp"
#include "tutti/message.hpp"
#include "tutti/patience.hpp"
#include "tutti/persistent.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Collectives between processes.
namespace tutti {

/// A group of devices in several processes, of one host or of several, and the collectives among them.
///
/// Every process is a *rank*. Every device that it brings in is a *member*; members are numbered through all
/// ranks: those of rank 0 in its order, then those of rank 1. With one device per process, members are ranks.
/// A `root` is a member. Members of this process are *local*.
///
/// # Calls
/// The collectives are those of `CommunicatorCollectives` (`tutti/communicator_collectives.hpp`).
///
/// All ranks make the same calls in the same order, with the same root, element types and sizes;
/// `all_gather`, `reduce_scatter_add`, `all_to_all` and their like, for which tensors are flat, with the same
/// numbers of elements, or of all members' elements where they take sizes. (Messages between two members are
/// calls of their ranks alone: see `send`.) A call takes one tensor for each local member, in their order,
/// each on that member's device.
///
/// Sums go in ascending order of members, with the accumulators of `reduce_add`. They have the same bits as
/// in one process, for whatever numbers of ranks and members per rank, except where NCCL carries them: on
/// GPUs, for large payloads, unless `options.determinism` is bitwise.
///
/// # Stream order
/// A call enqueues on the current streams of the local members' devices, or on `streams`, one per local
/// member, and returns. Inputs and outputs follow the streams as those of the collectives of one process do.
/// Calls of one communicator follow one another, whatever streams they are made on.
///
/// The host waits for other ranks only in these cases:
///  - scatter, gather, an all_to_all with sizes and a broadcast that returns its results, which learn
///    sizes from other ranks, return when all ranks have made the call;
///  - the first call that goes by NCCL returns when all ranks have made it;
///  - a call waits while its rank is 32 calls ahead of another;
///  - a call waits for the other processes to open a segment of memory, as said under *Memory*.
///
/// Calls of several communicators on the same stream are made in the same order on all ranks, too: each waits
/// there for the other ranks, and what is queued behind it waits with it. On streams of their own, calls of
/// several may wait on a GPU at once. The more communicators a process has there, the smaller is what a call
/// takes of the GPU. (Captured calls, and those under way when another communicator is made, keep what they
/// had.)
///
/// # Memory
/// Tensors may be dropped right after the call. Where members reach one another's device memory, large
/// operands are read where they lie, and sums for all and large exchanges written there: the stream of the
/// member that owns an operand waits until the others are done with it. The other processes open the caching
/// allocator's segment around it when they first need it, whatever they are doing otherwise. When the segment
/// is to be freed (by `empty_cache`, or when memory is short), they close it as soon as they have no calls
/// under way, of this communicator or another. They do not close it while one of their communicators lives of
/// which calls have been captured. Freeing waits for them for a second at most, and else leaves the segment
/// for the next time. Memory of other origin, or on GPUs not aligned to 16 bytes, is copied before that or
/// after, which takes as much memory again; where there is none, the communicator ends.
///
/// # Graphs
/// Calls may be captured into graphs, by all ranks alike; their operands must be contiguous. If one of a
/// call's streams is being captured, the others join the capture, which default streams cannot, and outputs
/// that the call makes are memory of the graph. After each call they come back to that stream, which waits
/// for them there. To capture calls that go on by themselves on every device, have all streams join first, as
/// `Graph::capture` of several does. What has joined stays part of the capture until that ends: work that the
/// caller queues there afterwards is the caller's to bring back.
///
/// One graph takes calls at a time: a call throws Error(unsupported) where another graph that holds calls is
/// still being captured. Launches of such a graph and other calls on the same members follow one another in
/// stream order, which is the caller's to see to, alike on all ranks. A replay takes nothing that another
/// captured call, or one that is made at once, was meant to take: it waits, and ranks that differ, are late,
/// give no sign of life or have left end the communicator as they do where calls are made at once (*Faults*).
/// It waits as long as `CommunicatorOptions::patience` says, from when it begins on its device; a
/// `PatienceGuard` changes nothing there. But of what NCCL carries in a graph, and of messages there, nothing
/// is compared or watched; a process that is gone is noticed. An `ExternalStream` that a captured call is
/// made on stays alive until the next captured call has been made, or the communicator is destroyed.
///
/// # Several hosts
/// Hosts tell themselves apart, or are told apart by `TUTTI_HOST_ID`. Ranks on several of them need an
/// exchange that has a `Network`. GPUs then reach one another by NCCL, which carries every call that it can,
/// whatever its size. All other calls, and all calls on virtual devices, go through host memory and the
/// network. A thread of the communicator, which sleeps most of the time when there is nothing to do, sends
/// what a member puts for others in a round once to each host that needs any of it, whole. Such calls, but
/// for messages between two members, cannot be captured: Error(unsupported).
///
/// # Thread safety
/// Any thread may make calls, one at a time. `abort`, `is_running` and `flight_record` may be called at any
/// time.
///
/// # Errors
/// Bad arguments throw Error(invalid_argument) on the rank that gives them; nothing is enqueued there. An
/// ended communicator (see *Faults*) makes no more calls: each throws the reason of its end.
///
/// # Faults
/// Faults that only another rank can cause end the communicator on all ranks:
///  - calls that differ: invalid_argument, with both calls; where one of them is a replay, some 50 ms later;
///  - a rank that is late: timeout, when a rank that waits for it has lost its patience, naming it and its
///    last call. A warning in the log has named it long before: after 10 seconds, or a quarter of the
///    patience if that is less, and again after three times as long each; another one says that the call goes
///    on. One of the ranks that wait writes them;
///  - a rank that gives no sign of life: timeout, after the timeout, naming it;
///  - a process that is gone: peer_unavailable, at once; if none of its host is left to see it, it gives no
///    sign of life;
///  - a rank that has destroyed its communicator where the others make a call, or launch one:
///  peer_unavailable,
///    at once;
///  - `abort`: aborted;
///  - a network that fails: as the network says.
///
/// The next call throws the reason, and so does `check`. Whatever waits for a device that had calls under way
/// throws an error of the same code: `synchronize` of a device, stream or event, a `query` that finds them
/// over, and copies to the host; on GPUs once for each device, and while the communicator lives. Such calls
/// leave anything in their outputs. (Programs that wait by CUDA's own calls ask `check`.)
///
/// # Lifetime
/// Ranks make a communicator together, and each destroys its own; the destructor says what it waits for. A
/// child that is forked off later cannot use it: calls throw Error(unsupported) there.
///
/// Kernels of several members of one process wait for one another. The first communicator with several local
/// members finds out whether launches return only when their kernels have ended, as with
/// CUDA_LAUNCH_BLOCKING=1 and under some debuggers and profilers. There, a thread of its own launches each
/// member's kernels, and NCCL carries nothing. Where not even that helps, the communicator is refused:
/// Error(unsupported).
class TUTTI_EXPORT Communicator : public CommunicatorCollectives {
 public:
  /// Collective: all processes of the exchange make it together. The exchange is not used afterwards. If one
  /// rank cannot take part, the constructor throws on all ranks:
  ///  - invalid_argument on a rank whose options are no good, and peer_unavailable on the others;
  ///  - invalid_argument on all ranks if they differ in what all must give alike: `window_bytes`,
  ///  `transport`,
  ///    `determinism`, `multiprocessors` and the backend;
  ///  - unsupported on all ranks if they are on several hosts that have no network;
  ///  - timeout on those that wait, which says what other ranks have not done.
  explicit Communicator(Exchange& exchange, const CommunicatorOptions& options = {});
  /// Makes a communicator of this process's devices alone.
  explicit Communicator(const CommunicatorOptions& options);
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Waits for this rank's calls that are still under way, but for no other work of virtual devices. Then,
  /// where data goes through device memory, waits until the other ranks have completed as many calls, and
  /// received what this one has sent to them. If calls have been captured, or ranks are on several hosts, it
  /// waits until the others come here too. For calls it waits as long as their patience at most, or the
  /// timeout if that is longer; for all else as long as the timeout. It waits for no rank whose process is
  /// known to be gone.
  ///
  /// Calls that are not complete by then are ended; what they use is kept until the process ends if their
  /// streams do not come to them. On GPUs, memory of the local devices is freed, for which the driver waits
  /// for all their work; and if calls have been captured, what waits for other ranks there is ended when
  /// as long has passed. In a forked child nothing is done.
  ///
  /// Device memory that other ranks still have open a second later is freed once they have closed it: when
  /// communicators are made or destroyed, by `empty_cache`, or when memory is short. Ranks may destroy their
  /// communicators in different orders, unless they are on several hosts or have captured calls: then those
  /// that wait for one another wait until the timeout.
  ~Communicator();

  [[nodiscard]] int rank() const noexcept;
  [[nodiscard]] int rank_count() const noexcept;
  /// Returns the number of members of all ranks.
  [[nodiscard]] int member_count() const noexcept;
  /// The number of this process's first member.
  [[nodiscard]] int first_member() const noexcept;
  /// Returns the devices of this process's members, in order.
  [[nodiscard]] const std::vector<Device>& devices() const noexcept;

  // # Messages
  // A message goes from one member to another. Only the ranks of these two know of a message: others make no
  // call. The k-th message that a member sends to another is the k-th that the other receives from it; there
  // are no tags. Both give as many elements of the same type: else the communicator ends with
  // Error(invalid_argument), with both sides, and nothing of the message is written (but on GPUs a later one
  // may be, if that is like the one that was expected). The sender's stream may have gone on. A captured side
  // goes with a captured one; replays of graphs that meet another message than theirs wait until the
  // communicator is aborted.
  //
  // A call has its place among the calls of its own rank, which follow one another on the streams. So where
  // one side waits, the other must come without waiting for it first: two ranks that both send and then
  // receive, in two calls each, wait for one another for ever, if not the messages are small and happen to
  // fit into the receiver's window, on which nothing should rely. `sendrecv` and batches do all their
  // messages at once: in whatever order they stand, each goes on as soon as its other side is there. The host
  // does not wait for other ranks, but where launches return only when their kernels have ended, or a device
  // takes no more launches for now; and for 200 ms at most for the sender's process to open a segment of
  // memory into which something large is received, the first time and where calls are captured.
  //
  // A message that takes too long ends the communicator with Error(timeout), which names the partner whose
  // half is missing, or else not complete: in a chain of ranks, that one may be waiting for another.
  //
  // What is sent may be written over, in stream order, when the call is over: the bytes are then with the
  // receiver, or in its window. Between hosts, too, messages can be captured: replays need no call of the
  // host's.
  //
  // Cost: between processes the bytes go once to the receiver's device, on GPUs twice as many, and are copied
  // once there. Messages of more than 1 MiB (on GPUs without NVLink 256 KiB, on virtual devices 128 KiB) are
  // written where they are received instead, if the sender's process has that memory open (see *Memory*
  // above). Where devices do not reach one another's memory, the bytes go through host memory, and from host
  // to host through the network as well. In one process the bytes go once: by kernels if all members of the
  // communicator have a part in the batch and no message has more than 16 MiB; else, and always if
  // `options.multiprocessors` is given, by copy engines.
  //
  // With `options.transport` nccl messages between processes are sends and receives of NCCL's, once a call of
  // all ranks has gone by it, a broadcast for instance: before, they are Error(unsupported), as all ranks
  // connect together. The host may then wait for a partner, the first time; what is received of a message
  // that differs is not defined. `automatic` never takes NCCL for messages: there both sides must stand at
  // the same place among the calls of their ranks.

  /// Sends `tensor`, which lies on a local member's device, from that member to member `to`.
  void send(const Tensor& tensor, int to, StreamList streams = {});
  /// `out` becomes what member `from` sends to the local member on whose device it lies.
  void recv(const Tensor& out, int from, StreamList streams = {});
  /// Sends and receives at once. Member numbers may be those of one member or of two.
  void sendrecv(const Tensor& tensor, int to, const Tensor& out, int from, StreamList streams = {});
  /// Sends and receives on current streams. Returns the received tensor: dense, on the device of `tensor`, of
  /// its sizes and element type, as those of what `from` sends have to be.
  [[nodiscard]] Tensor sendrecv(const Tensor& tensor, int to, int from);
  /// Sends and receives any number of messages at once. Those between members of one process, and of a member
  /// to itself, have both sides in one batch. No `out` overlaps another tensor of the batch.
  void batch_send_recv(ListOf<Message> messages, StreamList streams = {});

  /// Binds calls of this communicator to their operands, to be started many times (a term of MPI-4): those
  /// that `calls` makes, one or several. All ranks bind alike, and launch as often, in the same order among
  /// all calls of the communicator.
  ///
  /// They are recorded, which runs `calls` once and nothing of what it queues, as one graph of all local
  /// members' devices, and a launch launches it. What is said of captured calls (*Graphs*) holds, for the
  /// memory of operands and for the communicator's end too, but that launches and other calls of the
  /// communicator follow one another, whatever streams they are made on. Between hosts, where calls cannot be
  /// captured, each launch makes them anew, and finds out then if something is wrong with them. A launch is
  /// ordered with the one stream that it is given, of the first local member's device, as
  /// `PersistentCollective` says; so bound calls go on current streams, or on others that have waited for
  /// these, and are waited for. It throws what has ended the communicator; where it fails on one rank, it
  /// ends it.
  ///
  /// `calls` is kept as long as launches need what it holds (so it captures tensors by value). The
  /// communicator stays where it is and outlives what is bound. Throws Error(invalid_argument) if `calls` is
  /// empty or gives a call streams of which none is being recorded, what `calls` throws, and
  /// Error(unsupported) for what cannot be captured. Cost: as of a capture. A launch on GPUs is one launch of
  /// a graph; with several local members, each device's next call of another kind waits for an event more,
  /// and a launch begins when the one before has ended on all devices: of one call of 1 to 4 MiB that costs 3
  /// to 18 µs (measured on 2x H100). Then bind many calls, or make a single one of that size directly.
  [[nodiscard]] PersistentCollective persistent(std::function<void()> calls);

  /// A communicator of the ranks that give the same `color`, in order of `key`, then of rank, with their
  /// devices and this one's options; nothing for ranks that give no color. Collective: all ranks call it.
  /// This one goes on as before. Waits on the host for the others, first as a call, then as the constructor,
  /// and throws as these do; what has been queued need not be complete. Error(unsupported) in a capture.
  [[nodiscard]] std::optional<Communicator> split(std::optional<int> color, int key = 0);

  /// Returns how the last call of this process travels; empty strings before the first.
  [[nodiscard]] PlanSummary last_plan() const;

  /// Explains how data may travel between the members, and why not otherwise, in a few lines.
  [[nodiscard]] std::string explain() const;
  /// Explains how a call that `workload` describes would travel, whose `root` is the index of a member, and
  /// whose `devices` and `options` are this communicator's, in place where it can be and outside captures:
  /// the transport and why, the transports refused and why, and what this process's members would do. Several
  /// lines. Moves nothing, and waits for nobody. Throws Error(invalid_argument) for what could not be called,
  /// Error(unsupported) if the transport that `options` ask for cannot carry it.
  [[nodiscard]] std::string explain(const Workload& workload) const;

  /// Ends the communicator on all ranks. Returns at once.
  void abort(std::string_view reason) noexcept;
  /// Returns whether the communicator still runs: false once anything has ended it.
  [[nodiscard]] bool is_running() const noexcept;
  /// Throws the error that has ended the communicator, if any. If it does not throw after a wait for the
  /// streams of a call, the call's outputs are correct.
  void check() const;
  /// Returns the flight record, as one line of JSON: every rank's last calls, whether they are complete and
  /// how long ago they were made, and how far messages with an end on this host have come.
  ///
  /// When a call times out, one rank writes the last few to the log, or appends them to a file of its own if
  /// `TUTTI_FLIGHT_RECORD` names one; the others say in a line why they end. What other ranks' GPUs have
  /// completed may be known some 50 ms later.
  [[nodiscard]] std::string flight_record() const;

 private:
  explicit Communicator(std::unique_ptr<Impl> impl) noexcept;
};

}  // namespace tutti
