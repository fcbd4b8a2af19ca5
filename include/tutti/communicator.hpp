// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/collectives.hpp"
#include "tutti/communicator_options.hpp"
#include "tutti/exchange.hpp"
#include "tutti/export.hpp"
#include "tutti/list_of.hpp"
#include "tutti/message.hpp"
#include "tutti/patience.hpp"
#include "tutti/persistent.hpp"

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

/// Collectives between processes.
namespace tutti {

/// A process's operands, and so its results: the tensor of its one member, or a tensor for each local member.
template <class T>
concept MemberTensors = std::same_as<T, Tensor> || std::same_as<T, std::vector<Tensor>>;
/// Likewise of coalesced calls: the list of its one member, or a list for each local member.
template <class T>
concept MemberLists =
    std::same_as<T, std::vector<Tensor>> || std::same_as<T, std::vector<std::vector<Tensor>>>;

/// A group of devices in several processes, of one host or of several, and the collectives among them.
///
/// Every process is a *rank*. Every device that it brings in is a *member*; members are numbered through all
/// ranks: those of rank 0 in its order, then those of rank 1. With one device per process, members are ranks.
/// A `root` is a member. Members of this process are *local*.
///
/// # Calls
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
/// operands are read where they lie, and sums for all written there: the stream of the member that owns an
/// operand waits until the others are done with it. The other processes open the caching allocator's segment
/// around it when they first need it, whatever they are doing otherwise. When the segment is to be freed (by
/// `empty_cache`, or when memory is short), they close it as soon as they have no calls under way, of this
/// communicator or another. They do not close it while one of their communicators lives of which calls have
/// been captured. Freeing waits for them for a second at most, and else leaves the segment for the next time.
/// Memory of other origin, or on GPUs not aligned to 16 bytes, is copied first, which takes as much memory
/// again; where there is none, the communicator ends.
///
/// # Graphs
/// Calls may be captured into graphs, by all ranks alike; their operands must be contiguous. If one of a
/// call's streams is being captured, the others join the capture. After each call they come back to that
/// stream, which waits for them there. To capture calls that go on by themselves on every device, have all
/// streams join first, as `Graph::capture` of several does. What has joined stays part of the capture until
/// that ends: work that the caller queues there afterwards is the caller's to bring back.
///
/// One graph takes calls at a time: a call throws Error(unsupported) where another graph that holds calls is
/// still being captured. Launches of such a graph and other calls on the same members follow one another in
/// stream order, which is the caller's to see to. Replays are not compared among ranks, nor watched for being
/// late. An `ExternalStream` that a captured call is made on stays alive until the next captured call has
/// been made, or the communicator is destroyed.
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
/// What only another rank can cause ends the communicator on all ranks:
///  - calls that differ: invalid_argument, with both calls;
///  - a rank that is late: timeout, when a rank that waits for it has lost its patience, naming it and its
///    last call. A warning in the log has named it long before: after 10 seconds, or a quarter of the
///    patience if that is less, and again after three times as long each; another one says that the call goes
///    on. One of the ranks that wait writes them;
///  - a rank that gives no sign of life: timeout, after the timeout, naming it;
///  - a process that is gone: peer_unavailable, at once; if none of its host is left to see it, it gives no
///    sign of life;
///  - a rank that has destroyed its communicator where the others make a call: peer_unavailable, at once;
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
  /// `broadcast` of many tensors as one operation; `tensors[i]`, `out[i]` are those of local member i. With
  /// lists of no tensors, which all ranks then give, the coalesced calls do nothing; but they are calls,
  /// which all ranks make.
  void broadcast_coalesced(TensorLists tensors, int root, StreamList streams = {});
  void broadcast_coalesced(TensorList tensors, TensorLists out, int root, StreamList streams = {});
  /// The elementwise sum of all members' inputs goes to the root's `out`; those of others are not looked at,
  /// and a process without the root may give none. `out` may be the root's input.
  void reduce_add(TensorList inputs, TensorList out, int root, StreamList streams = {});
  void reduce_add_coalesced(TensorLists inputs, TensorLists out, int root, StreamList streams = {});
  /// `reduce_add` by any operation, which all ranks give alike, factors included; a factor for each is one
  /// for each member. Throws Error(invalid_argument) too for one that the element type does not have. Cost:
  /// as of a sum.
  void reduce(TensorList inputs, TensorList out, const ReduceOp& op, int root, StreamList streams = {});
  void reduce_coalesced(TensorLists inputs, TensorLists out, const ReduceOp& op, int root,
                        StreamList streams = {});
  /// The sum goes to all. Each `out` may be that member's input.
  void all_reduce_add(TensorList inputs, TensorList out, StreamList streams = {});
  void all_reduce_add_coalesced(TensorLists inputs, TensorLists out, StreamList streams = {});
  /// Likewise by any operation.
  void all_reduce(TensorList inputs, TensorList out, const ReduceOp& op, StreamList streams = {});
  void all_reduce_coalesced(TensorLists inputs, TensorLists out, const ReduceOp& op, StreamList streams = {});
  /// Every `out` becomes the concatenation of all members' inputs, which are equally long, flat, in order of
  /// members. An input may be the part of its member's `out` where it belongs.
  void all_gather(TensorList inputs, TensorList out, StreamList streams = {});
  /// `all_gather` of many tensors as one operation: out[i][t] becomes the concatenation of all inputs[m][t].
  void all_gather_coalesced(TensorLists inputs, TensorLists out, StreamList streams = {});
  /// The sum of all inputs, flat, is cut into equal parts, one per member; every `out` is that member's part,
  /// of as many elements. An `out` may be the part of its member's input where it belongs.
  void reduce_scatter_add(TensorList inputs, TensorList out, StreamList streams = {});
  /// Likewise by any operation, and of many tensors, each of which is cut.
  void reduce_scatter(TensorList inputs, TensorList out, const ReduceOp& op, StreamList streams = {});
  void reduce_scatter_coalesced(TensorLists inputs, TensorLists out, const ReduceOp& op,
                                StreamList streams = {});

