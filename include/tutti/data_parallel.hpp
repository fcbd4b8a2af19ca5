// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator.hpp"
#include "tutti/export.hpp"
#include "tutti/gradient_clip.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <vector>

/// Building blocks of trainers that hold the same parameters on every device.
namespace tutti {

/// Makes replicas of the root's `parameters` on the devices of the local members: result[i][t] has the values
/// of the root's parameters[t], on the device of local member i. The root's own replica is `parameters`
/// themselves; all others are new tensors.
///
/// This is a collective: all ranks call it with the same root, and `parameters` of the same sizes and element
/// types. On the process that has the root, they are on the root's device. On other processes they only give
/// sizes and types: their values are not read, and they may be on any device or on the host. No tensor shares
/// memory with another of its list: a parameter that is used in several places (tied weights) is given once.
///
/// If the ranks' numbers, sizes, types or roots differ, or one rank's arguments are invalid, all ranks throw
/// Error(invalid_argument) before anything moves. For this comparison, the host waits until all ranks have
/// made the call. If the call is being captured, only what a broadcast compares is compared.
///
/// Otherwise, stream order, thread safety, errors and cost are those of `Communicator::broadcast_coalesced`:
/// one operation on the current streams of the members' devices, or on `streams`.
[[nodiscard]] TUTTI_EXPORT std::vector<std::vector<Tensor>> replicate(Communicator& communicator,
                                                                      TensorList parameters, int root = 0,
                                                                      StreamList streams = {});
/// Overwrites parameters in place: parameters[i][t], of local member i, gets the values of the root's tensor
/// t.
TUTTI_EXPORT void replicate(Communicator& communicator, TensorLists parameters, int root = 0,
                            StreamList streams = {});
/// Does the same for lists in braces: `{list}` are the parameters of the one local member.
inline void replicate(Communicator& communicator, std::initializer_list<std::vector<Tensor>> parameters,
                      int root = 0, StreamList streams = {}) {
  replicate(communicator, TensorLists(parameters), root, streams);
}

/// The meaning of a gradient that was not reported in an iteration, not even in its `no_sync`.
enum class UnusedGradients : std::uint8_t {
  error,  ///< a mistake: `GradientBuckets::synchronize` throws, and names it
  zero,   ///< the parameter was not used there: `GradientBuckets::synchronize` sets the gradient to zero
};

/// Options of `GradientBuckets`; the same on all ranks.
struct GradientBucketOptions {
  /// Minimum size of a bucket, which takes gradients until it has so many bytes or more. More than 0.
  std::size_t bucket_bytes = std::size_t{25} << 20U;
  /// Minimum size of the first bucket of each element type, so that the first all-reduce starts early. 0:
  /// `bucket_bytes`.
  std::size_t first_bucket_bytes = std::size_t{1} << 20U;
  /// Operation that combines all members' gradients.
  ReduceOp operation = ReduceOp::avg;
  UnusedGradients unused = UnusedGradients::error;
};

class NoSyncGuard;

/// All-reduces gradients while the backward pass still computes others.
///
/// # Buckets
/// Gradients are put into buckets in reverse order, as the backward pass produces them, those of each element
/// type into buckets of their own. A bucket is one `Communicator::all_reduce_coalesced` in place, of the
/// tensors as they are: nothing is flattened, and only that call copies some tensors (strided gradients, and
/// large ones that are not aligned to 16 bytes or not in the library's memory). It starts as soon as every
/// local member has reported all of its gradients, and all buckets before it have been started: so all ranks
/// start the same buckets in the same order, in whatever order gradients become ready.
///
/// # An iteration
/// Call `ready` for each gradient of each local member once its last writer has been queued, then
/// `synchronize`; work queued afterwards sees the combined gradients of all members. The next iteration
/// begins there. Gradients stay in place: an iteration overwrites them or adds to them.
///
/// # Stream order
/// Every local member's device has a communication stream, more urgent than others, on which its all-reduces
/// run. An all-reduce waits for the work that the current streams had queued when its gradients were
/// reported, and for the communicator's call before it, so that it overlaps with the rest of the backward
/// pass. If that previous call is the program's own, on other streams, the first all-reduce of an iteration
/// also waits for all work queued on these streams by then. If one thread drives several devices in turn,
/// that is most of the backward pass; a separate communicator for the buckets (`Communicator::split`) avoids
/// it. `synchronize` makes the current streams wait for all all-reduces. No call waits on the host, unless
/// the communicator's does. Between a `ready` outside of a `no_sync` and `synchronize` nothing else may read
/// or write that gradient.
///
/// # Graphs
/// A whole iteration, with its `no_sync` and `synchronize`, may be captured by all ranks alike. All its
/// streams must be part of the capture, as with `Graph::capture` of several streams. Launches of the graph
/// report no gradients.
///
/// # The communicator
/// The communicator must outlive this object and must not be moved meanwhile. Make no other calls with it
/// during an iteration, because their place among the all-reduces would depend on when gradients become
/// ready, and all ranks have to make all calls in one order. Use another communicator for other calls
/// (`Communicator::split`).
///
/// # Thread safety
/// Several threads may call `ready` at the same time, for instance one per device. No `ready` of an iteration
/// may be under way when its `synchronize` is called.
///
/// # Errors
/// Bad arguments throw Error(invalid_argument), and change and queue nothing. If there are other ranks, the
/// constructor is a call of the communicator: the host waits until all ranks have made it and compares their
/// arguments, bad ones throw on all ranks, and capturing it throws Error(unsupported). Exceptions of the
/// communicator are passed on. The bucket then has not been started, and the next `ready` or `synchronize`
/// tries again; if the communicator has ended, they throw the same error again. To abandon an iteration that
/// cannot be finished (the program's own backward pass has thrown), destroy the object and, if there are
/// other ranks, the communicator, whose `abort` tells them.
///
/// # Cost
/// Each `ready` takes an event. No device memory is used except what the communicator's calls need.
class TUTTI_EXPORT GradientBuckets {
 public:
  /// Takes the gradients: gradients[i] are those of local member i, on its device, in the order of the
  /// forward pass. Number, order, sizes and types are equal on all members and ranks. They are kept alive. No
  /// tensor shares memory with another: the gradient of a parameter that is used in several places (tied
  /// weights) is given once.
  GradientBuckets(Communicator& communicator, TensorLists gradients,
                  const GradientBucketOptions& options = {});
  /// Does the same for a process with one local member.
  GradientBuckets(Communicator& communicator, TensorList gradients,
                  const GradientBucketOptions& options = {});
  /// Does the same for lists in braces: `{list}` are the gradients of the one local member.
  GradientBuckets(Communicator& communicator, std::initializer_list<std::vector<Tensor>> gradients,
                  const GradientBucketOptions& options = {})
      : GradientBuckets(communicator, TensorLists(gradients), options) {}
  GradientBuckets(const GradientBuckets&) = delete;
  GradientBuckets& operator=(const GradientBuckets&) = delete;
  /// Does not wait. All-reduces that have been started still complete, unless the communicator is destroyed
  /// before.
  ~GradientBuckets();

