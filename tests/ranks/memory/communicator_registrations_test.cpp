// SPDX-License-Identifier: Apache-2.0
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/machines/machines.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "support/values/test_tensor.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/memory.hpp"
#include "tutti/stream.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

/// The registration cache under communicators: memory that is freed, cannot be shared, or is open in ranks
/// that stop or are killed.
namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::all_right;
using test::at_once;
using test::becomes_true;
using test::expect_all_right;
using test::failure_of;
using test::forever;
using test::free_memory;
using test::holds;
using test::killed;
using test::mentions;
using test::Ranks;
using test::refuses;
using test::time_of;
using virtual_devices::Operation;

/// Large enough to be read where they lie.
constexpr std::int64_t count = 100'000;

Communicator make(Exchange& exchange) {
  return Communicator(
      exchange, {.devices = {Device(exchange.rank())}, .timeout = 30s, .transport = TransportKind::p2p});
}

Tensor numbers(int device, double value, std::int64_t elements = count) {
  return full({elements}, value, {.dtype = DType::int32, .device = device});
}

/// Empties the cache until it has nothing left; what others take to close memory depends on the machine.
void expect_memory_back(int device, std::size_t free) {
  EXPECT_TRUE(becomes_true([&] {
    empty_cache();
    return free_memory(device) == free;
  })) << free_memory(device)
      << " instead of " << free;
}

/// Stops the process, all its threads.
void stop(pid_t process) {
  kill(process, SIGSTOP);
  EXPECT_TRUE(becomes_true([process] {
    std::ifstream file(fmt::format("/proc/{}/stat", process));
    std::string text;
    std::getline(file, text);
    return text.find(") T ") != std::string::npos;
  }));
}

TEST(RegistrationsOfACommunicator, TheCacheIsEmptiedBesideLargeCalls) {
  expect_all_right(2, [](Exchange& exchange) {
    const int device = exchange.rank();
    const std::size_t free = free_memory(device);
    std::atomic<bool> is_stopping = false;
    std::atomic<int> times = 0;
    {
      Communicator communicator = make(exchange);
      std::thread emptying([&] {
        for (; !is_stopping; ++times) empty_cache();
      });
      std::vector<Tensor> kept;
      for (int round = 1; round <= 60; ++round) {
        const Tensor mine = numbers(device, round + device);
        const Tensor sum = numbers(device, 0, count + 1000 * (round % 5)).narrow(0, 0, count);
        communicator.all_reduce_add({mine}, {sum});
        communicator.broadcast({mine}, round % 2);
        EXPECT_TRUE(mentions(communicator.last_plan().algorithm, {"direct"}));
        kept.push_back(mine);
        kept.push_back(sum);
        if (round % 3 != 0) continue;
        for (int back = 2; back >= 0; --back) {
          const std::size_t at = kept.size() - 2 - 2 * static_cast<std::size_t>(back);
          EXPECT_TRUE(holds(kept[at], round - back + (round - back) % 2));
          EXPECT_TRUE(holds(kept[at + 1], 2 * (round - back) + 1));
        }
        kept.clear();
      }
      is_stopping = true;
      emptying.join();
    }
    EXPECT_GT(times, 3);
    expect_memory_back(device, free);
  });
}

TEST(RegistrationsOfACommunicator, EmptyingTheCacheWhileTheOtherClosesNothingTakesNoMoreMemory) {
  expect_all_right(2, [](Exchange& exchange) {
    const int device = exchange.rank();
    Communicator communicator = make(exchange);
    Communicator other = make(exchange);
    const Tensor small = numbers(device, device, 4);
    const Stream waiting(device);
    if (device == 1) {
      waiting.wait_stream(current_stream(device));
      const StreamGuard guard(waiting);
      other.broadcast({small}, 0);  // until the other rank makes the call too, this one closes nothing
    }
    transport::team::synchronize(exchange);
    std::size_t free = 0;
    for (int round = 0; round < 8; ++round) {
      {
        const Tensor large = numbers(device, round + device, 3'000'000 + 100'000 * (round % 3));
        communicator.all_reduce_add({large}, {large});
        EXPECT_TRUE(holds(large, 2 * round + 1));
        EXPECT_TRUE(mentions(communicator.last_plan().algorithm, {"direct"}));
      }
      if (device == 1) continue;
      empty_cache();
      if (round == 2) free = free_memory(device);
      if (round >= 2) {
        EXPECT_EQ(free_memory(device), free) << round;
      }
    }
    if (device == 0) other.broadcast({small}, 0);
    waiting.synchronize();
    EXPECT_TRUE(holds(small, 0));
    transport::team::synchronize(exchange);
  });
}

TEST(RegistrationsOfACommunicator, ARankThatIsAheadGivesMemoryBackUnlessItWaits) {
  expect_all_right(2, [](Exchange& exchange) {
    using transport::team::synchronize;
    const int device = exchange.rank();
    Communicator communicator = make(exchange);
    for (const bool is_waiting : {false, true}) {
      const Tensor small = numbers(device, 1, 4);
      {
        const Tensor large = numbers(device, 2, 3'000'000);  // of a segment of its own
        communicator.all_reduce_add({large}, {large});
        EXPECT_TRUE(holds(large, 4));
      }
      communicator.barrier();
      tutti::synchronize(device);
      // The root of a broadcast is done without the others, and nobody else is.
      const int root = is_waiting ? 1 : 0;
      if (exchange.rank() == 0) {
        communicator.broadcast({small}, root);
        if (!is_waiting) tutti::synchronize(device);
      }
      synchronize(exchange);
      if (exchange.rank() == 1) {
        const std::size_t before = free_memory(device);
        const auto took = time_of([] { empty_cache(); });
        EXPECT_LT(took, at_once);
        EXPECT_EQ(free_memory(device) > before, !is_waiting) << "free " << free_memory(device);
      }
      synchronize(exchange);
      if (exchange.rank() == 1) communicator.broadcast({small}, root);
      tutti::synchronize(device);
      EXPECT_TRUE(holds(small, 1));
    }
  });
}

TEST(RegistrationsOfACommunicator, NothingIsClosedBesideCallsOfAnother) {
  expect_all_right(2, [](Exchange& exchange) {
    using transport::team::synchronize;
    const int device = exchange.rank();
    Communicator communicator = make(exchange);
    Communicator other = make(exchange);
    {
      const Tensor large = numbers(device, 2, 3'000'000);
      communicator.all_reduce_add({large}, {large});
      EXPECT_TRUE(holds(large, 4));
    }
    const Tensor small = numbers(device, device, 4);
    tutti::synchronize(device);
    if (device == 1) other.broadcast({small}, 0);
    synchronize(exchange);
    if (device == 0) {
      const std::size_t before = free_memory(device);
      EXPECT_LT(time_of([] { empty_cache(); }), 1s + at_once);
      EXPECT_EQ(free_memory(device), before) << "the other waits in a call";
      EXPECT_LT(time_of([] { empty_cache(); }), at_once) << "which is known by now";
      EXPECT_EQ(free_memory(device), before);
      other.broadcast({small}, 0);
      EXPECT_TRUE(becomes_true([&] {
        empty_cache();
        return free_memory(device) > before;
      }));
    }
    EXPECT_TRUE(holds(small, 0));
    synchronize(exchange);
  });
}

TEST(RegistrationsOfACommunicator, TwoHaveTheSameTensorsOpen) {
  expect_all_right(2, [](Exchange& exchange) {
    const int device = exchange.rank();
    const std::size_t free = free_memory(device);
    {
      std::vector<Communicator> communicators;
      for (int i = 0; i < 2; ++i) communicators.push_back(make(exchange));
      for (int round = 0; round < 10; ++round) {
        const Tensor mine = numbers(device, 10 * round + device);
        synchronize(device);
        const auto call_on_a_thread = [&](std::size_t which) {
          return std::thread([&, which] {
            const Stream stream(device);
            const StreamGuard guard(stream);
            for (int call = 0; call < 3; ++call) {
              if (which == 0) {
                const Tensor sum = numbers(device, -1);
                communicators[0].all_reduce_add({mine}, {sum});
                EXPECT_TRUE(holds(sum, 20 * round + 1));
              } else {
                const Tensor all = numbers(device, -1, 2 * count);
                communicators[1].all_gather({mine}, {all});
                EXPECT_TRUE(holds(all.narrow(0, 0, count), 10 * round));
                EXPECT_TRUE(holds(all.narrow(0, count, count), 10 * round + 1));
              }
            }
          });
        };
        std::thread first = call_on_a_thread(0);
        std::thread second = call_on_a_thread(1);
        first.join();
        second.join();
        for (const Communicator& communicator : communicators)
          EXPECT_TRUE(mentions(communicator.last_plan().algorithm, {"direct"}));
        EXPECT_TRUE(holds(mine, 10 * round + device));
        if (round == 5) communicators.erase(communicators.begin());
        if (round == 5) communicators.insert(communicators.begin(), make(exchange));
        if (round % 2 == 1) empty_cache();
      }
    }
    expect_memory_back(device, free);
  });
}

TEST(RegistrationsOfACommunicator, AStoppedRankKeepsMemoryUntilItGoesOn) {
  expect_all_right(2, [](Exchange& exchange) {
    const int device = exchange.rank();
    const pid_t other = transport::team::gather(exchange, getpid())[static_cast<std::size_t>(1 - device)];
    const std::size_t free = free_memory(device);
    {
      Communicator communicator = make(exchange);
      const std::size_t free_of_tensors = free_memory(device);
      {
        const Tensor mine = numbers(device, 1);
        communicator.all_reduce_add({mine}, {mine});
        EXPECT_TRUE(holds(mine, 2));
      }
      transport::team::synchronize(exchange);
      if (device == 0) {
        stop(other);
        EXPECT_LT(time_of([] { empty_cache(); }), 1s + at_once);
        EXPECT_LT(free_memory(device), free_of_tensors);
        kill(other, SIGCONT);
      }
      expect_memory_back(device, free_of_tensors);
      transport::team::synchronize(exchange);  // with a call under way, the other would close nothing
      const Tensor mine = numbers(device, 3);
      communicator.broadcast({mine}, 0);
      EXPECT_TRUE(holds(mine, 3));
    }
    expect_memory_back(device, free);
  });
}

TEST(RegistrationsOfACommunicator, ARankIsKilledWhileAnotherWaitsForItToOpenMemory) {
  Ranks ranks(3, [](Exchange& exchange) {
    const int device = exchange.rank();
    const pid_t victim = transport::team::gather(exchange, getpid())[2];
    const std::size_t free = free_memory(device);
    {
      Communicator communicator = make(exchange);
      const std::size_t free_of_tensors = free_memory(device);
      {
        std::vector<Tensor> tensors;  // segments of their own
        for (int i = 0; i < 4; ++i) tensors.push_back(numbers(device, device == 0 ? i : -1, 2'700'000));
        for (const Tensor& tensor : tensors) communicator.broadcast({tensor}, 0);
        for (int i = 0; i < 4; ++i) EXPECT_TRUE(holds(tensors[static_cast<std::size_t>(i)], i));
        transport::team::synchronize(exchange);
        while (device == 2) pause();
        std::thread killer;
        if (device == 0) {
          stop(victim);
          killer = std::thread([victim] {
            std::this_thread::sleep_for(100ms);
            kill(victim, SIGKILL);
          });
        }
        const std::string text =
            failure_of(device, [&] { communicator.broadcast({numbers(device, 1, 2'700'000)}, 0); });
        EXPECT_TRUE(mentions(text, {"rank 2", "is gone"}));
        if (killer.joinable()) killer.join();
      }
      EXPECT_LT(time_of([] { empty_cache(); }), at_once);
      if (device == 0) {
        EXPECT_LT(free_memory(device), free_of_tensors) << "others have it open";
      } else {
        EXPECT_EQ(free_memory(device), free_of_tensors);
      }
    }
    expect_memory_back(device, free);
  });
  EXPECT_EQ(ranks.wait(), (std::vector{all_right, all_right, killed}));
}

TEST(RegistrationsOfACommunicator, ListsOfAnyLength) {
  expect_all_right(2, [](Exchange& exchange) {
    const int device = exchange.rank();
    Communicator communicator = make(exchange);
    for (const int length : {512, 513}) {
      SCOPED_TRACE(length);
      std::vector<std::vector<Tensor>> mine(1);
      for (int i = 0; i < length; ++i) mine[0].push_back(numbers(device, i + device, 25'600));
      communicator.all_reduce_add_coalesced(mine, mine);
      EXPECT_EQ(communicator.last_plan().algorithm.find("direct") != std::string::npos, length == 512)
          << communicator.last_plan().algorithm;
      for (int i = 0; i < length; ++i)
        EXPECT_TRUE(holds(mine[0][static_cast<std::size_t>(i)], 2 * i + 1)) << "tensor " << i;
    }
  });
}

/// Also in expandable segments, whose blocks get other bounds, and whose memory comes and goes.
TEST(RegistrationsOfACommunicator, BlocksOfChangingSizes) {
  expect_all_right(2, [](Exchange& exchange) {
    const int device = exchange.rank();
    Communicator communicator = make(exchange);
    for (int round = 0; round < 12; ++round) {
      SCOPED_TRACE(round);
      const std::int64_t elements = 1'200'000 + 700'000 * (round * 5 % 4);
      for (const std::int64_t part : {1, 3, 2}) {  // freed while calls that use them are under way
        const Tensor passing = zeros({elements / part}, {.dtype = DType::int32, .device = device});
        communicator.all_reduce({passing}, {passing});
        EXPECT_EQ(communicator.last_plan().algorithm.find("stand-ins"), std::string::npos);
      }
      const Tensor before = numbers(device, round + device, elements);
      const Tensor after = numbers(device, round, elements / 2 + 1'000'000);
      for (const Tensor& tensor : {before, after}) {
        communicator.all_reduce({tensor}, {tensor});
        const std::string algorithm = communicator.last_plan().algorithm;
        EXPECT_NE(algorithm.find("direct"), std::string::npos) << algorithm;
        EXPECT_EQ(algorithm.find("stand-ins"), std::string::npos) << algorithm;
      }
      EXPECT_TRUE(holds(before, 2 * round + 1));
      EXPECT_TRUE(holds(after, 2 * round));
      if (round % 4 == 3) empty_cache();
    }
  });
}

TEST(RegistrationsOfACommunicator, ARankThatCannotOpenMemoryEndsAll) {
  expect_all_right(3, [](Exchange& exchange) {
    const int device = exchange.rank();
    const std::size_t free = free_memory(device);
    {
      Communicator communicator = make(exchange);
      const Tensor first = numbers(device, 1);
      if (device == 1) virtual_devices::inject({.operation = Operation::open, .peer = 0});
      transport::team::synchronize(exchange);
      const std::string text = failure_of(device, [&] { communicator.broadcast({first}, 0); });
      const std::vector<std::string> reason{"rank 1 cannot open memory of rank 0", "device 1", "injected"};
      EXPECT_TRUE(mentions(text, reason));
      EXPECT_FALSE(communicator.is_running());
      EXPECT_TRUE(refuses([&] { communicator.barrier(); }, ErrorCode::transport_failure, reason));
    }
    expect_memory_back(device, free);
    Communicator communicator = make(exchange);
    const Tensor again = numbers(device, device);
    communicator.broadcast({again}, 2);
    EXPECT_TRUE(holds(again, 2));
  });
}

TEST(RegistrationsOfACommunicator, MemoryThatCannotBeSharedIsCopied) {
  expect_all_right(2, [](Exchange& exchange) {
    const int device = exchange.rank();
    Communicator communicator = make(exchange);
    for (int round = 0; round < 4; ++round) {
      const Tensor mine = numbers(device, round + device, 2'700'000);
      synchronize(device);
      if (device == round % 2) virtual_devices::inject({.operation = Operation::share});
      communicator.all_reduce_add({mine}, {mine});
      EXPECT_TRUE(mentions(communicator.last_plan().algorithm, {"direct"}));
      EXPECT_TRUE(holds(mine, 2 * round + 1));
      empty_cache();
    }
    EXPECT_TRUE(communicator.is_running());
  });
}

TEST(RegistrationsOfACommunicator, ARankThatCanShareNothingEndsAll) {
  expect_all_right(2, [](Exchange& exchange) {
    const int device = exchange.rank();
    const std::size_t free = free_memory(device);
    {
      Communicator communicator = make(exchange);
      if (device == 1) virtual_devices::inject({.operation = Operation::share, .count = forever});
      const Tensor mine = numbers(device, 1);
      const std::string text = failure_of(device, [&] { communicator.all_reduce_add({mine}, {mine}); });
      const std::vector<std::string> reason{"rank 1 failed in all_reduce", "memory of member 1",
                                            "cannot be opened", "device 1 cannot share its memory",
                                            "injected"};
      EXPECT_TRUE(mentions(text, {"memory of member 1"}));
      EXPECT_TRUE(refuses([&] { communicator.barrier(); }, ErrorCode::transport_failure, reason));
    }
    virtual_devices::clear_faults();
    expect_memory_back(device, free);
  });
}

}  // namespace
}  // namespace tutti
