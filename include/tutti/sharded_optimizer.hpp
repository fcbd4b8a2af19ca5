// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator.hpp"
#include "tutti/dtype.hpp"
#include "tutti/export.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <vector>

/// An optimiser's step whose work and memory are cut among the members.
namespace tutti {

/// What a `ShardedOptimizer` is made with; the same on all ranks.
struct ShardedOptimizerOptions {
  /// What all members' gradients are combined by.
  ReduceOp operation = ReduceOp::avg;
  std::optional<DType> gradient_dtype = {};  ///< nothing: that of the parameters
  /// How many tensors of state each shard has: 1 for momentum, 2 for Adam's moments.
  std::size_t state_count = 0;
  std::optional<DType> state_dtype = {};  ///< nothing: that of the parameters
};

/// One member's part of what is optimised: flat tensors of equal length on its device, element by element of
/// the same parameters.
struct ParameterShard {
  int member = 0;             ///< the local member, from 0
  std::int64_t begin = 0;     ///< of the part within the flat buffer, in elements
  Tensor parameters;          ///< to be updated in place
  Tensor gradients;           ///< those of all members, combined
  std::vector<Tensor> state;  ///< the optimiser's own, zero at first; nobody else touches it
};

/// Updates each parameter on one member alone, and tells the others: state of the optimiser takes on every
/// device only 1 / `member_count` of what it would take, and so does the update's time.
///
/// # Buffers
/// Every local member has two flat buffers on its device, one of parameters and one of gradients, of which
/// `parameters` and `gradients` are views with the shapes that the parameters had. Each begins at a multiple
/// of 16 elements of the buffer, and shards, which are the buffer's equal parts, are multiples of 16 elements
/// too. What lies between are pads: zero at first in all buffers, and summed and updated as if they were
/// parameters, but read by nobody else. An update that looks at whole shards (for a norm) sees them.
///
/// # A step
/// `step` is a `reduce_scatter` of the gradients, in place, by which every shard gets its part of them; the
/// program's update of each local shard; and an `all_gather` of the parameters, in place. The results are
/// those of a member that all-reduces all gradients and updates everything, if the update goes element by
/// element: bit for bit, except where NCCL carries the `reduce_scatter` or that all-reduce (on GPUs, unless
/// the communicator's `determinism` is bitwise), which may add in another order. Behind it, gradients hold
/// what members had, but for their own shard.
///
/// # Stream order
/// A step goes on the calling thread's current streams of the local members' devices, on which the update
/// queues its work too, and returns without waiting, unless the communicator or the update waits. It may be
/// captured into a graph, if what the update queues may be.
///
/// # The communicator
/// It outlives this object, and is not moved meanwhile. All ranks take their steps, and make their other
/// calls, in one order. An update may make calls too, such as for the norm of all gradients. They are made
/// once for each local shard, with a tensor for every local member each time; all ranks need as many local
/// members then, or make them for their first shard alone (`shard.member` is 0): all gradients are there.
///
/// # Thread safety
/// One thread at a time.
///
/// # Errors
/// Bad arguments throw Error(invalid_argument) and queue nothing. Where there are other ranks, those of the
/// constructor are refused on all of them alike: it is a call of the communicator, in which the host waits
/// until all ranks have made it, and compares what they give. Nor can it be captured then:
/// Error(unsupported). What the communicator or the update throws is passed on. Where the update threw, this
/// rank has not made its all_gather, for which others wait as for one that is late, its shards may have been
/// updated, and their gradients are sums already: each further step is Error(invalid_argument). Destroy the
/// object and, where there are other ranks, have the communicator's `abort` tell them.
///
/// # Cost
/// Each member sends and receives as much as in an all-reduce of the parameters' bytes. Memory for each
/// member: the two buffers, and 1 / `member_count` of a buffer for each tensor of state.
class TUTTI_EXPORT ShardedOptimizer {
 public:
  using Update = std::function<void(const ParameterShard& shard)>;

  /// parameters[i] are those of local member i, on its device, all of one element type and alike on all
  /// members, ranks included, in number, order, sizes and type; their values, which are equal too (see
  /// `replicate`), are copied into the buffers on the current streams. From there on the views are the
  /// parameters. None shares memory with another: one that is used in several places (tied weights) is given
  /// once, has one view, and one gradient, to which all these places add.
  ShardedOptimizer(Communicator& communicator, TensorLists parameters,
                   const ShardedOptimizerOptions& options = {});
  /// The same for a process with one local member, whose parameters these are.
  ShardedOptimizer(Communicator& communicator, TensorList parameters,
                   const ShardedOptimizerOptions& options = {});
  /// The same for lists in braces: `{list}` are the parameters of the one local member.
  ShardedOptimizer(Communicator& communicator, std::initializer_list<std::vector<Tensor>> parameters,
                   const ShardedOptimizerOptions& options = {})
      : ShardedOptimizer(communicator, TensorLists(parameters), options) {}
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;
  /// Does not wait. What has been started still completes, if the communicator is not destroyed before.
  ~ShardedOptimizer();

  /// Views of the parameters of a local member (from 0), in the order in which they were given.
  [[nodiscard]] const std::vector<Tensor>& parameters(int member) const;
  /// Views for the backward pass to write gradients into; zero at first.
  [[nodiscard]] const std::vector<Tensor>& gradients(int member) const;
  /// The whole buffers, pads included: of `shards().front().parameters.numel()` elements for each member.
  [[nodiscard]] const Tensor& flat_parameters(int member) const;
  [[nodiscard]] const Tensor& flat_gradients(int member) const;
  /// Those of the local members, for instance to save their state.
  [[nodiscard]] const std::vector<ParameterShard>& shards() const noexcept;

  /// Calls `update` once for each local shard, with its device current.
  void step(const Update& update);
  /// Sets the gradients of all local members to zero, on the current streams.
  void zero_gradients();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti
