// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/collectives.hpp"
#include "tutti/communicator_collectives.hpp"
#include "tutti/communicator_options.hpp"
#include "tutti/exchange.hpp"
#include "tutti/export.hpp"
#include "tutti/grow_options.hpp"
#include "tutti/list_of.hpp"
#include "tutti/message.hpp"
#include "tutti/patience.hpp"
#include "tutti/persistent.hpp"
#include "tutti/shrink_options.hpp"

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Collectives between processes, or threads.
namespace tutti {

class SymmetricMemory;

/// A group of devices of several ranks, on one host or on several, and the collectives among them.
///
/// Every process is a *rank*, or a thread of one if several have objects of their own (*Threads as ranks*).
/// Every device that a rank contributes is a *member*. Members are numbered through all ranks: those of rank
/// 0 in its order, then those of rank 1, and so on. With one device per rank, members are ranks. A `root` is
/// a member. Members of this rank are *local*.
///
/// # Calls
/// The collectives are those of `CommunicatorCollectives` (`tutti/communicator_collectives.hpp`).
///
/// All ranks make the same calls in the same order, with the same root, element types and sizes. In
/// `all_gather`, `reduce_scatter_add`, `all_to_all` and their like, tensors are flat, and the numbers of
/// elements must be the same; with given sizes, the numbers of all members' elements together. (Only the two
/// ranks of a message make calls for it: see `send`.) A call takes one tensor for each local member, in their
/// order, each on that member's device.
///
/// Sums are added in ascending order of members, with the accumulators of `reduce_add`. They have the same
/// bits as in one process, for any number of ranks and of members per rank. The exception is NCCL, which
/// carries large sums on GPUs unless `options.determinism` is bitwise.
///
/// # Stream order
/// A call enqueues on the current streams of the local members' devices, or on `streams`, one per local
/// member, and returns. Inputs and outputs follow the streams as those of the collectives of one process do.
/// Calls of one communicator run one after another, whatever streams they are made on.
///
/// The host waits for other ranks only in these cases:
///  - scatter, gather, an all_to_all with sizes and a broadcast that returns its results learn sizes from
///    other ranks: they return when all ranks have made the call;
///  - the first call that NCCL carries returns when all ranks have made it;
///  - a call waits while its rank is 32 calls ahead of another;
///  - a call waits for the other processes to open a segment of memory (see *Memory*).
///
/// Calls of several communicators on the same stream must also be made in the same order on all ranks: each
/// call waits there for the other ranks, and delays what is queued behind it. On different streams, calls of
/// several communicators may wait on a GPU at the same time; their kernels must all find room there. Up to
/// three communicators of a process on a GPU of 132 multiprocessors leave one another's calls alone, unless
/// these are captured. If there are more, a call gets what those under way have left, and those that want
/// more share evenly. Captured calls get an even share at most, one more communicator reckoned in, and keep
/// it for good: communicators that are made later have what is left, which may be a few multiprocessors. (The
/// free functions' teams, one for each set of devices, count too.)
///
/// # Threads as ranks
/// Several ranks may be threads of one process, beside ranks of other processes. Each constructs an object of
/// its own while the others do, over an exchange of as many ranks, with devices that no other rank of its
/// process has; otherwise the constructors of all ranks throw Error(invalid_argument). From then on one
/// thread may act for several ranks: it may make their calls in turn, except those for which the host waits
/// for other ranks (*Stream order*) and while launches block (*Lifetime*), and may destroy them in any order.
/// Work that a rank's stream is made to wait for must not be queued behind calls that wait for that rank.
///
/// Threads use one another's memory by its address; all else is as between processes, and errors name ranks.
/// NCCL carries no calls of ranks with several members each.
///
/// # Memory
/// Tensors may be dropped right after the call. Where members can access one another's device memory, large
/// operands are read in place, and the results of an all_reduce and the parts of a large all_to_all are
/// written in place: the stream of the member that owns an operand waits until the others are done with it.
///
/// For this, the other processes open the caching allocator's segment around the operand when they first need
/// it, whatever else they are doing. When the segment is to be freed (by `empty_cache`, or when memory is
/// short), they close it as soon as they have no calls under way, of any communicator, but not while one of
/// their communicators with captured calls exists. The free waits for them for a second at most; after that,
/// the segment is freed another time. Memory from other allocators that is not registered
/// (`register_memory`), or on GPUs not aligned to 16 bytes, is copied before or after, which takes as much
/// memory again. If there is no memory for that, the communicator ends.
///
/// # Graphs
/// Calls may be captured into graphs, by all ranks alike; their operands must be contiguous. If one of a
/// call's streams is being captured, the others join the capture (a default stream cannot), and outputs that
/// the call makes are memory of the graph. After each call, the streams that joined return to the captured
/// stream, which waits for them. To capture calls that run independently on every device, let all streams
/// join before, as `Graph::capture` of several streams does. A stream that has joined stays part of the
/// capture until that ends: the caller must join work that it queues there afterwards.
///
/// One graph at a time takes calls: a call throws Error(unsupported) while another graph that holds calls is
/// still being captured. Launches of such a graph and other calls on the same members run one after another,
/// in stream order, which the caller must make the same on all ranks. A replay never reads data of another
/// call: it waits. If ranks differ, are late, give no sign of life or have left, the communicator ends as it
/// does for other calls (*Faults*). A replay waits for `CommunicatorOptions::patience`, from when it begins
/// on its device; a `PatienceGuard` has no effect on it. Calls that NCCL carries in a graph, and messages in
/// graphs, are neither compared nor supervised; only a process that is gone is noticed. An `ExternalStream`
/// that a captured call is made on must stay alive until the next captured call has been made, or the
/// communicator is destroyed.
///
/// # Several hosts
/// Hosts are distinguished by their own identity, or by `TUTTI_HOST_ID`. Ranks on several hosts need an
/// exchange that has a `Network`. NCCL then connects the GPUs, and carries every call that it can, of any
/// size. All other calls, and all calls on virtual devices, go through host memory and the network. A thread
/// of the communicator sends what a member puts for others in a round once to each host that needs any of it,
/// as a whole; it sleeps most of the time when there is nothing to do. Such calls cannot be captured, except
/// messages between two members: Error(unsupported).
///
/// # Thread safety
/// Any thread may make calls, one at a time. `abort`, `is_running` and `flight_record` may be called at any
/// time.
///
/// # Errors
/// Bad arguments throw Error(invalid_argument) on the rank that gives them; nothing is enqueued there. A
/// communicator that has ended (see *Faults*) makes no more calls: each throws the reason of its end. An
/// empty communicator, default-constructed or moved from, makes no calls either: every function throws
/// Error(invalid_argument), except `operator bool` and `is_running`, which return false, and `abort`, which
/// does nothing.
///
/// # Faults
/// Faults that only another rank can cause end the communicator on all ranks:
///  - calls that differ: invalid_argument, with both calls; if one of them is a replay, some 50 ms later;
///  - a rank that is late: timeout, when the patience of a rank that waits for it is over; the error names
///    the late rank and its last call. Long before, a warning in the log names it: after 10 seconds, or a
///    quarter of the patience if that is less, and then each time after three times as long. One of the
///    waiting ranks writes the warnings, and another line when the call goes on;
///  - a rank that gives no sign of life: timeout, after the timeout, naming it;
///  - a process that is gone: peer_unavailable, at once; if no rank of its host is left to see that, it
///    counts as a rank without a sign of life;
///  - a rank that has destroyed its communicator while the others make or launch a call: peer_unavailable, at
///    once;
///  - `abort`: aborted;
///  - a network that fails: the network's error.
///
/// The next call throws the reason, and so does `check`. A wait for a device that had calls under way throws
/// an error of the same code: `synchronize` of a device, stream or event, a `query` that finds them complete,
/// and copies to the host; on GPUs once for each device, and while the communicator exists. The outputs of
/// such calls are undefined. (Programs that wait by CUDA's own functions call `check`.)
///
/// # Lifetime
/// Ranks make a communicator together, and each destroys its own; the destructor says what it waits for. A
/// child that is forked later cannot use it: calls throw Error(unsupported) there.
///
/// Kernels of several members of one process wait for one another. The first communicator with several local
/// members, or with ranks that are threads, finds out whether launches return only when their kernels have
/// ended, as with CUDA_LAUNCH_BLOCKING=1 and under some debuggers and profilers. If so, a separate thread
/// launches each member's kernels, and NCCL carries nothing; ranks that are threads must then make their
/// calls at the same time. If that does not help either, the communicator is refused: Error(unsupported).
class TUTTI_EXPORT Communicator : public CommunicatorCollectives {
 public:
  /// Makes an empty communicator, into which another can be moved later: a class, for instance, can hold it
  /// before the processes have met.
  Communicator() noexcept;
  /// Makes a communicator. Collective: all processes of the exchange call it together. The exchange is not
  /// used afterwards. If one rank cannot take part, the constructor throws on all ranks:
  ///  - invalid_argument on a rank whose options are invalid, and peer_unavailable on the others;
  ///  - invalid_argument on all ranks if they differ in options that must be the same: `window_bytes`,
  ///    `transport`, `determinism`, `multiprocessors` and the backend;
  ///  - unsupported on all ranks if they are on several hosts that have no network;
  ///  - timeout on the ranks that wait; the error says what other ranks have not done.
  explicit Communicator(Exchange& exchange, const CommunicatorOptions& options = {});
  /// Makes a communicator of this process's devices alone.
  explicit Communicator(const CommunicatorOptions& options);
  /// Leave the other communicator empty. An assignment first destroys the communicator that was there, as the
  /// destructor does.
  Communicator(Communicator&&) noexcept;
  Communicator& operator=(Communicator&&) noexcept;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;
  /// Waits for this rank's calls that are still under way, but for no other work of virtual devices. Then, if
  /// data goes through device memory, waits until the other ranks have completed as many calls, and have
  /// received what this rank has sent to them. If calls have been captured, or ranks are on several hosts, it
  /// waits until the others destroy their communicators, too. It waits for calls as long as their patience,
  /// or the timeout if that is longer; for all else as long as the timeout. It does not wait for a rank whose
  /// process is known to be gone, nor, if all ranks are on one host, for other ranks of its own process, as
  /// the same thread may destroy these next: memory that they use stays until they are gone.
  ///
  /// Calls that are not complete by then are ended. If their streams still do not reach them, the memory that
  /// they use is kept until the process ends. On GPUs, memory of the local devices is freed, for which the
  /// driver waits for all their work; and if calls have been captured, launches that wait for other ranks are
  /// ended after the same time. In a forked child, the destructor does nothing.
  ///
  /// Device memory that other ranks still have open a second later is freed once they have closed it: when
  /// communicators are made or destroyed, by `empty_cache`, or when memory is short. Ranks may destroy their
  /// communicators in different orders, unless they are on several hosts or have captured calls: then ranks
  /// that wait for one another wait until the timeout.
  ~Communicator();

