// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/mpi/world.hpp"
#include "support/errors.hpp"
#include "tutti/error.hpp"
#include "tutti/exchange.hpp"
#include "tutti/mpi.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <memory>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace {

int largest_tag = 0;  ///< that MPI tells of; 0: what it really has

}  // namespace

extern "C" int MPI_Comm_get_attr(MPI_Comm comm, int key, void* value, int* found) {
  const int result = PMPI_Comm_get_attr(comm, key, value, found);
  if (key == MPI_TAG_UB && largest_tag != 0) *static_cast<int**>(value) = &largest_tag;
  return result;
}

/// Messages by MPI.
namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::refuses;
using test::world_rank;
using test::world_size;

/// `bytes` of them, which tell their sender and number.
std::vector<std::byte> message(int sender, int number, std::size_t bytes) {
  std::vector<std::byte> result(std::max(bytes, 2 * sizeof(int)), std::byte(sender * 31 + number));
  std::memcpy(result.data(), &sender, sizeof(int));
  std::memcpy(result.data() + sizeof(int), &number, sizeof(int));
  return result;
}

Network::Message wait_for_message(Network& network) {
  const auto start = std::chrono::steady_clock::now();
  for (;;) {
    if (auto received = network.receive()) return *std::move(received);
    if (std::chrono::steady_clock::now() - start > 20s) throw std::runtime_error("no message comes");
    std::this_thread::yield();
  }
}

void wait_until_delivered(Network& network) {
  while (!network.is_delivered()) EXPECT_FALSE(network.receive());
}

