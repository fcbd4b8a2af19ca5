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

class Communicator;

/// Options of calls of a communicator that are bound.
struct PersistentOptions {
  /// Records a graph for each local member, in place of one graph that spans their devices. Then a launch on
  /// streams of all members (`PersistentCollective::launch(StreamList)`) does not make one device wait for
  /// another, except where the calls do. Work that the function does besides the calls must not order
  /// streams of different devices, as copies between them do. Is ignored where a process has one local
  /// member, between hosts, and where one thread cannot launch on several devices in turn
  /// (`CUDA_LAUNCH_BLOCKING`).
  bool graph_per_device = false;
};

/// A persistent collective, as in MPI-4: it is bound to its buffers once and launched many times. It is one
/// instantiated graph that spans the devices. `Communicator::persistent` binds calls of a communicator in the
/// same way; between hosts, each launch makes the calls anew.
///
/// Stream order differs from the eager calls, because ordering with eight streams costs more than a small
/// collective: a launch is ordered with only *one* stream, its argument. All inputs, on every device, are
/// read after the work queued on that stream before, and all outputs, on every device, are complete for work
/// queued on it later. Order other streams that touch the buffers by `Stream::wait_stream`.
///
/// Keeps its tensors alive. Move-only; one object may be launched from one thread at a time, and its launches
/// run one after another. Destroying it does not wait: what was launched still completes.
class TUTTI_EXPORT PersistentCollective {
 public:
  class Impl;

  /// Is for the library's use; programs call the functions below.
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
  /// Enqueues one run of a communicator's calls on a stream for each local member, in their order, each of
  /// its device: each member's part of the calls runs after the work queued on its stream before, and before
  /// later work there. Without `PersistentOptions::graph_per_device` all streams wait for one another. Throws
  /// Error(invalid_argument) for other streams, and for collectives of one process.
  void launch(StreamList streams);
  /// Enqueues one run on the current stream of `home_device()`.
  void launch();
  /// Binds calls of a communicator again, after that has ended: runs the function that
  /// `Communicator::persistent` was given, whose calls must now be calls of `communicator`, on which this is
  /// a call of `persistent`. So that this works, the function refers to the variable into which the
  /// survivors' communicator has been moved (`communicator = communicator.shrink()`). The communicator before
  /// may be gone. If it throws, nothing has changed. Throws Error(invalid_argument) for other collectives,
  /// and what `Communicator::persistent` throws.
  void rebind(Communicator& communicator);
  /// Returns the root's device; if the root is host memory, the first device that takes part; if the lists
  /// hold no tensors, the device that was current when the object was made. For calls of a communicator,
  /// returns the first local member's device.
  [[nodiscard]] int home_device() const noexcept;
  /// Returns transport, algorithm and steps, as `tutti::explain` prints them; for calls of a communicator,
  /// how they have been carried out.
  [[nodiscard]] std::string explain() const;
  /// Returns transport and algorithm, for tables; of several calls, those of the last.
  [[nodiscard]] PlanSummary summary() const;

 private:
  std::unique_ptr<Impl> impl_;
};

/// Persistent forms of the collectives with given outputs. Arguments, checks and errors are the same, with
/// two differences: there is no `streams` argument, because `launch` takes the stream; and operands that a
/// call would have to copy (strided, laid out in another order or in pageable host memory) throw
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
