// SPDX-License-Identifier: Apache-2.0
#include "backend/cuda/program_memory.hpp"
#include "ranks/memory/own_memory.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/values/test_tensor.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/collectives.hpp"
#include "tutti/communicator.hpp"
#include "tutti/device.hpp"
#include "tutti/registered_memory.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>

#include <gtest/gtest.h>

/// Memory that CUDA gives in other ways than `cudaMalloc`: mapped by pieces, from pools, and managed.
namespace tutti {
namespace {

using test::allocate;
using test::device_of;
using test::expect_all_right;
using test::holds;
using test::is_in_place;
using test::make;
using test::make_opening;
using test::mentions;
using test::OwnedMemory;
using test::ProgramMemory;
using test::refuses;

constexpr std::int64_t count = 5'000'000;  ///< of int32: more than nine pieces of 2 MiB
constexpr std::size_t bytes = count * sizeof(std::int32_t);

[[nodiscard]] Tensor tensor_at(const OwnedMemory& memory, int device) {
  return from_blob(memory.get(), {count}, {.dtype = DType::int32, .device = Device(device)});
}

/// Two ranks use registered memory of the kind in place.
void expect_in_place_between_ranks(ProgramMemory kind) {
  expect_all_right(2, [kind](Exchange& exchange) {
    const int rank = exchange.rank();
    const int device = device_of(exchange);
    const OwnedMemory own = allocate(kind, device, bytes);
    MemoryRegistration registration = register_memory(own.get(), bytes);
    const Tensor mine = tensor_at(own, device);
    {
      Communicator communicator = make(exchange);
      for (int round = 0; round < 3; ++round) {
        mine.fill_(rank + round);
        communicator.all_reduce({mine}, {mine});
        EXPECT_TRUE(holds(mine, 2 * round + 1));
        EXPECT_TRUE(is_in_place(communicator));
      }
      synchronize(device);
      transport::team::synchronize(exchange);
      registration.release();
      transport::team::synchronize(exchange);
    }
  });
}

/// Two devices of one process use registered memory of the kind.
void expect_use_by_peers(ProgramMemory kind) {
  expect_all_right(1, [kind](Exchange&) {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
    const OwnedMemory first = allocate(kind, 0, bytes);
    const OwnedMemory second = allocate(kind, 1, bytes);
    const MemoryRegistration of_first = register_memory(first.get(), bytes);
    const MemoryRegistration of_second = register_memory(second.get(), bytes);
    const Tensor source = tensor_at(first, 0);
    const Tensor target = tensor_at(second, 1);
    for (int round = 0; round < 3; ++round) {
      source.fill_(round);
      broadcast(source, {target});
      EXPECT_TRUE(holds(target, round));
    }
    synchronize(0);
    synchronize(1);
  });
}

void expect_refusal(ProgramMemory kind, const char* reason) {
  expect_all_right(1, [=](Exchange&) {
    const OwnedMemory own = allocate(kind, 0, bytes);
    EXPECT_TRUE(refuses([&] { static_cast<void>(register_memory(own.get(), bytes)); }, ErrorCode::unsupported,
                        {"register_memory", reason}));
  });
}

TEST(MappedMemory, IsUsedInPlaceBetweenRanks) {
  expect_in_place_between_ranks(ProgramMemory::pieces);
}

TEST(MappedMemory, IsUsedByPeersInOneProcess) {
  expect_use_by_peers(ProgramMemory::pieces);
}

TEST(MappedMemory, IsRefusedWithoutATypeOfHandles) {
  expect_refusal(ProgramMemory::pieces_without_handles, "requestedHandleTypes");
}

TEST(PooledMemory, IsUsedInPlaceBetweenRanks) {
  expect_in_place_between_ranks(ProgramMemory::shareable_pool);
}

TEST(PooledMemory, IsUsedByPeersInOneProcess) {
  expect_use_by_peers(ProgramMemory::shareable_pool);
}

TEST(PooledMemory, IsRefusedWhereItsPoolIsNotForDescriptors) {
  expect_refusal(ProgramMemory::default_pool, "cudaMemPoolCreate");
}

TEST(ManagedMemory, IsRefusedWithTheReason) {
  expect_refusal(ProgramMemory::managed, "cudaMallocManaged");
}

TEST(ManagedMemory, GoesThroughStandInsBetweenRanks) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    const int device = device_of(exchange);
    const OwnedMemory own = allocate(ProgramMemory::managed, device, bytes);
    const Tensor mine = tensor_at(own, device);
    Communicator communicator = make_opening(exchange);
    for (int round = 0; round < 3; ++round) {
      mine.fill_(rank + round);
      communicator.all_reduce({mine}, {mine});
      EXPECT_TRUE(holds(mine, 2 * round + 1));
      EXPECT_FALSE(is_in_place(communicator));
    }
    EXPECT_TRUE(mentions(communicator.explain(), {"goes through stand-ins", "cudaMallocManaged"}));
    if (rank == 0) communicator.send(mine, 1);
    if (rank == 1) communicator.recv(mine, 0);
    EXPECT_TRUE(holds(mine, 5));
  });
}