  /// Reports that gradient `index` of local member `member` (from 0, in the order of `Communicator::devices`)
  /// is complete after the work queued so far on the calling thread's current stream of its device. Call it
  /// once for each gradient in an iteration. In a `no_sync`, call it each time the gradient is added to; it
  /// starts nothing then.
  void ready(int member, int index);

  /// Ends the iteration: makes the calling thread's current streams of all local members' devices wait for
  /// all all-reduces, and returns without waiting. A gradient that was reported only in a `no_sync` of the
  /// iteration counts as reported now: it is complete after its reports there and after the current stream's
  /// work. Throws Error(invalid_argument) if others have not been reported (unless `UnusedGradients::zero`),
  /// naming some. Report them and call it again; meanwhile other ranks wait as for a late one. In a
  /// `no_sync`, it does nothing.
  void synchronize();

  /// Clips the combined gradients by their norm (see `GradientClip`): call it between `synchronize` and the
  /// next `ready`, on all ranks alike. Returns the norm before clipping, a float64 scalar on the device of
  /// local member 0, which is the same on all members.
  ///
  /// Runs on the calling thread's current streams of the local members' devices, and waits on the host only
  /// if `clip.error_if_nonfinite`. Every member squares 1 / `member_count` of the elements; an all_gather of
  /// 8 bytes per member follows, unless there is one member; then every member scales its gradients, which
  /// takes no memory traffic if the norm is not too large. Gradients that are not contiguous are copied.
  ///
  /// Throws Error(invalid_argument) and queues nothing: if `clip.max_norm` is negative or NaN; if gradients
  /// have been reported in the iteration, or a `no_sync` is open; if a gradient has an integer or bool type.
  /// Throws Error(unsupported) if `clip.error_if_nonfinite` is set in a capture.
  Tensor clip_norm(const GradientClip& clip);

  /// Suspends reductions for the guard's lifetime: backward passes then only add to the gradients of their
  /// own device and report them. They belong to the iteration that ends with the first `synchronize` after
  /// the guard, which reduces the sums, whether or not another backward pass comes before it. All ranks do
  /// the same. Guards nest. Throws Error(invalid_argument) if gradients have been reported in the iteration
  /// outside of a `no_sync`.
  ///
  ///     {
  ///       const tutti::NoSyncGuard no_sync = buckets.no_sync();
  ///       for (int part = 0; part + 1 < parts; ++part) backward(part);
  ///     }
  ///     backward(last_part);
  ///     buckets.synchronize();
  [[nodiscard]] NoSyncGuard no_sync();

  /// Goes on with another communicator, for instance that of the ranks that are left
  /// (`Communicator::shrink`), with the same gradients, options, streams and guards. The one before may be
  /// gone. An iteration that has begun is abandoned: nothing counts as reported, and what the gradients hold
  /// is undefined if some of its all-reduces had been started. Of the new communicator, this is the
  /// constructor's call, with its checks and errors; if it throws, nothing has changed. No other call may be
  /// under way. References that `buckets` and `streams` have returned become invalid.
  void rescale(Communicator& communicator);

  /// Lists the gradients of each bucket, in the order in which buckets are started.
  [[nodiscard]] const std::vector<std::vector<int>>& buckets() const noexcept;
  /// Returns how many buckets of this iteration have been started.
  [[nodiscard]] int started() const;
  /// Returns the communication streams, one per local member.
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
