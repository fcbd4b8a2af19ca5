// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator.hpp"
#include "tutti/dtype.hpp"
#include "tutti/export.hpp"
#include "tutti/gradient_clip.hpp"
#include "tutti/reduce_op.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

/// Divides the work and memory of an optimiser's step among the members.
namespace tutti {

/// Options of a `ShardedOptimizer`; the same on all ranks.
struct ShardedOptimizerOptions {
  /// Operation that combines all members' gradients.
  ReduceOp operation = ReduceOp::avg;
  std::optional<DType> gradient_dtype = {};  ///< empty: that of the parameters
  /// Number of state tensors per shard: 1 for momentum, 2 for Adam's moments.
  std::size_t state_count = 0;
  std::optional<DType> state_dtype = {};  ///< empty: that of the parameters
  /// After each so many steps, the rank that follows keeps a replica of each shard (see *Replicas*). 0:
  /// never.
  std::int64_t steps_per_replica = 0;
};

/// One member's part of the flat buffers: tensors of equal length on its device that correspond element by
/// element.
struct ParameterShard {
  int member = 0;          ///< the local member, from 0
  std::int64_t begin = 0;  ///< start of the part within the flat buffer, in elements
  Tensor parameters;       ///< to be updated in place
  Tensor gradients;        ///< those of all members, combined
  std::vector<Tensor>
      state;  ///< the optimiser's own, initially zero; the library does not touch it afterwards
};

/// Updates each parameter on one member only and distributes the result. The optimiser's state on each
/// device, and the time of the update, shrink to 1 / `member_count`.
///
/// # Buffers
/// Every local member has two flat buffers on its device, one of parameters and one of gradients, of which
/// `parameters` and `gradients` are views with the shapes that the parameters had. Each begins at a multiple
/// of 16 elements of the buffer, and shards, which are the buffer's equal parts, are multiples of 16 elements
/// too. The gaps are padding: initially zero in all buffers, and summed and updated like parameters. An
/// update that reads whole shards (for a norm) sees the padding.
///
/// # A step
/// `step` makes an in-place `reduce_scatter` of the gradients, which gives every shard its part of them,
/// calls the program's update for each local shard, and makes an in-place `all_gather` of the parameters. The
/// results are those of a member that all-reduces all gradients and updates everything, if the update goes
/// element by element: bit for bit, except where NCCL carries the `reduce_scatter` or that all-reduce (on
/// GPUs, unless the communicator's `determinism` is bitwise), which may add in another order. After a step,
/// the gradients outside a member's own shard hold that member's own values.
///
/// # Replicas
/// With `options.steps_per_replica`, each member keeps copies of its own shard, parameters and state, and of
/// the shard of the member in its place on the rank before, as they were after the last such step and the one
/// before that. After a loss, `rescale` goes on from the newest of which all ranks are known to have had
/// theirs, and a new rank gets it by its constructor, made at the same time: so nothing is read from disk,
/// and `steps` tells where training goes on. Only if two ranks in a row are lost at the same time, or ranks
/// before there was a replica, is a checkpoint needed.
///
/// All ranks have the same number of local members. Steps with replicas cannot be captured:
/// Error(unsupported). In such a step, the host waits for the step of the replica before. Cost: each member
/// sends its shard, parameters and state, once each time; memory of 4 / `member_count` of a buffer for
/// parameters and for each tensor of state; and in `rescale`, for a moment, of a whole buffer for each.
///
/// # Stream order
/// A step runs on the calling thread's current streams of the local members' devices, where the update queues
/// its work too. It returns without waiting unless the communicator or the update waits. It may be captured
/// into a graph if the update's work may be.
///
/// # The communicator
/// The communicator must outlive this object and must not be moved meanwhile. All ranks make their steps and
/// other calls in the same order. An update may call the communicator too, for instance for the norm of all
/// gradients. Such a call is made once per local shard, each time with a tensor for every local member. So
/// all ranks need the same number of local members, or make it only for their first shard (`shard.member` is
/// 0), when all gradients are ready.
///
/// # Thread safety
/// One thread at a time.
///
/// # Errors
/// Bad arguments throw Error(invalid_argument) and queue nothing. If there are other ranks, the constructor
/// is a call of the communicator: the host waits until all ranks have made it and compares their arguments,
/// bad ones throw on all ranks, and capturing it throws Error(unsupported). Exceptions of the communicator
/// and of the update are passed on. If the update has thrown, this rank has not made its all_gather, so other
/// ranks wait for it as for a late one; its shards may be updated, and their gradients are already sums.
/// Every further step throws Error(invalid_argument). Destroy the object and, if there are other ranks, tell
/// them by the communicator's `abort`.
///
/// # Cost
/// Each member sends and receives as much as in an all-reduce of the parameters' bytes. Memory for each
/// member: the two buffers, and 1 / `member_count` of a buffer for each tensor of state.
class TUTTI_EXPORT ShardedOptimizer {
 public:
  using Update = std::function<void(const ParameterShard& shard)>;

