// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/collectives/collective_test.hpp"
#include "support/values/random.hpp"

#include <functional>
#include <string>
#include <utility>

namespace tutti::test {

/// A collective with everything about it drawn from a seed, enqueued and not yet waited for.
class RandomCall {
 public:
  /// Draws, enqueues on the current streams, and drops or overwrites the inputs at random.
  [[nodiscard]] static RandomCall start(std::uint64_t seed);
  /// Waits for the outputs and checks every byte.
  [[nodiscard]] testing::AssertionResult check() const;

 private:
  struct Output {
    Tensor tensor;  ///< on its own stream until read
    Stream stream;
    HostArray expected;
  };
  RandomCall() = default;

  std::string description_;
  std::vector<Output> outputs_;

  friend class CallMaker;
};

}  // namespace tutti::test
