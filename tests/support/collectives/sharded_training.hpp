// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/values/host_array.hpp"
#include "tutti/communicator.hpp"
#include "tutti/sharded_optimizer.hpp"

#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::test {

/// Trains with momentum, by a `ShardedOptimizer` and by a model of it on the host, which updates whole
/// parameters.
class ShardedTraining {
 public:
  explicit ShardedTraining(Communicator& communicator);

  [[nodiscard]] ShardedOptimizer& optimizer() noexcept { return optimizer_; }
  /// Draws gradients from `seed`, and makes a step.
  void step(std::uint64_t seed);
  /// Halves the momentum, adds the gradient, and subtracts an eighth of the result from the parameter.
  static void update(const ParameterShard& shard);
  /// Checks that all parameters of all local members equal the model's. Waits for them.
  [[nodiscard]] testing::AssertionResult holds() const;

 private:
  [[nodiscard]] static HostArray initial(int index);
  [[nodiscard]] static std::vector<std::vector<Tensor>> make_parameters(const Communicator& communicator);

  Communicator& communicator_;
  ShardedOptimizer optimizer_;
  std::vector<HostArray> parameters_;
  std::vector<HostArray> momentum_;
};

}  // namespace tutti::test
