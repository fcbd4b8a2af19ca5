// SPDX-License-Identifier: Apache-2.0
#include "tutti/registered_memory.hpp"

#include "device/runtime.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/machines/machines.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "support/values/test_tensor.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/collectives.hpp"
#include "tutti/communicator.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

/// Memory that the program has allocated itself, by `register_memory` and without it.
namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::all_right;
using test::expect_all_right;
using test::holds;
using test::killed;
using test::mentions;
using test::Ranks;
using test::refuses;

/// Large enough to be read where they lie: of int32, more than 4 MiB.
constexpr std::int64_t count = 1'200'000;

/// A device's memory as a program gets it without tutti.
class OwnMemory {
 public:
  explicit OwnMemory(int device, std::int64_t elements = count)
      : device_(device),
        elements_(elements),
        address_(Runtime::get().backend().allocate_device(device, bytes())) {}
  OwnMemory(const OwnMemory&) = delete;
  OwnMemory& operator=(const OwnMemory&) = delete;
  ~OwnMemory() { free(); }

  [[nodiscard]] std::size_t bytes() const {
    return static_cast<std::size_t>(elements_) * sizeof(std::int32_t);
  }
  [[nodiscard]] std::byte* address() const { return static_cast<std::byte*>(address_); }
  [[nodiscard]] Tensor tensor() const {
    return from_blob(address_, {elements_}, {.dtype = DType::int32, .device = Device(device_)});
  }
  [[nodiscard]] Tensor full_of(int value) const {
    Tensor tensor = this->tensor();
    tensor.fill_(value);
    return tensor;
  }
  [[nodiscard]] MemoryRegistration registered() const { return register_memory(address_, bytes()); }
  void free() {
    if (void* const freed = std::exchange(address_, nullptr)) {
      synchronize(device_);
      Runtime::get().backend().free_device(device_, freed);
    }
  }

 private:
  int device_;
  std::int64_t elements_;
  void* address_;
};

[[nodiscard]] int device_of(const Exchange& exchange) {
  return exchange.rank() % device_count();
}

[[nodiscard]] Communicator make(Exchange& exchange) {
  return Communicator(
      exchange, {.devices = {Device(device_of(exchange))}, .timeout = 30s, .transport = TransportKind::p2p});
}

[[nodiscard]] bool is_in_place(const Communicator& communicator) {
  const std::string algorithm = communicator.last_plan().algorithm;
  EXPECT_TRUE(mentions(algorithm, {"direct"}));
  return algorithm.find("through stand-ins") == std::string::npos;
}

/// Sums the members' memory in place, which is filled with the ranks' numbers, and expects `sum`.
void expect_sum(Communicator& communicator, const OwnMemory& own, int rank, int sum) {
  const Tensor mine = own.full_of(rank);
  communicator.all_reduce({mine}, {mine});
  EXPECT_TRUE(holds(mine, sum));
}

TEST(RegisteredMemory, IsUsedInPlace) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange));
    const OwnMemory sums(device_of(exchange));
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

TEST(RegisteredMemory, GoesWithMemoryThatIsNot) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange));
    MemoryRegistration registration;
    EXPECT_FALSE(registration);
    if (rank == 0) registration = own.registered();
    {
      Communicator communicator = make(exchange);
      expect_sum(communicator, own, rank, 1);
      EXPECT_EQ(is_in_place(communicator), rank == 0);
    }
  });
}

TEST(RegisteredMemory, SentAndReceived) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange));
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

TEST(RegisteredMemory, ServesPersistentCalls) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange));
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

TEST(RegisteredMemory, MayBeFreedOnceItIsReleased) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    Communicator communicator = make(exchange);
    for (int round = 0; round < 4; ++round) {
      // Rounds have sizes of their own, whose addresses may come again.
      OwnMemory own(device_of(exchange), count + 4096 * (round % 2));
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

TEST(RegisteredMemory, IsReleasedAfterPersistentCallsAreGone) {
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

TEST(RegisteredMemory, IsNotReleasedWhileAnotherWaitsInACall) {
  expect_all_right(2, [](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange));
    MemoryRegistration registration = own.registered();
    Communicator communicator = make(exchange);
    expect_sum(communicator, own, rank, 1);
    const Tensor small = zeros({4}, {.dtype = DType::int32, .device = device_of(exchange)});
    if (rank == 1) communicator.all_reduce({small}, {small});
    transport::team::synchronize(exchange);
    if (rank == 0) {
      EXPECT_TRUE(refuses([&] { registration.release(); }, ErrorCode::timeout,
                          {"another process has the memory", "it stays registered"}));
      EXPECT_TRUE(registration);
      communicator.all_reduce({small}, {small});
    }
    EXPECT_TRUE(holds(small, 0));
    transport::team::synchronize(exchange);
    registration.release();
    transport::team::synchronize(exchange);
  });
}