  // Parts of unequal lengths, and exchanges of all with all. Sizes are numbers of elements, or lengths along
  // a dimension; 0 too.
  /// `all_gather` of inputs of unequal lengths: member m's input has `sizes[m]` elements, and every `out` as
  /// many as all of them. All ranks give the sizes of all members. Cost: as with equal parts; NCCL, which has
  /// no call for it, makes a broadcast for each part. Where members read one another's memory, large inputs
  /// that do not begin at multiples of 16 bytes are copied first: parts in place may lie so.
  void all_gather(TensorList inputs, TensorList out, ListOf<std::int64_t> sizes, StreamList streams = {});
  /// Braces without anything in them are streams.
  void all_gather(TensorList inputs, TensorList out, std::initializer_list<Stream> streams) {
    all_gather(inputs, out, StreamList(streams));
  }
  /// Joins the inputs along dimension `dim` (negative counts from the end), which all ranks give alike:
  /// member m's input has size `sizes[m]` there, every `out` the sum of the sizes, and in all other
  /// dimensions sizes are the same. Cost: as above along the first dimension, and where those before `dim`
  /// have size 1. Along others, every `out` is put together from a copy that holds one part behind the other,
  /// which takes as much memory again and a copy within the device; no input lies in an `out` then.
  template <std::integral Dim>
  void all_gather(TensorList inputs, TensorList out, ListOf<std::int64_t> sizes, Dim dim,
                  StreamList streams = {}) {
    gather_along(inputs, out, sizes, static_cast<int>(dim), streams);
  }
  /// `reduce_scatter` into parts of unequal lengths, likewise: member m's `out` has `sizes[m]` elements.
  /// NCCL makes a reduce for each part.
  void reduce_scatter(TensorList inputs, TensorList out, const ReduceOp& op, ListOf<std::int64_t> sizes,
                      StreamList streams = {});
  void reduce_scatter(TensorList inputs, TensorList out, const ReduceOp& op,
                      std::initializer_list<Stream> streams) {
    reduce_scatter(inputs, out, op, StreamList(streams));
  }
  /// Cuts the result along dimension `dim`, likewise: member m's `out` has size `sizes[m]` there. Along
  /// others than the first, every input is copied first, part by part.
  template <std::integral Dim>
  void reduce_scatter(TensorList inputs, TensorList out, const ReduceOp& op, ListOf<std::int64_t> sizes,
                      Dim dim, StreamList streams = {}) {
    reduce_scatter_along(inputs, out, op, sizes, static_cast<int>(dim), streams);
  }
  /// Every input, flat, is cut into equal parts, one for each member: part j of member i's input becomes part
  /// i of member j's `out`, which has as many elements. An `out` may be its member's input. That is copied
  /// first then, which takes as much memory again, where others read it where it lies or NCCL carries the
  /// call.
  void all_to_all(TensorList inputs, TensorList out, StreamList streams = {});
  /// `all_to_all` of many tensors, each of which is cut, as one operation.
  void all_to_all_coalesced(TensorLists inputs, TensorLists out, StreamList streams = {});
  /// `all_to_all` of parts of unequal lengths, without gaps between them: of local member i's input,
  /// `input_sizes[i][m]` elements go to member m, and `out_sizes[i][m]` elements of its `out` come from
  /// there. An `out` that is as long as the input may be the input, which is copied unless all sizes are
  /// equal. Sizes of other ranks' members need not be known: this returns when all ranks have made the call.
  /// Members that do not agree on what goes from one to the other end the communicator with
  /// Error(invalid_argument), before anything moves; those of one process are refused as other arguments are.
  /// Cost: unless all sizes are equal, a plan is made for the sizes, and kept for calls with the same.
  void all_to_all(TensorList inputs, TensorList out, ListOf<std::vector<std::int64_t>> input_sizes,
                  ListOf<std::vector<std::int64_t>> out_sizes, StreamList streams = {});