  /// Returns false if the communicator is empty, and true if it runs or has ended.
  [[nodiscard]] explicit operator bool() const noexcept { return impl_ != nullptr; }

  [[nodiscard]] int rank() const;
  [[nodiscard]] int rank_count() const;
  /// Returns the number of members of all ranks.
  [[nodiscard]] int member_count() const;
  /// Returns the number of this rank's first member.
  [[nodiscard]] int first_member() const;
  /// Returns the devices of this rank's members, in order.
  [[nodiscard]] const std::vector<Device>& devices() const;

  // # Messages
  // A message goes from one member to another. Only the ranks of these two make calls for it. The k-th
  // message that a member sends to another is the k-th that the other receives from it; there are no tags.
  // Both sides give the same number of elements and the same type. If they differ, the communicator ends with
  // Error(invalid_argument), which has both sides, and nothing of the message is written. (On GPUs, a later
  // message may be written in its place, if that matches the receiver's.) The sender's stream may already
  // have continued. A captured side matches only a captured side; replays of graphs that meet another message
  // than their own wait until the communicator is aborted.
  //
  // A call has its place among the calls of its own rank, which run one after another on the streams. So
  // while one side waits, the other must not wait for it first. If two ranks both send and then receive, in
  // two calls each, they wait for one another for ever, unless the messages are small and happen to fit into
  // the receiver's window, on which no program should rely. `sendrecv` and batches move all their messages at
  // the same time: in any order, each proceeds as soon as its other side is there. The host does not wait for
  // other ranks, with two exceptions: if launches return only when their kernels have ended, or a device
  // accepts no more launches for now; and for 200 ms at most, until the sender's process has opened a segment
  // of memory into which a large message is received, the first time and if calls are captured.
  //
  // A message that takes too long ends the communicator with Error(timeout), which names the partner whose
  // half is missing, or else incomplete. In a chain of ranks, that partner may be waiting for another rank.
  //
  // The sent tensor may be overwritten, in stream order, when the call is complete: the receiver, or its
  // window, then has the bytes. Messages between hosts can be captured, too: replays need no call of the
  // host.
  //
  // Cost: between processes, the bytes are transferred once to the receiver's device, as twice as many on
  // GPUs, and copied once there. Messages of more than 1 MiB (on GPUs without NVLink 256 KiB, on virtual
  // devices 128 KiB) are written directly to their destination instead, if the sender's process has that
  // memory open (see *Memory* above). If devices cannot access one another's memory, the bytes go through
  // host memory, and between hosts through the network as well. Inside a process, the bytes are transferred
  // once: by kernels if all members of the communicator take part in the batch and no message has more than
  // 16 MiB; otherwise, and always if `options.multiprocessors` is given, by copy engines.
  //
  // With `options.transport` nccl, messages between processes are NCCL's sends and receives. This needs an
  // earlier call of all ranks that NCCL has carried, for instance a broadcast, because all ranks connect
  // together; before, messages throw Error(unsupported). The host may then wait for a partner, the first
  // time, and the received bytes of a message whose sides differ are undefined. `automatic` never uses NCCL
  // for messages, because both sides would have to be at the same place among the calls of their ranks.

