// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/network_messages.hpp"
#include "collectives/bootstrap/world.hpp"
#include "support/forwarding_exchange.hpp"
#include "tutti/exchange.hpp"

#include <algorithm>
#include <cstddef>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// Messages between processes that a launcher has started.
namespace tutti {
namespace {

using test::exchange_messages;
using test::message;
using test::rank_in_world;
using test::size_of_world;
using test::wait_for_message;
using test::wait_until_delivered;

/// The ranks of an exchange, the other way round.
class Backwards final : public test::ForwardingExchange {
 public:
  using ForwardingExchange::ForwardingExchange;
  [[nodiscard]] int rank() const override { return size() - 1 - ForwardingExchange::rank(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::vector<std::byte> forwards(all.size());
    ForwardingExchange::all_gather(mine, forwards);
    for (std::size_t i = 0; i < all.size(); i += mine.size())
      std::copy_n(forwards.end() - static_cast<std::ptrdiff_t>(i + mine.size()), mine.size(),
                  all.begin() + static_cast<std::ptrdiff_t>(i));
  }
};

TEST(LaunchedNetwork, DeliversAllMessagesInOrder) {
  const std::unique_ptr<Exchange> exchange = test::exchange_of_world();
  const std::unique_ptr<Network> network = exchange->network();
  EXPECT_EQ(network->name(), test::network_of_world());
  EXPECT_TRUE(network->is_delivered());
  exchange_messages(*network, rank_in_world(), size_of_world(), 40);
}

TEST(LaunchedNetwork, KnowsWhatHasNotBeenReceived) {
  const std::unique_ptr<Exchange> exchange = test::exchange_of_world();
  const std::unique_ptr<Network> network = exchange->network();
  if (rank_in_world() == 0) {
    network->send(1, message(0, 0, 8));
    for (int i = 0; i < 100; ++i) {
      EXPECT_FALSE(network->receive());
      EXPECT_FALSE(network->is_delivered());
    }
  }
  test::world_barrier();
  if (rank_in_world() == 1) {
    EXPECT_EQ(wait_for_message(*network).source, 0);
  }
  wait_until_delivered(*network);
}

TEST(LaunchedNetwork, PartsKeepTheirMessagesApart) {
  const std::unique_ptr<Exchange> exchange = test::exchange_of_world();
  std::unique_ptr<Network> all = exchange->network();
  std::vector<int> reversed;
  for (int rank = size_of_world() - 1; rank >= 0; --rank) reversed.push_back(rank);
  Backwards among(*exchange);
  const std::unique_ptr<Network> part = all->part(reversed, among);
  const std::unique_ptr<Network> again = part->part(reversed, *exchange);
  const int neighbour = rank_in_world() ^ 1;
  all->send(neighbour, message(rank_in_world(), 1, 8));
  part->send(size_of_world() - 1 - neighbour, message(rank_in_world(), 2, 8));
  again->send(neighbour, message(rank_in_world(), 3, 8));
  EXPECT_EQ(wait_for_message(*again).bytes, message(neighbour, 3, 8));
  const Network::Message second = wait_for_message(*part);
  EXPECT_EQ(second.source, size_of_world() - 1 - neighbour);
  EXPECT_EQ(second.bytes, message(neighbour, 2, 8));
  EXPECT_EQ(wait_for_message(*all).bytes, message(neighbour, 1, 8));
  while (!all->is_delivered()) std::this_thread::yield();
  all.reset();
  test::world_barrier();  // all have received what was for them
  exchange_messages(*part, among.rank(), size_of_world(), 3);
}

TEST(LaunchedNetwork, MayGoWithMessagesUnderWay) {
  const std::unique_ptr<Exchange> exchange = test::exchange_of_world();
  const std::unique_ptr<Network> network = exchange->network();
  const int neighbour = rank_in_world() ^ 1;
  network->send(neighbour, message(rank_in_world(), 0, 3'000'000));
  // Over TCP, the neighbour may have told by now that it has gone, and will never receive it.
  if (rank_in_world() == 0 && network->name() == "MPI") {
    EXPECT_FALSE(network->is_delivered());
  }
}

}  // namespace
}  // namespace tutti