  /// Cuts the root's `tensor` along `dim` (negative counts from the end): member i gets the part that its
  /// `out` has room for. Processes without the root give an undefined tensor.
  void scatter(const Tensor& tensor, TensorList out, int root, int dim = 0, StreamList streams = {});
  /// Joins all members' tensors along `dim` in the root's `out`. Tensors without dimensions are joined to a
  /// vector with an element for each, as by `tutti::gather`.
  void gather(TensorList tensors, const Tensor& out, int root, int dim = 0, StreamList streams = {});

  // Between two members. Only the ranks of these two know of a message: others make no call. The k-th message
  // that a member sends to another is the k-th that the other receives from it; there are no tags. Both give
  // as many elements of the same type: else the communicator ends with Error(invalid_argument), with both
  // sides, and nothing of the message is written. The sender's stream may have gone on. A captured side goes
  // with a captured one; replays of graphs that meet another message than theirs wait until the communicator
  // is aborted.
  //
  // A call has its place among the calls of its own rank, which follow one another on the streams. So where
  // one side waits, the other must come without waiting for it first: two ranks that both send and then
  // receive, in two calls each, wait for one another for ever, if not the messages happen to fit into slots,
  // on which nothing should rely. `sendrecv` and batches do all their messages at once: in whatever order
  // they stand, each goes on as soon as its other side is there. The host does not wait for other ranks, but
  // where launches return only when their kernels have ended, or a device takes no more launches for now.
  //
  // A message that takes too long ends the communicator with Error(timeout), which names the partner whose
  // half is missing, or else not complete: in a chain of ranks, that one may be waiting for another.
  //
  // What is sent may be written over, in stream order, when the call is over: the bytes are then with the
  // receiver, or in its slots. Cost: the bytes once to the receiver's device and once there, but for those of
  // more than 256 KiB (128 KiB on virtual devices), which are written where they are received, if the sender's
  // process can open that memory (see *Memory* above); through host memory where devices do not reach one
  // another's, and from host to host through the network as well; in one process a copy. Between hosts, too, messages can be captured: replays need no call of the host's.
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
  /// Both at once. Member numbers may be those of one member or of two.
  void sendrecv(const Tensor& tensor, int to, const Tensor& out, int from, StreamList streams = {});
  /// Any number of messages at once. Those between members of one process, and of a member to itself, have
  /// both sides in one batch. No `out` overlaps another tensor of the batch.
  void batch_send_recv(ListOf<Message> messages, StreamList streams = {});

  /// Work queued afterwards on these streams, on all ranks, comes after all that was queued on any of them
  /// before. Like the other calls it returns without waiting.
  void barrier(StreamList streams = {});