  /// Sends `tensor`, which is on a local member's device, from that member to member `to`.
  void send(const Tensor& tensor, int to, StreamList streams = {});
  /// Receives into `out` what member `from` sends to the local member on whose device `out` is.
  void recv(const Tensor& out, int from, StreamList streams = {});
  /// Sends and receives at the same time. `to` and `from` may be the same member or two.
  void sendrecv(const Tensor& tensor, int to, const Tensor& out, int from, StreamList streams = {});
  /// Sends and receives on current streams. Returns the received tensor: dense, on the device of `tensor`,
  /// with its sizes and element type, which the tensor that `from` sends must have, too.
  [[nodiscard]] Tensor sendrecv(const Tensor& tensor, int to, int from);
  /// Sends and receives any number of messages at the same time. A message between members of one rank, or
  /// of a member to itself, needs both sides in one batch. No `out` may overlap another tensor of the batch.
  void batch_send_recv(ListOf<Message> messages, StreamList streams = {});

  /// Binds the calls of this communicator that `calls` makes, one or several, to their operands, so that they
  /// can be launched many times (a term of MPI-4). All ranks bind the same calls, and launch them as often,
  /// in the same order among all calls of the communicator.
  ///
  /// The calls are recorded as one graph of all local members' devices, which a launch launches: `calls` is
  /// run once, and nothing that it queues runs then. The rules for captured calls (*Graphs*) apply, also to
  /// the memory of operands and the end of the communicator, with one exception: launches and other calls of
  /// the communicator run one after another, whatever streams they are made on. Between hosts, where calls
  /// cannot be captured, each launch makes the calls anew, and finds errors in them only then. As
  /// `PersistentCollective` says, a launch is ordered with the one stream that it is given, of the first
  /// local member's device. So bound calls use current streams, or streams that have waited for these and are
  /// waited for. A launch throws the error that has ended the communicator; if it fails on one rank, the
  /// communicator ends.
  ///
  /// `calls` is kept as long as launches need what it holds (so it captures tensors by value). The
  /// communicator must not be moved, and must outlive the result. Throws Error(invalid_argument) if `calls`
  /// is empty or gives a call streams of which none is part of the recording, the errors of `calls`, and
  /// Error(unsupported) for calls that cannot be captured. Cost: that of a capture. On GPUs, a launch is one
  /// launch of a graph. With several local members, each device's next call of another kind waits for one
  /// more event, and a launch begins when the previous one has ended on all devices: for a single call of 1
  /// to 4 MiB that costs 3 to 18 µs (measured on 2x H100). In that case bind many calls, or record a graph
  /// for each device (`PersistentOptions`).
  [[nodiscard]] PersistentCollective persistent(std::function<void()> calls,
                                                const PersistentOptions& options = {});

