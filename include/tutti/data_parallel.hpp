// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator.hpp"
#include "tutti/export.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

/// What trainers are made of that hold the same parameters on every device.
namespace tutti {

/// Makes replicas of the root's `parameters` on the devices of the local members: result[i][t] is what the
/// root has in parameters[t], on the device of local member i. The root's own replica is `parameters`
/// themselves; all others are new tensors.
///
/// Collective: all ranks call it with the same root, and `parameters` of the same sizes and element types.
/// Those of the process that has the root are on the root's device. Those of other processes say sizes and
/// types alone: their values are not looked at, and they may be on any device or on the host. None shares
/// memory with another of its list: one that is used in several places (tied weights) is given once.
///
/// Ranks that give other numbers, sizes, types or another root throw Error(invalid_argument), all of them,
/// before anything moves; so do all if one has been given what it refuses. To compare, the host waits until
/// all ranks have made the call, unless it is being captured: then only what a broadcast compares is.
///
/// Beside that, stream order, thread safety, errors and cost are those of
/// `Communicator::broadcast_coalesced`: one operation on the current streams of the members' devices, or on
/// `streams`.
[[nodiscard]] TUTTI_EXPORT std::vector<std::vector<Tensor>> replicate(Communicator& communicator,
                                                                      TensorList parameters, int root = 0,
                                                                      StreamList streams = {});
/// In place: parameters[i][t], of local member i, gets what the root has in its tensor t.
TUTTI_EXPORT void replicate(Communicator& communicator, TensorLists parameters, int root = 0,
                            StreamList streams = {});
/// The same for lists in braces: `{list}` are the parameters of the one local member.
inline void replicate(Communicator& communicator, std::initializer_list<std::vector<Tensor>> parameters,
                      int root = 0, StreamList streams = {}) {
  replicate(communicator, TensorLists(parameters), root, streams);
}

/// What it means that a gradient was not reported in an iteration, neither in its `no_sync`.
enum class UnusedGradients : std::uint8_t {
  error,  ///< a mistake: `GradientBuckets::synchronize` throws, and names it
  zero,   ///< the parameter was not used there: `GradientBuckets::synchronize` sets the gradient to zero
};

/// What `GradientBuckets` are made with; the same on all ranks.
struct GradientBucketOptions {
  /// A bucket takes gradients until it has so many bytes or more. More than 0.
  std::size_t bucket_bytes = std::size_t{25} << 20U;
  /// The same for the first bucket of each element type, so that the first all-reduce starts early. 0: as
  /// `bucket_bytes`.
  std::size_t first_bucket_bytes = std::size_t{1} << 20U;
  /// What all members' gradients are combined by.
  ReduceOp operation = ReduceOp::avg;
  UnusedGradients unused = UnusedGradients::error;
};

class NoSyncGuard;

/// All-reduces gradients while the backward pass still computes others.
///
/// # Buckets
/// Gradients are put into buckets in reverse order, as the backward pass produces them, those of each element
/// type into buckets of their own. A bucket is one `Communicator::all_reduce_coalesced` in place, of the
/// tensors as they are: nothing is flattened, and nothing is copied but what that copies (strided gradients,
/// and large ones that are not aligned to 16 bytes or not of the library's memory). It starts as soon as
/// every local member has reported all of its gradients, and all buckets before it have been started: so all
/// ranks start the same buckets in the same order, in whatever order gradients become ready.
///
/// # An iteration
/// `ready` for each gradient of each local member, once its last writer has been queued; then `synchronize`,
/// behind which the gradients are those of all members. The next iteration begins there. Gradients stay where
/// they are: an iteration writes them anew, or adds to what it finds.
///
/// # Stream order
/// Every local member's device has a communication stream, more urgent than others, on which its all-reduces
/// run. One waits for what the current streams had queued when its gradients were reported, and for the
/// communicator's call before it: so it overlaps with the rest of the backward pass. If that call is one of
/// the program, on other streams, the first all-reduce of an iteration also waits for whatever these streams
/// have been given by then: where one thread drives several devices in turn, most of the backward pass. A
/// communicator of the buckets' own (`Communicator::split`) spares it that. `synchronize` has the current
/// streams wait for all all-reduces. No call waits on the host, unless the communicator's does. Between a
/// `ready` outside of a `no_sync` and `synchronize` nothing else may read or write that gradient.
///
/// # Graphs
/// A whole iteration may be captured, with its `no_sync` and `synchronize`, on streams that are all part of
/// the capture (`Graph::capture` of several streams sees to that), by all ranks alike. Launches of the
/// graph report nothing.
///
/// # The communicator
/// It outlives this object, and is not moved meanwhile. During an iteration it makes no other calls: their
/// place among the all-reduces would depend on when gradients become ready, and ranks have to make all calls
/// in one order. A program that makes others then makes them with another communicator
/// (`Communicator::split`).
///
/// # Thread safety
/// Threads may call `ready` at the same time, such as one thread for each device. No `ready` of an iteration
/// may be under way when its `synchronize` is called.
///
/// # Errors
/// Bad arguments throw Error(invalid_argument), and change and queue nothing. Where there are other ranks,
/// those of the constructor are refused on all of them alike: it is a call of the communicator, in which the
/// host waits until all ranks have made it, and compares what they give. Nor can it be captured then:
/// Error(unsupported). What the communicator throws is passed on: the bucket then has not been started, and
/// the next `ready` or `synchronize` tries again; if it is how the communicator has ended, they throw it
/// again. An iteration that cannot be finished (the program's own backward pass has thrown) is left by
/// destroying the object and, where there are other ranks, the communicator, whose `abort` tells them.
///
/// # Cost
/// An event for each `ready`. No memory of the devices, beside what the communicator needs for its calls.
class TUTTI_EXPORT GradientBuckets {
 public:
  /// gradients[i] are those of local member i, on its device, in the order of the forward pass; alike on all
  /// members, ranks included, in number, order, sizes and types. They are kept alive, and none shares memory
  /// with another: that of a parameter that is used in several places (tied weights) is given once.
  GradientBuckets(Communicator& communicator, TensorLists gradients,
                  const GradientBucketOptions& options = {});
  /// The same for a process with one local member, whose gradients these are.
  GradientBuckets(Communicator& communicator, TensorList gradients,
                  const GradientBucketOptions& options = {});
  /// The same for lists in braces: `{list}` are the gradients of the one local member.
  GradientBuckets(Communicator& communicator, std::initializer_list<std::vector<Tensor>> gradients,
                  const GradientBucketOptions& options = {})
      : GradientBuckets(communicator, TensorLists(gradients), options) {}
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;
  /// Does not wait. What has been started still completes, if the communicator is not destroyed before.
  ~GradientBuckets();