  // With returned results. On the current streams, the calls above with outputs that they make: dense, of the
  // inputs' element types. `inputs` are a tensor or a vector, as the results are then (`MemberTensors`); of
  // coalesced calls a list or a vector of lists. Ranks may mix these forms and those above, but for
  // `broadcast`, `broadcast_coalesced`, `scatter` and `gather`. Errors are those of the calls above.

  /// Like the inputs.
  template <MemberTensors Operands>
  [[nodiscard]] Operands all_reduce_add(const Operands& inputs) {
    return results(Collective::all_reduce_add, ReduceOp::sum, inputs);
  }
  template <MemberTensors Operands>
  [[nodiscard]] Operands all_reduce(const Operands& inputs, const ReduceOp& op = ReduceOp::sum) {
    return results(Collective::all_reduce, op, inputs);
  }
  template <MemberLists Operands>
  [[nodiscard]] Operands all_reduce_add_coalesced(const Operands& inputs) {
    return lists_of_results(Collective::all_reduce_add_coalesced, ReduceOp::sum, inputs);
  }
  template <MemberLists Operands>
  [[nodiscard]] Operands all_reduce_coalesced(const Operands& inputs, const ReduceOp& op = ReduceOp::sum) {
    return lists_of_results(Collective::all_reduce_coalesced, op, inputs);
  }
  /// Joined along the first dimension; tensors without dimensions to a vector with an element for each
  /// member.
  template <MemberTensors Operands>
  [[nodiscard]] Operands all_gather(const Operands& inputs) {
    return results(Collective::all_gather, ReduceOp::sum, inputs);
  }
  /// Of unequal lengths: flat.
  template <MemberTensors Operands>
  [[nodiscard]] Operands all_gather(const Operands& inputs, const std::vector<std::int64_t>& sizes) {
    return only<Operands>(made(each(inputs), sizes, std::nullopt));
  }
  /// Joined along `dim`.
  template <MemberTensors Operands, std::integral Dim>
  [[nodiscard]] Operands all_gather(const Operands& inputs, const std::vector<std::int64_t>& sizes, Dim dim) {
    return only<Operands>(made(each(inputs), sizes, static_cast<int>(dim)));
  }
  template <MemberLists Operands>
  [[nodiscard]] Operands all_gather_coalesced(const Operands& inputs) {
    return lists_of_results(Collective::all_gather_coalesced, ReduceOp::sum, inputs);
  }
  /// Cut along the first dimension, whose size is a multiple of the number of members.
  template <MemberTensors Operands>
  [[nodiscard]] Operands reduce_scatter_add(const Operands& inputs) {
    return results(Collective::reduce_scatter_add, ReduceOp::sum, inputs);
  }
  template <MemberTensors Operands>
  [[nodiscard]] Operands reduce_scatter(const Operands& inputs, const ReduceOp& op = ReduceOp::sum) {
    return results(Collective::reduce_scatter, op, inputs);
  }
  /// Into parts of unequal lengths: flat.
  template <MemberTensors Operands>
  [[nodiscard]] Operands reduce_scatter(const Operands& inputs, const ReduceOp& op,
                                        const std::vector<std::int64_t>& sizes) {
    return only<Operands>(made(op, each(inputs), sizes, std::nullopt));
  }
  /// Cut along `dim`.
  template <MemberTensors Operands, std::integral Dim>
  [[nodiscard]] Operands reduce_scatter(const Operands& inputs, const ReduceOp& op,
                                        const std::vector<std::int64_t>& sizes, Dim dim) {
    return only<Operands>(made(op, each(inputs), sizes, static_cast<int>(dim)));
  }
  template <MemberLists Operands>
  [[nodiscard]] Operands reduce_scatter_coalesced(const Operands& inputs,
                                                  const ReduceOp& op = ReduceOp::sum) {
    return lists_of_results(Collective::reduce_scatter_coalesced, op, inputs);
  }
  /// Like the inputs, which are cut into equal parts.
  template <MemberTensors Operands>
  [[nodiscard]] Operands all_to_all(const Operands& inputs) {
    return results(Collective::all_to_all, ReduceOp::sum, inputs);
  }
  /// Of parts of unequal lengths: flat.
  template <MemberTensors Operands>
  [[nodiscard]] Operands all_to_all(const Operands& inputs, ListOf<std::vector<std::int64_t>> input_sizes,
                                    ListOf<std::vector<std::int64_t>> out_sizes) {
    return only<Operands>(made(each(inputs), input_sizes, out_sizes));
  }
  template <MemberLists Operands>
  [[nodiscard]] Operands all_to_all_coalesced(const Operands& inputs) {
    return lists_of_results(Collective::all_to_all_coalesced, ReduceOp::sum, inputs);
  }
  /// Like the root's input. Processes without the root get an undefined tensor, or no tensors.
  template <MemberTensors Operands, std::integral Root>
  [[nodiscard]] Tensor reduce_add(const Operands& inputs, Root root) {
    return result_of_root(Collective::reduce_add, ReduceOp::sum, each(inputs), static_cast<int>(root));
  }
  template <MemberTensors Operands>
  [[nodiscard]] Tensor reduce(const Operands& inputs, const ReduceOp& op, int root) {
    return result_of_root(Collective::reduce, op, each(inputs), root);
  }
  template <MemberLists Operands, std::integral Root>
  [[nodiscard]] std::vector<Tensor> reduce_add_coalesced(const Operands& inputs, Root root) {
    return results_of_root(Collective::reduce_add_coalesced, ReduceOp::sum, lists(inputs),
                           static_cast<int>(root));
  }
  template <MemberLists Operands>
  [[nodiscard]] std::vector<Tensor> reduce_coalesced(const Operands& inputs, const ReduceOp& op, int root) {
    return results_of_root(Collective::reduce_coalesced, op, lists(inputs), root);
  }
  /// A copy of the root's `tensor` for each local member. Processes without the root give an undefined
  /// tensor, or none: all learn the sizes from the root, for which the host waits until all ranks have made
  /// the call. So it is with `scatter` and `gather`. None of them can be captured: Error(unsupported).
  template <std::same_as<Tensor> Operand, std::integral Root>
  [[nodiscard]] std::vector<Tensor> broadcast(const Operand& tensor, Root root) {
    return told_broadcast(tensor, static_cast<int>(root));
  }
  template <std::same_as<std::vector<Tensor>> Operands, std::integral Root>
  [[nodiscard]] std::vector<std::vector<Tensor>> broadcast_coalesced(const Operands& tensors, Root root) {
    return told_broadcast_coalesced(tensors, static_cast<int>(root));
  }
  /// Part m is member m's: ceil(size / members) along `dim` each, the last smaller, empty ones where nothing
  /// is left, as those of `tutti::scatter`. One for each local member.
  template <std::same_as<Tensor> Operand, std::integral Root>
  [[nodiscard]] std::vector<Tensor> scatter(const Operand& tensor, Root root, int dim = 0) {
    return told_scatter(tensor, static_cast<int>(root), dim);
  }
  /// Undefined in processes without the root.
  template <MemberTensors Operands, std::integral Root>
  [[nodiscard]] Tensor gather(const Operands& tensors, Root root, int dim = 0) {
    return told_gather(each(tensors), static_cast<int>(root), dim);
  }

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
  /// `PersistentCollective` says. It throws what has ended the communicator; where it fails on one rank, it
  /// ends it.
  ///
  /// `calls` is kept as long as launches need what it holds (so it captures tensors by value). The
  /// communicator stays where it is and outlives what is bound. Throws Error(invalid_argument) if `calls` is
  /// empty, what `calls` throws, and Error(unsupported) for what cannot be captured. Cost: as of a capture. A
  /// launch on GPUs is one launch of a graph; with several local members, each device's next call of another
  /// kind waits for an event more.
  [[nodiscard]] PersistentCollective persistent(std::function<void()> calls);