  /// Makes symmetric memory (`tutti/symmetric.hpp`): a tensor of these sizes and this element type on each
  /// member, at once, which kernels of the program's own may read and write on all members. Collective: all
  /// ranks give the same sizes and type. Waits on the host for the current streams, then for the others, like
  /// a call. What one rank cannot do fails on all, and the communicator goes on. Besides the data it takes
  /// some 40 KiB of each device's memory. While it is not released, the process closes no other memory of
  /// other ranks, as with captured calls (*Memory*).
  ///
  /// Throws Error(invalid_argument) for sizes that no tensor can have, and for tensors without elements;
  /// OutOfMemoryError or Error(out_of_memory); and Error(unsupported), with the reason, if the members'
  /// devices cannot access one another's memory, if ranks are on several hosts or data goes through host
  /// memory (`options.transport` staged), if the caching allocator's segments are expandable, which other
  /// processes cannot open, and in a capture.
  [[nodiscard]] SymmetricMemory symmetric(IntList sizes, DType dtype = DType::float32);

  /// Makes a communicator of the ranks that give the same `color`, in order of `key`, then of rank, with
  /// their devices and this communicator's options. Returns nothing to ranks that give no color. Collective:
  /// all ranks call it. This communicator can still be used. Waits on the host for the others, first like a
  /// call, then like the constructor, and throws as these do; queued work need not be complete. Throws
  /// Error(unsupported) in a capture.
  [[nodiscard]] std::optional<Communicator> split(std::optional<int> color, int key = 0);

