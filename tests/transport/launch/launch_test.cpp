// SPDX-License-Identifier: Apache-2.0
#include "support/errors.hpp"
#include "support/machines/machines.hpp"
#include "support/stream_gate.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/collectives.hpp"
#include "tutti/stream.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <chrono>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// What a launch leaves behind on streams and in memory.
namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::InjectedFault;
using test::StreamGate;
using virtual_devices::Operation;

constexpr std::int64_t mebi = std::int64_t{1} << 20U;

class Launch : public testing::Test {
 protected:
  void SetUp() override { test::boot("island", 4, std::size_t{1} << 29U); }
};

/// What was queued before a call failed still runs; the memory it writes to must not have become another's.
TEST_F(Launch, ThatFailsHalfWayKeepsItsMemoryUntilItsWorkIsDone) {
  const Tensor source = full({4 * mebi}, 5, {.dtype = DType::uint8, .device = 0});
  synchronize(0);
  for (const auto& warm : {broadcast(source, {1, 2, 3})}) synchronize(warm[0].device().index());
  for (std::uint64_t skip = 0; skip < 3; ++skip) {
    const Stream stream(0);
    StreamGate gate(stream);
    {
      const StreamGuard current(stream);
      const InjectedFault fault({.operation = Operation::kernel, .skip = skip});
      EXPECT_TRUE(test::refuses(
          [&] {
            static_cast<void>(broadcast(source, {1, 2, 3}));
          },
          ErrorCode::device_failure, {"injected"}));
    }
    std::vector<Tensor> others;
    for (int device = 1; device <= 3; ++device) {
      const Stream stream_of_others(device);  // the current one may wait behind the gate
      const StreamGuard current(stream_of_others);
      others.push_back(full({4 * mebi}, 9, {.dtype = DType::uint8, .device = device}));
      stream_of_others.synchronize();
    }
    gate.open();
    for (int device = 0; device <= 3; ++device) synchronize(device);
    for (const Tensor& other : others) {
      EXPECT_EQ(std::ranges::count(other.to_vector<std::uint8_t>(), 9), 4 * mebi)
          << "failing kernel " << skip;
    }
  }
}

/// A side stream belongs to one user's stream: what others wait for does not hold it up.
TEST_F(Launch, BesideOneStreamDoesNotWaitForWorkBesideAnother) {
  const Tensor whole = zeros({16 * mebi}, {.dtype = DType::float32, .device = 0});
  const auto make_out = [&] {
    std::vector<Tensor> out;
    for (int device = 0; device < 4; ++device) {
      out.push_back(zeros({4 * mebi}, {.dtype = DType::float32, .device = device}));
    }
    return out;
  };
  const std::vector<Tensor> held_out = make_out();
  const std::vector<Tensor> free_out = make_out();
  for (int device = 0; device < 4; ++device) synchronize(device);
  const auto scatter_on_new_streams = [&](const std::vector<Tensor>& out, const Stream& root) {
    const StreamGuard current(root);
    scatter(whole, out, 0, {root, Stream(1), Stream(2), Stream(3)});
  };
  const Stream held(0);
  const Stream free(0);
  StreamGate gate(held);
  scatter_on_new_streams(held_out, held);
  scatter_on_new_streams(free_out, free);
  const auto deadline = std::chrono::steady_clock::now() + 20s;
  while (!free.query() && std::chrono::steady_clock::now() < deadline) std::this_thread::sleep_for(1ms);
  EXPECT_TRUE(free.query());
  EXPECT_FALSE(held.query());
  gate.open();
}

TEST_F(Launch, WorksAgainAfterAStreamBesideCouldNotBeMade) {
  const Tensor whole = full({4 * mebi}, 3, {.dtype = DType::float32, .device = 0});
  std::vector<Tensor> out;
  for (int device = 0; device < 2; ++device)
    out.push_back(zeros({2 * mebi}, {.dtype = DType::float32, .device = device}));
  static_cast<void>(scatter(whole.narrow(0, 0, 1024), {0, 1}));  // which needs no stream beside
  for (const int device : {0, 1}) synchronize(device);
  {
    const InjectedFault fault({.operation = Operation::create_stream});
    EXPECT_TRUE(test::refuses([&] { scatter(whole, out, 0); }, ErrorCode::device_failure, {"injected"}));
  }
  scatter(whole, out, 0);
  for (const Tensor& part : out) {
    EXPECT_EQ(std::ranges::count(part.to_vector<float>(), 3.0F), 2 * mebi);
  }
}

/// A pair that could not be tested for lack of memory is asked about again.
TEST_F(Launch, PlansMadeWithoutMemoryForTheTestAreMadeAgain) {
  const Tensor source = full({1000}, 3, {.dtype = DType::float32, .device = 0});
  const Tensor out = zeros({1000}, {.dtype = DType::float32, .device = 1});
  synchronize(0);
  synchronize(1);
  {
    test::drop_caches();
    const InjectedFault shortage({.operation = Operation::allocate_device, .count = test::forever});
    broadcast(source, {out});
    EXPECT_EQ(last_plan().transport, "staged");
  }
  broadcast(source, {out});
  EXPECT_EQ(last_plan().transport, "p2p");
  EXPECT_EQ(std::ranges::count(out.to_vector<float>(), 3.0F), 1000);
}

}  // namespace
}  // namespace tutti