  /// Gradient `index` of local member `member` (from 0, in the order of `Communicator::devices`) is complete
  /// behind what the calling thread's current stream of its device has queued. Once for each in an
  /// iteration. In a `no_sync`: as often as the gradient is added to; starts nothing.
  void ready(int member, int index);

  /// Ends the iteration: the calling thread's current streams of all local members' devices wait for all
  /// all-reduces. Returns without waiting. A gradient that was reported in a `no_sync` of the iteration and
  /// not since counts as reported now: behind its reports there, and behind what the current stream has
  /// queued. Throws Error(invalid_argument) if others have not been reported (unless
  /// `UnusedGradients::zero`), naming some: they may still be reported, and this be called again; meanwhile
  /// other ranks wait as for one that is late. In a `no_sync`: does nothing.
  void synchronize();

  /// For the guard's lifetime nothing is reduced: backward passes only add to the gradients of their own
  /// device, which is theirs to do, and report them. They are part of the iteration that the first
  /// `synchronize` after it ends, which reduces the sums, with another backward pass before it or without.
  /// All ranks do the same. Guards nest. Throws Error(invalid_argument) if gradients have been reported in
  /// the iteration outside of a `no_sync`.
  ///
  ///     {
  ///       const tutti::NoSyncGuard no_sync = buckets.no_sync();
  ///       for (int part = 0; part + 1 < parts; ++part) backward(part);
  ///     }
  ///     backward(last_part);
  ///     buckets.synchronize();
  [[nodiscard]] NoSyncGuard no_sync();

  /// Which gradients are in which bucket, in the order in which buckets are started.
  [[nodiscard]] const std::vector<std::vector<int>>& buckets() const noexcept;
  /// How many buckets of this iteration have been started.
  [[nodiscard]] int started() const;
  /// The communication streams, one per local member.
  [[nodiscard]] const std::vector<Stream>& streams() const noexcept;

 private:
  friend class NoSyncGuard;
  class Impl;
  std::unique_ptr<Impl> impl_;
};

/// See `GradientBuckets::no_sync`. Does not outlive the buckets; may end on another thread.
class TUTTI_EXPORT NoSyncGuard {
 public:
  explicit NoSyncGuard(GradientBuckets& buckets);
  NoSyncGuard(const NoSyncGuard&) = delete;
  NoSyncGuard& operator=(const NoSyncGuard&) = delete;
  ~NoSyncGuard();

 private:
  GradientBuckets& buckets_;
};

}  // namespace tutti
