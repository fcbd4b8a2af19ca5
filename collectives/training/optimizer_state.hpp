// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "collectives/training/optimizer_file.hpp"
#include "tutti/communicator.hpp"
#include "tutti/sharded_optimizer.hpp"

#include <span>
#include <string>
#include <string_view>

/// Moves the state of a `ShardedOptimizer` to and from a file, which the rank of member 0 writes and reads.
///
/// Both are calls of the communicator, in rounds: in each, every member gives or gets the next part of its
/// shard. So no rank waits for another longer than a round takes, and memory is bounded.
namespace tutti::collectives {

/// Saves the shards. Throws the same Error on all ranks if one of them cannot; then the file is as it was.
void save_state(Communicator& communicator, const OptimizerLayout& layout,
                std::span<const ParameterShard> shards, const std::string& path, std::string_view extra);

/// Fills the shards, and returns what was saved as `extra`. Throws the same Error on all ranks if one of them
/// cannot; the shards are as they were unless the file changes while it is read, or a call of the
/// communicator fails.
[[nodiscard]] std::string load_state(Communicator& communicator, const OptimizerLayout& layout,
                                     std::span<const ParameterShard> shards, const std::string& path);

}  // namespace tutti::collectives
