// SPDX-License-Identifier: Apache-2.0
#include "tutti/registered_memory.hpp"

#include "ranks/memory/own_memory.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/collectives.hpp"
#include "tutti/communicator.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <array>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Registered memory of the program's own that calls use in place.
namespace tutti::test {
namespace {

class RegisteredMemory : public testing::TestWithParam<Origin> {};
INSTANTIATE_TEST_SUITE_P(Origins, RegisteredMemory, each_origin(), name_of_origin);

TEST_P(RegisteredMemory, IsUsedInPlace) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin);
    const OwnMemory sums(device_of(exchange), origin);
    const MemoryRegistration registration = own.registered();
    const MemoryRegistration registration_of_sums = sums.registered();
    EXPECT_EQ(registration.data(), own.address());
    EXPECT_EQ(registration.bytes(), own.bytes());
    {
      Communicator communicator = make(exchange);
      for (int round = 0; round < 3; ++round) {
        const Tensor mine = own.full_of(round + rank);
        communicator.all_reduce({mine}, {sums.tensor()});
        EXPECT_TRUE(is_in_place(communicator));
        EXPECT_TRUE(holds(sums.tensor(), 2 * round + 1));
        communicator.broadcast({mine}, round % 2);
        EXPECT_TRUE(is_in_place(communicator));
        EXPECT_TRUE(holds(mine, round + round % 2));
      }
    }
  });
}

TEST_P(RegisteredMemory, GoesWithMemoryThatIsNot) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin);
    MemoryRegistration registration;
    EXPECT_FALSE(registration);
    if (rank == 0) registration = own.registered();
    {
      Communicator communicator = make(exchange);
      expect_sum(communicator, own, rank, 1);
      EXPECT_EQ(is_in_place(communicator), rank == 0);
      const std::string told = communicator.explain();
      EXPECT_EQ(told.find("register_memory") != std::string::npos, rank == 1) << told;
    }
  });
}

TEST_P(RegisteredMemory, SentAndReceived) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin);
    const MemoryRegistration registration = own.registered();
    Communicator communicator = make(exchange);
    for (int round = 0; round < 4; ++round) {
      const Tensor mine = own.full_of(rank == 0 ? round : -1);
      if (rank == 0) communicator.send(mine, 1);
      if (rank == 1) communicator.recv(mine, 0);
      EXPECT_TRUE(holds(mine, round));
    }
    communicator.barrier();
    synchronize(device_of(exchange));
    transport::team::synchronize(exchange);
  });
}

TEST_P(RegisteredMemory, ServesPersistentCalls) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin);
    const MemoryRegistration registration = own.registered();
    {
      Communicator communicator = make(exchange);
      const Tensor mine = own.tensor();
      PersistentCollective call = communicator.persistent([&] { communicator.all_reduce({mine}, {mine}); });
      for (int round = 0; round < 3; ++round) {
        static_cast<void>(own.full_of(round + rank));
        call.launch();
        EXPECT_TRUE(holds(mine, 2 * round + 1));
      }
    }
  });
}

TEST_P(RegisteredMemory, PartsAreUsedInPlaceByThemselves) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin, 2 * own_count);
    const std::size_t half = own.bytes() / 2;
    MemoryRegistration first = register_memory(own.address(), half);
    const MemoryRegistration second = register_memory(own.address() + half, half);
    {
      Communicator communicator = make(exchange);
      for (const std::size_t offset : {std::size_t{0}, half}) {
        const Tensor mine = own.tensor(offset, own_count);
        mine.fill_(rank + static_cast<int>(offset / half));
        communicator.all_reduce({mine}, {mine});
        EXPECT_TRUE(is_in_place(communicator));
        EXPECT_TRUE(holds(mine, offset == 0 ? 1 : 3));
      }
      // Across both: of a block, others have all open; of pieces, only what is registered.
      const Tensor across = own.tensor(half / 2 / 512 * 512, own_count);
      across.fill_(rank);
      communicator.all_reduce({across}, {across});
      EXPECT_EQ(is_in_place(communicator), origin == Origin::block);
      EXPECT_TRUE(holds(across, 1));
      transport::team::synchronize(exchange);
      first.release();
      transport::team::synchronize(exchange);
      const Tensor kept = own.tensor(half, own_count);
      kept.fill_(rank);
      communicator.all_reduce({kept}, {kept});
      EXPECT_TRUE(is_in_place(communicator));
      EXPECT_TRUE(holds(kept, 1));
    }
  });
}

TEST_P(RegisteredMemory, ServesOneProcess) {
  expect_all_right(1, [origin = GetParam()](Exchange&) {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
    const OwnMemory first(0, origin);
    const OwnMemory second(1, origin);
    const Tensor theirs = zeros({own_count}, {.dtype = DType::int32, .device = 1});
    broadcast(full({own_count}, 1, {.dtype = DType::int32, .device = 0}), {theirs});
    const std::string wanted = last_plan().algorithm;
    const MemoryRegistration registration = first.registered();
    const MemoryRegistration another = second.registered();
    broadcast(first.full_of(3), {second.tensor()});
    EXPECT_EQ(last_plan().algorithm, wanted);
    EXPECT_TRUE(holds(second.tensor(), 3));
    synchronize(0);
  });
}

/// Registrations come and go at random on each rank, and calls use what is there.
TEST_P(RegisteredMemory, ComesAndGoesAtRandom) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    std::mt19937 random(17 + static_cast<unsigned>(rank));
    std::mt19937 choices(5);  // the same on all ranks
    Communicator communicator = make(exchange);
    constexpr std::size_t memories = 3;
    std::array<std::unique_ptr<OwnMemory>, memories> own;
    std::array<MemoryRegistration, memories> registrations;
    for (int round = 0; round < 25; ++round) {
      for (std::size_t i = 0; i < memories; ++i) {
        if (random() % 3 != 0) continue;
        registrations[i].release();
        if (random() % 2 == 0) own[i].reset();
        if (own[i] == nullptr) own[i] = std::make_unique<OwnMemory>(device_of(exchange), origin);
        if (random() % 2 == 0) registrations[i] = own[i]->registered();
      }
      transport::team::synchronize(exchange);
      for (int call = 0; call < 3; ++call) {
        const std::size_t used = choices() % memories;
        if (own[used] == nullptr) own[used] = std::make_unique<OwnMemory>(device_of(exchange), origin);
        expect_sum(communicator, *own[used], rank, 1);
        EXPECT_EQ(is_in_place(communicator), static_cast<bool>(registrations[used]));
      }
      synchronize(device_of(exchange));
      transport::team::synchronize(exchange);
    }
    for (MemoryRegistration& registration : registrations) registration.release();
    transport::team::synchronize(exchange);
  });
}

TEST(RegisteredMemory, StaysRegisteredForTheRanksThatAreLeft) {
  Ranks ranks(3, [](Exchange& exchange) {
    const int rank = exchange.rank();
    Communicator communicator = make(exchange);
    const OwnMemory own(device_of(exchange));
    const MemoryRegistration registration = own.registered();
    expect_sum(communicator, own, rank, 3);
    transport::team::synchronize(exchange);
    if (rank == 1) std::raise(SIGKILL);
    EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
    communicator = communicator.shrink();
    expect_sum(communicator, own, rank, 2);
    EXPECT_TRUE(is_in_place(communicator));
    communicator.check();
  });
  EXPECT_EQ(ranks.wait(), (std::vector{all_right, killed, all_right}));
}

}  // namespace
}  // namespace tutti::test
