// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "steps.hpp"
#include "tutti/sharded_optimizer.hpp"

/// Updates of whole shards of float32.
namespace optimizers {

/// Queues the step for all elements of a shard, in place, on the current stream of its device.
void queue(const Step& step, const tutti::ParameterShard& shard);

void queue_on_virtual_device(const Step& step, const tutti::ParameterShard& shard);
/// Throws Error(unsupported) in a build without CUDA.
void queue_on_gpu(const Step& step, const tutti::ParameterShard& shard);

}  // namespace optimizers
