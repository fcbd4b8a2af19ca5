// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/stream.hpp"

#include <cstdint>
#include <functional>
#include <vector>

namespace tutti::test {

/// Runs `body(seed)` under `count` adversarial interleavings of the virtual devices' streams and stops at the
/// first that fails, printing the seed: `TUTTI_TEST_SEED` set to it runs that one first. On GPUs, whose order
/// nobody chooses, the body runs a few times as it is.
void for_each_interleaving(int count, const std::function<void(std::uint64_t)>& body);

/// Queues work that takes a while on `stream`, so that what is queued next is late.
void keep_busy(const Stream& stream);

/// For the scope's lifetime the calling thread's current stream of every device is a pooled one.
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
