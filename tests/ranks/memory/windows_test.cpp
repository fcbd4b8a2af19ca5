// SPDX-License-Identifier: Apache-2.0
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/memory/process_resources.hpp"
#include "support/ranks.hpp"
#include "support/standard_error.hpp"
#include "tutti/communicator.hpp"
#include "tutti/memory.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <chrono>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

/// Where the windows of a team of virtual devices lie: in device memory wherever that is possible on all
/// ranks, else in shared host memory, and all ranks hear why.
namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::expect_all_right;
using test::free_memory;
using test::mentions;
using test::open_descriptors;
using test::shared_mappings;
using test::StandardError;
using virtual_devices::FaultKind;
using virtual_devices::Operation;
using virtual_devices::VirtualMachine;

constexpr std::uint64_t always = UINT64_MAX;

Communicator make(Exchange& exchange, TransportKind transport = TransportKind::automatic) {
  return Communicator(exchange,
                      {.devices = {Device(exchange.rank())}, .timeout = 30s, .transport = transport});
}

/// The sum is right, and went by `transport`.
void expect_sum(Communicator& communicator, std::string_view transport) {
  const Device device = communicator.devices()[0];
  const float mine = static_cast<float>(communicator.rank() + 1);
  const float sum = static_cast<float>(communicator.rank_count() * (communicator.rank_count() + 1) / 2);
  const Tensor tensor = full({100'000}, mine, {.device = device});
  communicator.all_reduce_add({tensor}, {tensor});
  EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(100'000, sum));
  EXPECT_EQ(communicator.last_plan().transport, transport);
}

TEST(Windows, LieOnTheDevicesThatReachOneAnother) {
  expect_all_right(3, [](Exchange& exchange) {
    for (const TransportKind transport : {TransportKind::automatic, TransportKind::p2p}) {
      StandardError log;
      const std::size_t free = free_memory(exchange.rank());
      {
        Communicator communicator = make(exchange, transport);
        EXPECT_LT(free_memory(exchange.rank()), free - (std::size_t{7} << 20U));
        EXPECT_TRUE(mentions(communicator.explain(), {"p2p, in the members' device memory"}));
        expect_sum(communicator, "p2p");
        empty_cache();
      }
      EXPECT_EQ(free_memory(exchange.rank()), free);
      EXPECT_EQ(log.end(), "");
    }
  });
}

TEST(Windows, LieOnTheHostWhereThatIsAskedFor) {
  expect_all_right(2, [](Exchange& exchange) {
    StandardError log;
    Communicator communicator = make(exchange, TransportKind::staged);
    EXPECT_TRUE(mentions(communicator.explain(), {"staged, in shared host memory", "staged was asked for"}));
    expect_sum(communicator, "staged");
    EXPECT_EQ(log.end(), "");
  });
}

TEST(Windows, OneDeviceOfSeveralRanksReachesItself) {
  expect_all_right(2, [](Exchange& exchange) {
    virtual_devices::start(VirtualMachine::from_topology("pcie", 2));
    Communicator communicator(exchange, {.devices = {Device(1)}, .transport = TransportKind::p2p});
    expect_sum(communicator, "p2p");
  });
}

TEST(Windows, LieOnTheHostWhereTheTopologyKeepsDevicesApart) {
  expect_all_right(4, [](Exchange& exchange) {
    virtual_devices::start(VirtualMachine::from_topology("two-islands", 4));
    const std::vector<std::string> reason{"device 0", "device 2", "two-islands"};
    {
      StandardError log;
      Communicator communicator = make(exchange);
      const std::string logged = log.end();
      if (exchange.rank() == 0) {
        EXPECT_TRUE(mentions(logged, {"warning", "host memory", "device 0", "device 2"}));
        EXPECT_EQ(std::ranges::count(logged, '\n'), 1);
      } else {
        EXPECT_EQ(logged, "") << "one rank says it for all";
      }
      EXPECT_TRUE(mentions(communicator.explain(), {"staged", "p2p not taken"}));
      EXPECT_TRUE(mentions(communicator.explain(), reason));
      expect_sum(communicator, "staged");
      // Each island by itself.
      const auto island = communicator.split(exchange.rank() / 2);
      EXPECT_TRUE(mentions(island->explain(), {"p2p, in the members' device memory"}));
    }
    std::vector<std::string> refusal{"options.transport is p2p"};
    refusal.insert(refusal.end(), reason.begin(), reason.end());
    EXPECT_TRUE(test::refuses([&] { make(exchange, TransportKind::p2p); }, ErrorCode::unsupported, refusal));
  });
}

/// One thing that goes wrong on one rank only.
struct Mishap {
  const char* name;
  int rank;
  virtual_devices::Fault fault;
  std::vector<std::string> mentions;
};

TEST(Windows, LieOnTheHostForAllIfOneRankCannotShareOrOpen) {
  const std::vector<Mishap> mishaps{
      {"share", 1, {.operation = Operation::share}, {"rank 1", "device 1 cannot share", "injected"}},
      {"open", 2, {.operation = Operation::open, .peer = 1}, {"rank 2", "device 2 cannot open", "injected"}},
      {"allocate", 0, {.operation = Operation::allocate_device, .count = 3}, {"rank 0", "left on device 0"}},
      {"clear", 1, {.operation = Operation::kernel}, {"rank 1", "fill on device 1"}},
      {"self-test", 2, {.operation = Operation::kernel, .skip = 1}, {"rank 2", "fan_out on device 2"}},
  };
  for (const Mishap& mishap : mishaps) {
    SCOPED_TRACE(mishap.name);
    expect_all_right(3, [&](Exchange& exchange) {
      const std::size_t free = free_memory(exchange.rank());
      const auto inject = [&] {
        if (exchange.rank() == mishap.rank) virtual_devices::inject(mishap.fault);
      };
      inject();
      EXPECT_TRUE(test::refuses([&] { make(exchange, TransportKind::p2p); }, ErrorCode::unsupported,
                                mishap.mentions));
      EXPECT_EQ(free_memory(exchange.rank()), free) << "windows are freed";
      inject();
      {
        Communicator communicator = make(exchange);
        EXPECT_TRUE(mentions(communicator.explain(), mishap.mentions));
        expect_sum(communicator, "staged");
      }
      Communicator communicator = make(exchange);  // it was for once
      expect_sum(communicator, "p2p");
    });
  }
}

TEST(Windows, AreVetoedByTheSelfTestWhereALinkCorrupts) {
  for (const int corrupting : {0, 1}) {
    expect_all_right(2, [&](Exchange& exchange) {
      // The link damages what crosses it, for as long as the test takes, and only one side notices.
      if (exchange.rank() == corrupting) {
        virtual_devices::inject({.operation = Operation::kernel,
                                 .kind = FaultKind::corrupt,
                                 .device = corrupting,
                                 .peer = 1 - corrupting,
                                 .count = always});
      }
      const std::vector<std::string> reason{"does not read from member"};
      EXPECT_TRUE(test::refuses([&] { make(exchange, TransportKind::p2p); }, ErrorCode::unsupported, reason));
      Communicator communicator = make(exchange);
      EXPECT_TRUE(mentions(communicator.explain(), reason));
      expect_sum(communicator, "staged");
    });
  }
}

TEST(Windows, LieOnTheHostIfADeviceHasNoRoom) {
  expect_all_right(2, [](Exchange& exchange) {
    VirtualMachine machine = VirtualMachine::from_topology("island", 2);
    if (exchange.rank() == 1) machine.memory_bytes = std::size_t{4} << 20U;
    virtual_devices::start(machine);
    Communicator communicator = make(exchange);
    EXPECT_TRUE(mentions(communicator.explain(), {"rank 1", "left on device 1 for a window"}));
    expect_sum(communicator, "staged");
  });
}

TEST(Windows, HaveTheRoomThatIsOnlyCached) {
  expect_all_right(2, [](Exchange& exchange) {
    virtual_devices::start(VirtualMachine::from_topology("island", 2));
    const int device = exchange.rank();
    constexpr std::size_t small = std::size_t{4} << 20U;  // less than a window
    const auto fill_cache = [&] {
      const auto all = static_cast<std::int64_t>(mem_get_info(device).free - small);
      const Tensor tensor = empty({static_cast<std::int64_t>(all)}, {.dtype = DType::int8, .device = device});
      return tensor.numel();
    };
    EXPECT_GT(fill_cache(), 0);
    EXPECT_LE(mem_get_info(device).free, small) << "the cache has it";
    Communicator communicator = make(exchange, TransportKind::p2p);
    expect_sum(communicator, "p2p");
    EXPECT_GT(fill_cache(), 0);
    auto part = communicator.split(0);
    expect_sum(*part, "p2p");
  });
}

TEST(Windows, OnTheHostAreForAllRanksOrForNone) {
  for (int without = 0; without < 3; ++without) {
    expect_all_right(3, [&](Exchange& exchange) {
      expect_sum(*std::make_unique<Communicator>(make(exchange, TransportKind::staged)), "staged");
      const auto descriptors = open_descriptors();
      const auto mappings = shared_mappings();
      // First comes the memory in which the ranks find one another, then that of the windows.
      if (exchange.rank() == without)
        virtual_devices::inject({.operation = Operation::allocate_pinned, .skip = 1});
      EXPECT_TRUE(test::refuses([&] { make(exchange, TransportKind::staged); }, ErrorCode::peer_unavailable,
                                {"not all ranks can join", fmt::format("rank {}", without), "registered"}));
      EXPECT_EQ(open_descriptors(), descriptors);
      EXPECT_EQ(shared_mappings(), mappings);
      Communicator communicator = make(exchange, TransportKind::staged);  // it was for once
      expect_sum(communicator, "staged");
    });
  }
}

TEST(Windows, AreGoneWithTheirCommunicator) {
  expect_all_right(2, [&](Exchange& exchange) {
    expect_sum(*std::make_unique<Communicator>(make(exchange)), "p2p");  // what the library opens once
    const auto descriptors = open_descriptors();
    for (int repetition = 0; repetition < 10; ++repetition) {
      Communicator communicator = make(exchange);
      expect_sum(communicator, "p2p");
    }
    for (int repetition = 0; repetition < 5; ++repetition) {
      if (exchange.rank() == 1) virtual_devices::inject({.operation = Operation::open});
      EXPECT_THROW(make(exchange, TransportKind::p2p), Error);
    }
    EXPECT_EQ(open_descriptors(), descriptors);
    // Others had memory of the tensors open; a worker lets go of it when it looks for its next task.
    for (int again = 0; again < 100 && shared_mappings() != 0; ++again) {
      empty_cache();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    EXPECT_EQ(shared_mappings(), 0U);
  });
}

}  // namespace
}  // namespace tutti
