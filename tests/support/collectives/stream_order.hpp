// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/stream.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace tutti::test {

/// Runs `body(seed)` under `count` adversarial interleavings of the virtual devices' streams and stops at the
/// first that fails, printing the seed: `TUTTI_TEST_SEED` set to it runs that one first. On GPUs, whose order
/// cannot be chosen, the body runs a few times.
void for_each_interleaving(int count, const std::function<void(std::uint64_t)>& body);

/// Queues work that takes a while on `stream`, so that later work is delayed.
void keep_busy(const Stream& stream);

/// Makes a pooled stream current on every device for the calling thread, for the scope's lifetime.
class PooledStreams {
 public:
  PooledStreams();
  PooledStreams(const PooledStreams&) = delete;
  PooledStreams& operator=(const PooledStreams&) = delete;
  ~PooledStreams();

 private:
  std::vector<Stream> previous_;
};

}  // namespace tutti::test
