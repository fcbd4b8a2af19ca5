// SPDX-License-Identifier: Apache-2.0
#include "ranks/memory/own_memory.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/registered_memory.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <csignal>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

/// Memory of the program's own whose registration ends, in time and too late.
namespace tutti::test {
namespace {

class ReleasedMemory : public testing::TestWithParam<Origin> {};
INSTANTIATE_TEST_SUITE_P(Origins, ReleasedMemory, each_origin(), name_of_origin);

TEST_P(ReleasedMemory, MayBeFreedOnceItIsReleased) {
  expect_all_right(2, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    Communicator communicator = make(exchange);
    for (int round = 0; round < 4; ++round) {
      // Rounds have sizes of their own, whose addresses may come again.
      OwnMemory own(device_of(exchange), origin, own_count + 4096 * (round % 2));
      MemoryRegistration registration = own.registered();
      const Tensor mine = own.full_of(rank + round);
      communicator.all_reduce({mine}, {mine});
      EXPECT_TRUE(is_in_place(communicator));
      EXPECT_TRUE(holds(mine, 2 * round + 1));
      transport::team::synchronize(exchange);
      registration.release();
      EXPECT_FALSE(registration);
      transport::team::synchronize(exchange);
      communicator.all_reduce({mine}, {mine});
      EXPECT_FALSE(is_in_place(communicator)) << "the registration is over";
      EXPECT_TRUE(holds(mine, 4 * round + 2));
    }
  });
}

TEST(ReleasedBlocks, AreReleasedAfterPersistentCallsAreGone) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange));
    MemoryRegistration registration = own.registered();
    {
      Communicator communicator = make(exchange);
      const Tensor mine = own.full_of(rank);
      {
        PersistentCollective call = communicator.persistent([&] { communicator.all_reduce({mine}, {mine}); });
        call.launch();
        EXPECT_TRUE(holds(mine, 1));
      }
      transport::team::synchronize(exchange);
      EXPECT_TRUE(refuses([&] { registration.release(); }, ErrorCode::timeout, {"it stays registered"}))
          << "others keep it open while a communicator with captured calls exists";
      transport::team::synchronize(exchange);
    }
    registration.release();
  });
}

/// Calls `work` on rank 0 while rank 1 waits in a call that rank 0 makes only then. Collective.
void while_another_waits(Exchange& exchange, Communicator& communicator, const std::function<void()>& work) {
  const Tensor small = zeros({4}, {.dtype = DType::int32, .device = device_of(exchange)});
  if (exchange.rank() == 1) communicator.all_reduce({small}, {small});
  transport::team::synchronize(exchange);
  if (exchange.rank() == 0) {
    work();
    communicator.all_reduce({small}, {small});
  }
  EXPECT_TRUE(holds(small, 0));
}

TEST(ReleasedBlocks, AreNotReleasedWhileAnotherWaitsInACall) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange));
    MemoryRegistration registration = own.registered();
    Communicator communicator = make(exchange);
    expect_sum(communicator, own, rank, 1);
    while_another_waits(exchange, communicator, [&] {
      EXPECT_TRUE(refuses([&] { registration.release(); }, ErrorCode::timeout,
                          {"another process has the memory", "it stays registered"}));
      EXPECT_TRUE(registration);
    });
    transport::team::synchronize(exchange);
    registration.release();
    transport::team::synchronize(exchange);
  });
}

TEST(ReleasedPieces, AreReleasedWhileAnotherWaitsInACall) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    OwnMemory own(device_of(exchange), Origin::pieces);
    MemoryRegistration registration = own.registered();
    Communicator communicator = make(exchange);
    expect_sum(communicator, own, rank, 1);
    while_another_waits(exchange, communicator, [&] {
      registration.release();
      own.free();
    });
    // The same addresses may come again.
    const OwnMemory another(device_of(exchange), Origin::pieces);
    const MemoryRegistration of_another = another.registered();
    expect_sum(communicator, another, rank, 1);
    EXPECT_TRUE(is_in_place(communicator));
    synchronize(device_of(exchange));
    transport::team::synchronize(exchange);
  });
}

TEST_P(ReleasedMemory, IsReleasedAfterTheDeathOfARank) {
  Ranks ranks(3, [origin = GetParam()](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange), origin);
    MemoryRegistration registration = own.registered();
    {
      Communicator communicator = make(exchange);
      expect_sum(communicator, own, rank, 3);
      transport::team::synchronize(exchange);
      if (rank == 2) kill(getpid(), SIGKILL);
      EXPECT_TRUE(
          mentions(failure_of(device_of(exchange), [&] { communicator.barrier(); }), {"rank 2", "is gone"}));
    }
    registration.release();
  });
  EXPECT_EQ(ranks.wait(), (std::vector{all_right, all_right, killed}));
}

TEST_P(ReleasedMemory, RangesOfAnAllocationEndInAnyOrderAndAtOnce) {
  expect_all_right(1, [origin = GetParam()](Exchange&) {
    constexpr std::size_t length = 4096;
    const OwnMemory own(0, origin);
    for (int round = 0; round < 200; ++round) {
      std::vector<std::thread> threads;
      for (std::size_t i = 0; i < 4; ++i) {
        threads.emplace_back([&own, i] {
          MemoryRegistration range = register_memory(own.address() + i * length, length);
          range.release();
        });
      }
      for (std::thread& thread : threads) thread.join();
    }
    EXPECT_EQ(own.registered().bytes(), own.bytes()) << "nothing is left registered";
  });
}

TEST_P(ReleasedMemory, TellsThatItWasFreedTooEarly) {
  expect_all_right(1, [origin = GetParam()](Exchange&) {
    if (!on_virtual_devices()) GTEST_SKIP() << "CUDA says nothing sure of freed memory";
    OwnMemory own(0, origin);
    MemoryRegistration registration = own.registered();
    own.free();
    EXPECT_TRUE(refuses([&] { registration.release(); }, ErrorCode::invalid_argument,
                        {"was freed while it was registered"}));
    EXPECT_FALSE(registration);
  });
}

}  // namespace
}  // namespace tutti::test