  /// Makes a communicator of the ranks that are left, in their old order, with their devices and this
  /// communicator's options: after an end, whatever the reason, or to go on without some ranks
  /// (`options.leaving`). Collective: all ranks that are left call it. Returns an empty communicator to a
  /// rank that leaves.
  ///
  ///     try {
  ///       step(communicator);
  ///     } catch (const tutti::Error&) {
  ///       communicator = communicator.shrink();
  ///     }
  ///
  /// The ranks agree on who is left through the host memory that they share, which outlives all of them, so
  /// it does not matter which of them are lost. On several hosts, which TCP must connect, it is the memory of
  /// rank 0's host, and one of its ranks has to be left. A rank counts as lost if its process has ended, if
  /// it has destroyed this communicator, or, on one host, if it gives no sign of life for the communicator's
  /// `timeout`. If further ranks are lost meanwhile, the others agree again. Either all ranks of the new
  /// communicator return it, or none does, unless one is cut off just then; there is never a second group of
  /// survivors. Ranks that are alive
  /// are waited for (`options.timeout`); `options.late` says what happens if they do not come.
  ///
  /// If this communicator still runs, it waits first until all ranks have completed this rank's calls, for
  /// `options.timeout` at most; then it ends on all ranks, with Error(aborted). Graphs may have been launched
  /// on any stream: if calls have been captured or bound, it also waits until its local devices are idle, so
  /// nothing there may wait for what this rank does after this call. Destroy it soon, as above, to free its
  /// windows. Tensors, registered memory, streams and random number generators stay as they are. Calls that
  /// were under way are over, and their outputs undefined: a stopped rank that was left out may still write
  /// to these outputs when it is resumed. Graphs and bound calls belong to the communicator that has ended:
  /// capture them again, and bind by `PersistentCollective::rebind`.
  ///
  /// Waits on the host. Throws, on all ranks that have called it,
  ///  - timeout, if a rank that is alive does not come in time, naming it, unless late ranks are left out;
  ///  - invalid_argument, if ranks give different `leaving` or `late`;
  ///  - what the constructor throws, if the ranks that are left cannot make a communicator;
  /// and on one rank
  ///  - timeout, if the others have gone on without it;
  ///  - peer_unavailable, if it is on another host than rank 0, and no rank there is left; timeout, if none
  ///    has decided within twice `options.timeout`;
  ///  - invalid_argument for bad arguments, or if it has returned a communicator before: shrink that one;
  ///  - unsupported, in a capture, if something else than TCP connects the hosts, or if `leaving` has all
  ///    ranks of rank 0's host.
  /// After an error on all ranks, they may call it again. Cost: that of making a communicator;
  /// between hosts, also a connection to each other rank.
  [[nodiscard]] Communicator shrink(const ShrinkOptions& options = {});

