// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tutti/exchange.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// Messages for tests of networks.
namespace tutti::test {

/// `bytes` of them, which tell their sender and number.
inline std::vector<std::byte> message(int sender, int number, std::size_t bytes) {
  std::vector<std::byte> result(std::max(bytes, 2 * sizeof(int)), std::byte(sender * 31 + number));
  std::memcpy(result.data(), &sender, sizeof(int));
  std::memcpy(result.data() + sizeof(int), &number, sizeof(int));
  return result;
}

inline Network::Message wait_for_message(Network& network) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    if (auto received = network.receive()) return *std::move(received);
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(20))
      throw std::runtime_error("no message comes");
    std::this_thread::yield();
  }
}

inline void wait_until_delivered(Network& network) {
  while (!network.is_delivered()) EXPECT_FALSE(network.receive());
}

/// Everyone sends `count` messages of many lengths to everyone else.
inline void exchange_messages(Network& network, int rank, int size, int count) {
  const std::vector<std::size_t> lengths{8, 100'000, 9, 3'000'000, 5000, 8};
  const auto length = [&](int number) { return lengths[static_cast<std::size_t>(number) % lengths.size()]; };
  for (int number = 0; number < count; ++number) {
    for (int target = 0; target < size; ++target) {
      if (target != rank) network.send(target, message(rank, number, length(number)));
    }
  }
  std::vector<int> next(static_cast<std::size_t>(size));
  for (int left = count * (size - 1); left > 0; --left) {
    const Network::Message received = wait_for_message(network);
    const int number = next[static_cast<std::size_t>(received.source)]++;
    ASSERT_EQ(received.bytes, message(received.source, number, length(number)));
  }
  wait_until_delivered(network);
}

}  // namespace tutti::test