/// Everyone sends `count` messages of many lengths to everyone else.
void exchange_messages(Network& network, int rank, int size, int count) {
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

TEST(MpiNetwork, DeliversAllMessagesInOrder) {
  mpi::Exchange exchange(MPI_COMM_WORLD);
  const std::unique_ptr<Network> network = exchange.network();
  EXPECT_EQ(network->name(), "MPI");
  EXPECT_TRUE(network->is_delivered());
  exchange_messages(*network, world_rank(), world_size(), 40);
}

TEST(MpiNetwork, KnowsWhatHasNotBeenReceived) {
  mpi::Exchange exchange(MPI_COMM_WORLD);
  const std::unique_ptr<Network> network = exchange.network();
  if (world_rank() == 0) {
    network->send(1, message(0, 0, 8));
    for (int i = 0; i < 100; ++i) {
      EXPECT_FALSE(network->receive());
      EXPECT_FALSE(network->is_delivered());
    }
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == 1) {
    EXPECT_EQ(wait_for_message(*network).source, 0);
  }
  wait_until_delivered(*network);
}

TEST(MpiNetwork, PartsKeepTheirMessagesApart) {
  mpi::Exchange exchange(MPI_COMM_WORLD);
  std::unique_ptr<Network> all = exchange.network();
  std::vector<int> reversed;
  for (int rank = world_size() - 1; rank >= 0; --rank) reversed.push_back(rank);
  const test::Part backwards(0, -world_rank());
  mpi::Exchange among(backwards);
  const std::unique_ptr<Network> part = all->part(reversed, among);
  const std::unique_ptr<Network> again = part->part(reversed, exchange);
  const int neighbour = world_rank() ^ 1;
  all->send(neighbour, message(world_rank(), 1, 8));
  part->send(world_size() - 1 - neighbour, message(world_rank(), 2, 8));
  again->send(neighbour, message(world_rank(), 3, 8));
  EXPECT_EQ(wait_for_message(*again).bytes, message(neighbour, 3, 8));
  const Network::Message second = wait_for_message(*part);
  EXPECT_EQ(second.source, world_size() - 1 - neighbour);
  EXPECT_EQ(second.bytes, message(neighbour, 2, 8));
  EXPECT_EQ(wait_for_message(*all).bytes, message(neighbour, 1, 8));
  while (!all->is_delivered()) std::this_thread::yield();
  all.reset();
  MPI_Barrier(MPI_COMM_WORLD);  // all have received what was for them
  exchange_messages(*part, among.rank(), world_size(), 3);
}

/// MPI has two tags for parts, for each rank that is the first of some.
class MpiNetworkOfFewTags : public testing::Test {
 protected:
  void SetUp() override {
    largest_tag = 3 * world_size() - 1;
    all_ = exchange_.network();
    for (int rank = 0; rank < world_size(); ++rank) everyone_.push_back(rank);
  }
  void TearDown() override {
    largest_tag = 0;
    MPI_Barrier(MPI_COMM_WORLD);
  }

  [[nodiscard]] std::unique_ptr<Network> part() { return all_->part(everyone_, exchange_); }
  [[nodiscard]] bool is_last() const { return world_rank() == world_size() - 1; }
  /// The last rank sends rank 0 a message that nobody receives, through a part that is gone then.
  void leave_a_message() {
    const std::unique_ptr<Network> left = part();
    if (is_last()) left->send(0, message(world_rank(), 77, 8));
  }

  mpi::Exchange exchange_{MPI_COMM_WORLD};
  std::unique_ptr<Network> all_;
  std::vector<int> everyone_;
};

TEST_F(MpiNetworkOfFewTags, UsesThoseOfPartsThatAreGoneAgain) {
  for (int round = 0; round < 10; ++round) exchange_messages(*part(), world_rank(), world_size(), 3);
}

TEST_F(MpiNetworkOfFewTags, UsesNoneThatAnotherPartHasOnAnyRank) {
  std::unique_ptr<Network> first = part();
  std::unique_ptr<Network> second = part();
  for (int attempt = 0; attempt < 3; ++attempt)
    EXPECT_TRUE(refuses([&] { static_cast<void>(part()); }, ErrorCode::unsupported, {"no tag left"}));
  if (!is_last()) first.reset();  // the last rank still has it
  EXPECT_TRUE(refuses([&] { static_cast<void>(part()); }, ErrorCode::unsupported, {"no tag left"}));
  first.reset();
  for (int round = 0; round < 3; ++round) exchange_messages(*part(), world_rank(), world_size(), 3);
  exchange_messages(*second, world_rank(), world_size(), 3);
}

/// Fails, on all ranks, after some calls.
class FailingExchange final : public Exchange {
 public:
  FailingExchange(Exchange& exchange, int calls) : exchange_(exchange), calls_(calls) {}
  [[nodiscard]] int rank() const override { return exchange_.rank(); }
  [[nodiscard]] int size() const override { return exchange_.size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (calls_-- == 0) throw Error(ErrorCode::peer_unavailable, "the exchange has failed");
    exchange_.all_gather(mine, all);
  }

 private:
  Exchange& exchange_;
  int calls_;
};

TEST_F(MpiNetworkOfFewTags, LosesNoneWherePartsCannotBeMade) {
  for (int attempt = 0; attempt < 6; ++attempt) {
    FailingExchange failing(exchange_, attempt % 2);
    EXPECT_TRUE(refuses([&] { static_cast<void>(all_->part(everyone_, failing)); },
                        ErrorCode::peer_unavailable, {"has failed"}));
  }
  const std::unique_ptr<Network> first = part();
  exchange_messages(*part(), world_rank(), world_size(), 3);
}

TEST_F(MpiNetworkOfFewTags, UsesNoneWithMessagesUnderWay) {
  leave_a_message();
  for (int round = 0; round < 5; ++round) exchange_messages(*part(), world_rank(), world_size(), 3);
}

TEST_F(MpiNetworkOfFewTags, DropsWhatIsUnderWayFromRanksOfEarlierParts) {
  leave_a_message();
  const test::Part others(is_last() ? 1 : 0, world_rank());
  mpi::Exchange among(others);
  if (is_last()) return;
  everyone_.pop_back();
  for (int round = 0; round < 5; ++round) {
    const std::unique_ptr<Network> part = all_->part(everyone_, among);
    exchange_messages(*part, world_rank(), world_size() - 1, 3);
    EXPECT_FALSE(part->receive());
  }
}

TEST(MpiNetwork, MayGoWithMessagesUnderWay) {
  mpi::Exchange exchange(MPI_COMM_WORLD);
  const std::unique_ptr<Network> network = exchange.network();
  const int neighbour = world_rank() ^ 1;
  network->send(neighbour, message(world_rank(), 0, 3'000'000));
  if (world_rank() == 0) {
    EXPECT_FALSE(network->is_delivered());
  }
}

}  // namespace
}  // namespace tutti
