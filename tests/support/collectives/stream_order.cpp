// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/stream_order.hpp"

#include "support/environment.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <chrono>
#include <optional>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace tutti::test {

namespace {

/// Restores free running even when the body throws.
struct Interleaving {
  explicit Interleaving(std::uint64_t seed) { virtual_devices::set_interleaving_seed(seed); }
  Interleaving(const Interleaving&) = delete;
  Interleaving& operator=(const Interleaving&) = delete;
  ~Interleaving() {
    try {
      virtual_devices::set_interleaving_seed(std::nullopt);
    } catch (const std::exception& error) {
      ADD_FAILURE() << error.what();
    }
  }
};

}  // namespace

void for_each_interleaving(int count, const std::function<void(std::uint64_t)>& body) {
  const bool seeded = on_virtual_devices();
  const int rounds = seeded ? count : std::max(1, count / 4);
  for (int round = 0; round < rounds && !testing::Test::HasFailure(); ++round) {
    const std::uint64_t seed = test_seed() + static_cast<std::uint64_t>(round);
    SCOPED_TRACE("reproduce with TUTTI_TEST_SEED=" + std::to_string(seed));
    std::optional<Interleaving> interleaving;
    if (seeded) interleaving.emplace(seed);
    body(seed);
    synchronize_all();
  }
}

void keep_busy(const Stream& stream) {
  if (on_virtual_devices()) {
    virtual_devices::launch(stream, "keep_busy", {},
                            [](auto) { std::this_thread::sleep_for(std::chrono::microseconds(300)); });
    return;
  }
  const StreamGuard guard(stream);
  const Tensor ballast = empty({16 << 20}, {.device = stream.device()});
  for (int pass = 0; pass < 20; ++pass) ballast.fill_(pass);
}

PooledStreams::PooledStreams() {
  const DeviceGuard restore(current_device());
  for (int device = 0; device < device_count(); ++device) {
    previous_.push_back(current_stream(device));
    set_stream(Stream(device));
  }
}

PooledStreams::~PooledStreams() {
  const DeviceGuard restore(current_device());
  for (const Stream& stream : previous_) set_stream(stream);
}

}  // namespace tutti::test