  /// Makes a communicator of all ranks and of new ones behind them, which are processes that call `join`:
  /// with the old ranks' devices and this communicator's options. Collective: all ranks call it.
  ///
  ///     // A running rank:                                  // A new process of the same host:
  ///     communicator = communicator.grow(                   auto communicator = tutti::Communicator::join(
  ///         {.meeting_point = {.port = 29400}, .most = 2});     {.meeting_point = {.port = 29400}});
  ///
  /// The lowest rank listens at `options.meeting_point` during the call, and closes it when `options.most`
  /// processes have come. If a rank holds it open between calls (`tutti/open_meeting_point.hpp`), that rank
  /// lets in those who wait there instead, and processes may be counted before the call. New ranks are
  /// numbered in the order in which they were let in, as far as that is known. They take part in the
  /// agreement of `shrink`, by the same memory: either all ranks of the new communicator return it, or none
  /// does, and this one goes on as before. If a new rank is lost meanwhile, another may come.
  ///
  /// Waits first until all ranks have completed this rank's calls. Once the new communicator is made, this
  /// one ends on all ranks, with Error(aborted); what `shrink` says of tensors, calls and graphs holds, too.
  ///
  /// Waits on the host. Throws, on all ranks that have called it, and on the processes that were let in,
  ///  - timeout, if too few processes come in time, with the reason as far as it is known, or if a rank that
  ///    is alive does not call it;
  ///  - peer_unavailable, if a rank is lost: shrink first, or `replace` it;
  ///  - invalid_argument, if ranks give different options, or call `shrink` or `replace`;
  ///  - transport_failure, with errno, if the rank that should listen cannot;
  ///  - what the constructor throws, for instance for options of the new rank that must be the same on all;
  /// and on one rank what `shrink` throws there. After an error, they may call it again. Cost: that of making
  /// a communicator. Each communicator keeps a file descriptor for this on each rank.
  [[nodiscard]] Communicator grow(const GrowOptions& options);

  /// Does what `shrink` does, and lets as many processes in as ranks do not go on, as `grow` does. These take
  /// the numbers of the lost ranks, in ascending order; all others keep theirs. If nobody is lost or leaves,
  /// it makes a communicator of all ranks. Throws what `shrink` and `grow` throw; timeout if too few
  /// processes come in time: then the ranks that are left may shrink the communicator, or try again.
  [[nodiscard]] Communicator replace(const ReplaceOptions& options);

  /// Becomes a rank of a communicator that ranks of this host grow, or in which they replace others, and
  /// returns it. The process may come before them: it waits for `options.timeout`. If more processes come
  /// than the ranks want, those that are too many go on waiting, for the next call (as spares).
  ///
  /// `own` has this rank's devices and times, and what must be the same on all ranks, as for the constructor.
  ///
  /// Throws
  ///  - timeout, if nobody lets it in in time, which says whether nobody listened, there was no room, or it
  ///    waited and the ranks did not make the call;
  ///  - invalid_argument for bad options, if the ranks have another secret or job, are of another build of
  ///    tutti, or are in another PID namespace;
  ///  - unsupported, if it cannot open the ranks' memory, as on another host;
  ///  - peer_unavailable, if something else listens at the meeting point, or the ranks are lost;
  ///  - once it has been let in, what the ranks throw.
  [[nodiscard]] static Communicator join(const JoinOptions& options, const CommunicatorOptions& own = {});

  /// Returns the plan of this process's last call; empty strings before the first.
  [[nodiscard]] PlanSummary last_plan() const;

  /// Explains how data may travel between the members, and why not otherwise, in a few lines; also why memory
  /// of this process's members last went through stand-ins, if it has.
  [[nodiscard]] std::string explain() const;
  /// Explains how a call that `workload` describes would travel, whose `root` is the index of a member, and
  /// whose `devices` and `options` are this communicator's, in place where it can be and outside captures:
  /// the transport and why, the transports refused and why, and what this process's members would do. Several
  /// lines. Moves nothing, and waits for nobody. Throws Error(invalid_argument) for what could not be called,
  /// Error(unsupported) if the transport that `options` ask for cannot carry it.
  [[nodiscard]] std::string explain(const Workload& workload) const;

  /// Ends the communicator on all ranks. Returns at once.
  void abort(std::string_view reason) noexcept;
  /// Returns whether the communicator still runs: false once anything has ended it, and if it is empty.
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
  /// Makes the communicator of an agreement that changes the ranks, while others do.
  class Successor;

  explicit Communicator(std::unique_ptr<Impl> impl) noexcept;
};

}  // namespace tutti