  /// Takes the parameters: parameters[i] are those of local member i, on its device, all of one element type.
  /// Number, order, sizes, type and values are equal on all members and ranks (see `replicate`). They are
  /// copied into the buffers on the current streams; from then on, the views are the parameters. No tensor
  /// shares memory with another: a parameter that is used in several places (tied weights) is given once and
  /// has one view and one gradient, to which all these places add.
  ShardedOptimizer(Communicator& communicator, TensorLists parameters,
                   const ShardedOptimizerOptions& options = {});
  /// Does the same for a process with one local member.
  ShardedOptimizer(Communicator& communicator, TensorList parameters,
                   const ShardedOptimizerOptions& options = {});
  /// Does the same for lists in braces: `{list}` are the parameters of the one local member.
  ShardedOptimizer(Communicator& communicator, std::initializer_list<std::vector<Tensor>> parameters,
                   const ShardedOptimizerOptions& options = {})
      : ShardedOptimizer(communicator, TensorLists(parameters), options) {}
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;
  /// Does not wait. Steps that have been started still complete, unless the communicator is destroyed before.
  ~ShardedOptimizer();

  /// Returns views of the parameters of a local member (from 0), in the order in which they were given.
  [[nodiscard]] const std::vector<Tensor>& parameters(int member) const;
  /// Returns views for the backward pass to write gradients into; initially zero.
  [[nodiscard]] const std::vector<Tensor>& gradients(int member) const;
  /// Return a member's whole buffer, padding included: `shards().front().parameters.numel()` times
  /// `member_count` elements.
  [[nodiscard]] const Tensor& flat_parameters(int member) const;
  [[nodiscard]] const Tensor& flat_gradients(int member) const;
  /// Returns the shards of the local members, for instance to save their state.
  [[nodiscard]] const std::vector<ParameterShard>& shards() const noexcept;

  /// Calls `update` once for each local shard, with its device current.
  void step(const Update& update);
  /// Does the same, but first clips the combined gradients by their norm (see `GradientClip`). Returns the
  /// norm before clipping, a float64 scalar on the device of local member 0, which is the same on all
  /// members. Padding counts with what it holds, which is 0 unless the program has written there.
  ///
  /// Every member reads its shard of the gradients once more, and writes it if the norm is too large; an
  /// all_gather of 8 bytes per member tells the norm to all. If `clip.error_if_nonfinite` and the norm is not
  /// finite, all ranks throw Error(invalid_argument) before any update, and the optimiser may go on with
  /// other gradients. Throws Error(invalid_argument), and queues nothing, if `clip.max_norm` is negative or
  /// NaN, or the gradients have an integer or bool type, and Error(unsupported) for `error_if_nonfinite` in a
  /// capture.
  Tensor step(const Update& update, const GradientClip& clip);

  /// Saves the parameters and the state of all shards to one file. All ranks call it; the rank of member 0
  /// writes the file, at its `path`, with its `extra`: up to 4096 bytes of the program's own, such as the
  /// number of the step.
  ///
  /// The file does not depend on the number of members: any number of them can load it, and members whose
  /// shards hold the same numbers write the same bytes. It is written beside `path` and takes its place when
  /// it is complete and on the disk; until then, and if anything fails, an older file stays as it was. (See
  /// docs/environment.md, Files. What cannot be replaced by a new file is refused.)
  ///
  /// Runs on the current streams, for which the rank of member 0 waits; memory: 32 MiB there, pinned and on
  /// the device of member 0, whatever the size. If a rank cannot, all throw the same Error: invalid_argument
  /// with the path and the system's reason. Throws Error(unsupported) in a capture.
  void save(const std::string& path, std::string_view extra = {});
  /// Loads what `save` has written: the parameters, on all members, and the state. All ranks call it; the
  /// rank of member 0 reads the file at its `path`. Returns the `extra` that was saved, on all ranks.
  ///
  /// The file is read twice. First it is checked: that it is a file of `save`, of this version, undamaged (a
  /// checksum covers it) and complete, and that element types, number of state tensors and sizes of the
  /// parameters are those of this optimiser. If not, all ranks throw Error(invalid_argument) which names the
  /// file, what was found and what is expected, and nothing has changed. Cost and other errors are those of
  /// `save`.
  [[nodiscard]] std::string load(const std::string& path);
  /// Returns the number of steps that parameters and state have behind them: those made by this object, and
  /// those of a replica that it has gone on from. `load`, and a `rescale` that is not from a replica, set it
  /// to 0.
  [[nodiscard]] std::int64_t steps() const noexcept;

  /// Fills the state of a new shard, and its parameters too if they should change.
  using Restore = std::function<void(const ParameterShard& shard)>;
  /// Goes on with another communicator, for instance that of the ranks that are left
  /// (`Communicator::shrink`). The one before may be gone. Cuts the flat buffers anew, as the constructor
  /// does, from the parameters as each member has them: their positions in the buffer stay as they were,
  /// only shards and the padding at the end depend on the number of members. The state of each new shard is
  /// zero; then `restore`, if given, is called for each local shard, as an update is by `step`. Or, if
  /// replicas are kept and none is lost that is needed, parameters and state are those of a replica, and
  /// `restore` is not called. Returns whether that is so, the same on all ranks.
  ///
  /// After a loss, the parameters are outputs of a step that may have been under way, and the state of the
  /// lost shards is gone with their rank. So a program loads a checkpoint: by `load` afterwards, or one of
  /// its own, the parameters before it calls this, and the state in `restore`, by `shard.begin`.
  ///
  /// Of the new communicator, this is the constructor's call, with its checks and errors. If it or `restore`
  /// throws, nothing has changed here. Views, buffers and shards that were returned before keep their memory,
  /// and are no longer this object's: ask for them again.
  bool rescale(Communicator& communicator, const Restore& restore = nullptr);
  /// Sets the gradients of all local members to zero, on the current streams.
  void zero_gradients();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace tutti