  /// A communicator of the ranks that give the same `color`, in order of `key`, then of rank, with their
  /// devices and this one's options; nothing for ranks that give no color. Collective: all ranks call it.
  /// This one goes on as before. Waits on the host for the others, first as a call, then as the constructor,
  /// and throws as these do; what has been queued need not be complete. Error(unsupported) in a capture.
  [[nodiscard]] std::optional<Communicator> split(std::optional<int> color, int key = 0);

  /// How the last call of this process travels; empty strings before the first.
  [[nodiscard]] PlanSummary last_plan() const;

  /// How data may travel between the members, and why not otherwise, in a few lines.
  [[nodiscard]] std::string explain() const;
  /// How a call that `workload` describes would travel, whose `root` is the index of a member, and whose
  /// `devices` and `options` are this communicator's, in place where it can be and outside captures: the
  /// transport and why, the transports refused and why, and what this process's members would do. Several
  /// lines. Moves nothing, and waits for nobody. Throws Error(invalid_argument) for what could not be called,
  /// Error(unsupported) if the transport that `options` ask for cannot carry it.
  [[nodiscard]] std::string explain(const Workload& workload) const;

  /// Ends the communicator on all ranks. Returns at once.
  void abort(std::string_view reason) noexcept;
  /// False once the communicator has been ended, by whatever.
  [[nodiscard]] bool is_running() const noexcept;
  /// Throws what has ended the communicator, if anything has. After waiting for the streams of a call: if it
  /// does not throw, the call's outputs are what they should be.
  void check() const;
  /// Every rank's last calls, whether they are complete and how long ago they were made, and how far messages
  /// between members have come that have an end on this host, as one line of JSON.
  /// When a call times out, one rank writes the last few to the log, or appends them to a file of its own if
  /// `TUTTI_FLIGHT_RECORD` names one; the others say in a line why they end. What other ranks' GPUs have
  /// completed may be known some 50 ms later.
  [[nodiscard]] std::string flight_record() const;

 private:
  class Impl;
  explicit Communicator(std::unique_ptr<Impl> impl) noexcept;

  static TensorList each(const Tensor& tensor) { return std::span(&tensor, 1); }
  static TensorList each(const std::vector<Tensor>& tensors) { return tensors; }
  static TensorLists lists(const std::vector<Tensor>& list) { return std::span(&list, 1); }
  static TensorLists lists(const std::vector<std::vector<Tensor>>& lists) { return lists; }
  /// All, or the only one.
  template <class Operands, class Made>
  static Operands only(std::vector<Made> all) {
    if constexpr (std::same_as<Operands, Made>) {
      return std::move(all.front());
    } else {
      return all;
    }
  }
  template <class Operands>
  Operands results(Collective collective, const ReduceOp& op, const Operands& inputs) {
    return only<Operands>(made(collective, op, each(inputs)));
  }
  template <class Operands>
  Operands lists_of_results(Collective collective, const ReduceOp& op, const Operands& inputs) {
    return only<Operands>(made(collective, op, lists(inputs)));
  }
  std::vector<Tensor> made(Collective collective, const ReduceOp& op, TensorList inputs);
  std::vector<std::vector<Tensor>> made(Collective collective, const ReduceOp& op, TensorLists inputs);
  void gather_along(TensorList inputs, TensorList out, ListOf<std::int64_t> sizes, int dim,
                    StreamList streams);
  void reduce_scatter_along(TensorList inputs, TensorList out, const ReduceOp& op, ListOf<std::int64_t> sizes,
                            int dim, StreamList streams);
  std::vector<Tensor> made(TensorList inputs, const std::vector<std::int64_t>& sizes, std::optional<int> dim);
  std::vector<Tensor> made(const ReduceOp& op, TensorList inputs, const std::vector<std::int64_t>& sizes,
                           std::optional<int> dim);
  std::vector<Tensor> made(TensorList inputs, ListOf<std::vector<std::int64_t>> input_sizes,
                           ListOf<std::vector<std::int64_t>> out_sizes);
  Tensor result_of_root(Collective collective, const ReduceOp& op, TensorList inputs, int root);
  std::vector<Tensor> results_of_root(Collective collective, const ReduceOp& op, TensorLists inputs,
                                      int root);
  std::vector<Tensor> told_broadcast(const Tensor& tensor, int root);
  std::vector<std::vector<Tensor>> told_broadcast_coalesced(const std::vector<Tensor>& tensors, int root);
  std::vector<Tensor> told_scatter(const Tensor& tensor, int root, int dim);
  Tensor told_gather(TensorList tensors, int root, int dim);

  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti
