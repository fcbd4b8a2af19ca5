// SPDX-License-Identifier: Apache-2.0
#include "support/ranks.hpp"
#include "support/values/test_tensor.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/tutti.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// Calls of many communicators wait on the same device at once.
namespace tutti::test {
namespace {

/// Kernels of large calls would fill a GPU if all of them were as large as they may be.
TEST(ManyCommunicators, TheirCallsMayWaitForOneAnotherInAnyOrder) {
  expect_all_right(2, [](Exchange& exchange) {
    if (device_count() < 2) return;
    constexpr int count = 6;
    constexpr std::int64_t elements = 1 << 20;
    const int rank = exchange.rank();
    std::vector<Communicator> communicators;
    std::vector<Stream> streams;
    std::vector<Tensor> mine;
    std::vector<Tensor> all;
    for (int i = 0; i < count; ++i) {
      communicators.emplace_back(exchange, CommunicatorOptions{.devices = {Device(rank)},
                                                               .timeout = std::chrono::seconds(20),
                                                               .transport = TransportKind::p2p});
      streams.emplace_back(rank);
      mine.push_back(full({elements}, 2 * i + rank, {.dtype = DType::int32, .device = rank}));
      all.push_back(zeros({2 * elements}, {.dtype = DType::int32, .device = rank}));
    }
    const auto call = [&](int i) {
      const auto at = static_cast<std::size_t>(i);
      communicators[at].all_gather({mine[at]}, {all[at]}, {streams[at]});
    };
    synchronize(rank);  // they have been filled on another stream
    // The first ones load kernels and have memory opened.
    for (int i = 0; i < count; ++i) call(i);
    synchronize(rank);
    for (const Tensor& tensor : all) tensor.fill_(-1);
    synchronize(rank);
    transport::team::synchronize(exchange);
    for (int i = 0; i < count; ++i) call(rank == 0 ? i : count - 1 - i);
    for (const Stream& stream : streams) stream.synchronize();
    for (int i = 0; i < count; ++i) {
      const Tensor& gathered = all[static_cast<std::size_t>(i)];
      EXPECT_TRUE(holds(gathered.narrow(0, 0, elements), 2 * i));
      EXPECT_TRUE(holds(gathered.narrow(0, elements, elements), 2 * i + 1));
    }
  });
}

}  // namespace
}  // namespace tutti::test