TEST(RegisteredMemory, IsReleasedAfterTheDeathOfARank) {
  Ranks ranks(3, [](Exchange& exchange) {
    const int rank = exchange.rank();
    const OwnMemory own(device_of(exchange));
    MemoryRegistration registration = own.registered();
    {
      Communicator communicator = make(exchange);
      expect_sum(communicator, own, rank, 3);
      transport::team::synchronize(exchange);
      if (rank == 2) kill(getpid(), SIGKILL);
      EXPECT_TRUE(mentions(test::failure_of(device_of(exchange), [&] { communicator.barrier(); }),
                           {"rank 2", "is gone"}));
    }
    registration.release();
  });
  EXPECT_EQ(ranks.wait(), (std::vector{all_right, all_right, killed}));
}

TEST(RegisteredMemory, ServesOneProcess) {
  expect_all_right(1, [](Exchange&) {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
    const OwnMemory first(0);
    const OwnMemory second(1);
    const Tensor theirs = zeros({count}, {.dtype = DType::int32, .device = 1});
    broadcast(full({count}, 1, {.dtype = DType::int32, .device = 0}), {theirs});
    const std::string wanted = last_plan().algorithm;
    const MemoryRegistration registration = first.registered();
    const MemoryRegistration another = second.registered();
    broadcast(first.full_of(3), {second.tensor()});
    EXPECT_EQ(last_plan().algorithm, wanted);
    EXPECT_TRUE(holds(second.tensor(), 3));
    synchronize(0);
  });
}

TEST(RegisteredMemory, RefusesWhatCannotBeRegistered) {
  expect_all_right(1, [](Exchange&) {
    const OwnMemory own(0);
    const auto refused = [](void* pointer, std::size_t bytes, const char* what) {
      return refuses([&] { static_cast<void>(register_memory(pointer, bytes)); }, ErrorCode::invalid_argument,
                     {"register_memory", what});
    };
    EXPECT_TRUE(refused(nullptr, 16, "pointer is"));
    EXPECT_TRUE(refused(own.address(), 0, "bytes 0"));
    EXPECT_TRUE(refused(own.address(), std::size_t{1} << 40U, "the allocation ends"));
    std::vector<int> on_host(100);
    EXPECT_TRUE(refused(on_host.data(), 16, "expected an address in an allocation of a device"));
    const Tensor ours = zeros({count}, {.dtype = DType::int32, .device = 0});
    EXPECT_TRUE(refused(ours.data(), 16, "needs no registration"));

    MemoryRegistration registration = register_memory(own.address() + 512, 1024);
    for (const std::size_t offset : {0U, 512U, 1024U, 1535U})
      EXPECT_TRUE(refused(own.address() + offset, 1024, "overlap the registration"));
    const MemoryRegistration before = register_memory(own.address(), 512);
    const MemoryRegistration after = register_memory(own.address() + 1536, 16);
    MemoryRegistration moved = std::move(registration);
    EXPECT_TRUE(moved);
    registration = std::move(moved);
    registration.release();
    registration.release();
    EXPECT_TRUE(register_memory(own.address() + 512, 1024));
  });
}

TEST(RegisteredMemory, RangesOfAnAllocationEndInAnyOrderAndAtOnce) {
  expect_all_right(1, [](Exchange&) {
    constexpr std::size_t length = 4096;
    const OwnMemory own(0);
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

TEST(RegisteredMemory, TellsThatItWasFreedTooEarly) {
  expect_all_right(1, [](Exchange&) {
    if (!test::on_virtual_devices()) GTEST_SKIP() << "CUDA says nothing sure of freed memory";
    OwnMemory own(0);
    MemoryRegistration registration = own.registered();
    own.free();
    EXPECT_TRUE(refuses([&] { registration.release(); }, ErrorCode::invalid_argument,
                        {"was freed while it was registered"}));
    EXPECT_FALSE(registration);
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
    EXPECT_TRUE(test::becomes_true([&] { return !communicator.is_running(); }));
    communicator = communicator.shrink();
    expect_sum(communicator, own, rank, 2);
    EXPECT_TRUE(is_in_place(communicator));
    communicator.check();
  });
  EXPECT_EQ(ranks.wait(), (std::vector{all_right, killed, all_right}));
}

}  // namespace
}  // namespace tutti
