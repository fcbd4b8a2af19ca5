// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/collectives.hpp"
#include "tutti/export.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <memory>
#include <string>

namespace tutti {

/// A collective bound to its buffers once and launched many times (the MPI-4 term). It is one instantiated
/// graph that spans the devices. So are calls of a communicator, which `Communicator::persistent` binds;
/// between hosts they are made anew at each launch.
///
/// Stream order differs from the eager calls, because ordering with eight streams costs more than a small
/// collective: a launch is ordered with *one* stream, the one it is given. All inputs, on every device, are
/// read after the work queued on that stream before, and all outputs, on every device, are complete for work
/// queued on it later. Let other streams follow with `Stream::wait_stream` where they touch the buffers.
///
/// Holds the tensors it was made with. Move-only; one object may be launched from one thread at a time, and
/// its launches run one after another. Destroying it does not wait: what was launched still completes.
class TUTTI_EXPORT PersistentCollective {
 public:
  class Impl;

  /// For the library: the functions below make them.
  explicit PersistentCollective(std::unique_ptr<Impl> impl) noexcept;
  PersistentCollective(PersistentCollective&&) noexcept;
  PersistentCollective& operator=(PersistentCollective&&) noexcept;
  PersistentCollective(const PersistentCollective&) = delete;
  PersistentCollective& operator=(const PersistentCollective&) = delete;
  ~PersistentCollective();

  /// Enqueues one run on `stream`, which must be a stream of `home_device()`; throws Error(invalid_argument)
  /// otherwise. Cost on GPUs: launches of 1 KiB, one after another, take 2.6 to 3.7 µs each from end to end
  /// (2, 4 and 8x H200).
  void launch(const Stream& stream);
  /// On the current stream of `home_device()`.
  void launch();
  /// The root's device; if the root is host memory, the first device that takes part. Where lists are of no
  /// tensors, the device that was current when it was made. Of a communicator's calls, the first local
  /// member's device.
  [[nodiscard]] int home_device() const noexcept;
  /// Transport, algorithm and steps, as `tutti::explain` prints them; of a communicator's calls, what they
  /// have been made into.
  [[nodiscard]] std::string explain() const;
  /// Transport and algorithm alone, for tables; of several calls those of the last.
  [[nodiscard]] PlanSummary summary() const;

 private:
  std::unique_ptr<Impl> impl_;
};

/// The persistent forms of the collectives with given outputs. Arguments, checks and errors are theirs, but
/// for this: there is no `streams` argument, as a launch is given its stream; and operands that a call would
/// have to copy, being strided, in another order or in pageable host memory, are refused with
/// Error(invalid_argument).
[[nodiscard]] TUTTI_EXPORT PersistentCollective persistent_broadcast(const Tensor& tensor, TensorList out,
                                                                     const CollectiveOptions& options = {});
[[nodiscard]] TUTTI_EXPORT PersistentCollective persistent_broadcast_coalesced(
    TensorList tensors, TensorLists out, std::size_t buffer_size = default_buffer_size,
    const CollectiveOptions& options = {});
[[nodiscard]] TUTTI_EXPORT PersistentCollective persistent_reduce_add(TensorList inputs, const Tensor& out,
                                                                      const CollectiveOptions& options = {});
[[nodiscard]] TUTTI_EXPORT PersistentCollective persistent_reduce_add_coalesced(
    TensorLists inputs, TensorList out, std::size_t buffer_size = default_buffer_size,
    const CollectiveOptions& options = {});
[[nodiscard]] TUTTI_EXPORT PersistentCollective persistent_reduce(TensorList inputs, const Tensor& out,
                                                                  const ReduceOp& op,
                                                                  const CollectiveOptions& options = {});
[[nodiscard]] TUTTI_EXPORT PersistentCollective persistent_reduce_coalesced(
    TensorLists inputs, TensorList out, const ReduceOp& op, std::size_t buffer_size = default_buffer_size,
    const CollectiveOptions& options = {});
[[nodiscard]] TUTTI_EXPORT PersistentCollective persistent_scatter(const Tensor& tensor, TensorList out,
                                                                   int dim = 0,
                                                                   const CollectiveOptions& options = {});
[[nodiscard]] TUTTI_EXPORT PersistentCollective persistent_gather(TensorList tensors, const Tensor& out,
                                                                  int dim = 0,
                                                                  const CollectiveOptions& options = {});

}  // namespace tutti
