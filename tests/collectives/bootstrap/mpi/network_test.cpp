// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/mpi/world.hpp"
#include "collectives/bootstrap/network_messages.hpp"
#include "support/errors.hpp"
#include "support/forwarding_exchange.hpp"
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

/// Messages by MPI, of which the tags are few.
namespace tutti {
namespace {

using test::exchange_messages;
using test::message;
using test::refuses;
using test::world_rank;
using test::world_size;

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
class FailingExchange final : public test::ForwardingExchange {
 public:
  FailingExchange(Exchange& exchange, int calls) : ForwardingExchange(exchange), calls_(calls) {}
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (calls_-- == 0) throw Error(ErrorCode::peer_unavailable, "the exchange has failed");
    ForwardingExchange::all_gather(mine, all);
  }

 private:
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

}  // namespace
}  // namespace tutti
