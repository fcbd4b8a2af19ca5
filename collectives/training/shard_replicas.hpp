// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/communicator.hpp"
#include "tutti/event.hpp"
#include "tutti/sharded_optimizer.hpp"
#include "tutti/tensor.hpp"

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

namespace tutti::collectives {

/// Keeps what all shards were at the end of a step: each member has a copy of its own, and one of the shard
/// of the member in its place on the rank before. So the shards of lost ranks can be put together again,
/// unless two ranks in a row are lost.
///
/// A copy is *sure* once a later call has completed in which every rank takes part: then all have theirs. A
/// rank overwrites a copy only when it is sure of the next one. So the newest copy of which any rank is sure
/// is still there on all that are left.
class ShardReplicas {
 public:
  /// Says at the end of which step copies were made. Steps are counted anew with each communicator,
  /// and when all copies have been dropped.
  struct Age {
    std::int64_t communicator = -1;  ///< counts these times
    std::int64_t step = -1;
    friend auto operator<=>(const Age&, const Age&) = default;
  };
  /// The tensors of a shard: parameters, then state.
  using Tensors = std::vector<Tensor>;
  /// The way in which the flat buffers were cut when copies were made.
  struct Cut {
    std::int64_t members = 0;
    std::int64_t first = 0;  ///< the first local member
    std::int64_t shard_elements = 0;
  };
  struct Copies {
    Age age;
    Cut cut;
    std::vector<Tensors> own;     ///< by local member
    std::vector<Tensors> others;  ///< by local member: of the member in its place on the rank before
  };

  /// Holds the state that the ranks of a communicator have put together.
  struct Start {
    std::int64_t communicator = 0;  ///< the number of this one
    std::optional<Age> age;         ///< of the copies; none if there were none, or some were lost
    std::vector<Tensors> full;      ///< by local member: whole flat buffers, as they were cut before
  };
  /// Puts the newest sure copies together on all members. The same on all ranks. Collective. `held`: this
  /// rank's; nullptr if it has none. `like`: the local shards.
  [[nodiscard]] static Start restore(Communicator& communicator, const ShardReplicas* held,
                                     const std::vector<ParameterShard>& like);

  /// Makes replicas of the shards of an optimiser, which must outlive them. If the shards have been restored,
  /// it begins with copies of them, and keeps those of `before`, which this rank may have, until its own are
  /// sure.
  ShardReplicas(Communicator& communicator, const std::vector<ParameterShard>& shards, const Start& start,
                const ShardReplicas* before);
  ShardReplicas(const ShardReplicas&) = delete;
  ShardReplicas& operator=(const ShardReplicas&) = delete;
  ~ShardReplicas() = default;

  /// Finds out, without waiting, whether the newest copies are sure.
  void begin_step();
  /// Makes copies on the current streams, between the update of a step and the call that ends it. The host
  /// waits until the copies before them are sure.
  void save(std::int64_t step);
  /// Notes that the call that ends a step has been made.
  void note_end_of_step();
  /// Drops all copies, as the shards have been given other contents.
  void forget();

 private:
  [[nodiscard]] std::vector<const Copies*> all() const;
  /// Returns true if the step of the newest copies has been made, and this rank is not sure of them yet.
  [[nodiscard]] bool is_awaited() const;
  void become_sure();

  [[nodiscard]] bool has_others() const { return communicator_.rank_count() > 1; }

  Communicator& communicator_;
  const std::vector<ParameterShard>& shards_;
  std::int64_t number_;            ///< of the communicator
  std::vector<Copies> inherited_;  ///< until a newer one is sure
  std::array<Copies, 2> copies_;
  std::size_t newest_ = 0;   ///< of `copies_`
  std::vector<Event> ends_;  ///< of the step of the newest copies, by local member
  bool is_marked_ = false;   ///< they have been recorded
  Age sure_;
};

}  // namespace tutti::collectives