/// As trainers add up a number that the host reads.
TEST(ManagedMemory, MayPreferTheHost) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    const int device = device_of(exchange);
    const OwnedMemory own = allocate(ProgramMemory::managed_on_host, device, bytes);
    const Tensor mine = tensor_at(own, device);
    const Tensor one(TensorView(own.get(), DType::int32, {1}, Device(device)));
    Communicator communicator = make(exchange);
    for (int round = 0; round < 3; ++round) {
      mine.fill_(rank + round);
      synchronize(device);
      communicator.all_reduce({one}, {one});
      synchronize(device);
      EXPECT_EQ(*static_cast<const std::int32_t*>(own.get()), 2 * round + 1);
      mine.fill_(rank + round);
      communicator.all_reduce({mine}, {mine});
      EXPECT_TRUE(holds(mine, 2 * round + 1));
    }
  });
}

TEST(ManagedMemory, IsTakenUpToTheNextAlignedAddress) {
  expect_all_right(2, [](Exchange& exchange) {
    const int device = device_of(exchange);
    const OwnedMemory own = allocate(ProgramMemory::managed, device, sizeof(std::int32_t));
    const Tensor four(TensorView(own.get(), DType::int32, {4}, Device(device)));
    Communicator communicator = make(exchange);
    four.fill_(1);
    communicator.all_reduce({four}, {four});
    synchronize(device);
    // Read by the host, as CUDA copies only what was allocated.
    const std::span sums(static_cast<const std::int32_t*>(own.get()), 4);
    EXPECT_TRUE(std::ranges::all_of(sums, [](std::int32_t sum) { return sum == 2; }));
  });
}

TEST(ManagedMemory, IsUsedByPeersInOneProcess) {
  expect_all_right(1, [](Exchange&) {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
    const OwnedMemory first = allocate(ProgramMemory::managed, 0, bytes);
    const OwnedMemory second = allocate(ProgramMemory::managed, 1, bytes);
    const Tensor source = tensor_at(first, 0);
    const Tensor target = tensor_at(second, 1);
    Communicator communicator({.devices = {Device(0), Device(1)}, .transport = TransportKind::p2p});
    for (int round = 0; round < 3; ++round) {
      source.fill_(round + 1);
      broadcast(source, {target});
      EXPECT_TRUE(holds(target, round + 1));
      communicator.all_reduce({source, target}, {source, target});
      EXPECT_TRUE(holds(source, 2 * round + 2));
      EXPECT_TRUE(holds(target, 2 * round + 2));
    }
    EXPECT_TRUE(mentions(communicator.explain(), {"cudaMallocManaged"}));
    synchronize(0);
    synchronize(1);
  });
}

}  // namespace
}  // namespace tutti
