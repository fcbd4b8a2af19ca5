// SPDX-License-Identifier: Apache-2.0
#include "support/thread_ranks.hpp"

#include "ranks/contract/contract.hpp"
#include "support/errors.hpp"
#include "support/timing.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/tutti.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Ranks that are threads of one process.
namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr std::int64_t small = 4;
constexpr std::int64_t large = 300'000;  // read in place

struct ThreadShape {
  int processes;
  int threads;
  int members = 1;  ///< of each rank
  TransportKind transport = TransportKind::automatic;
};

std::string name_of_shape(const testing::TestParamInfo<ThreadShape>& info) {
  const ThreadShape& shape = info.param;
  return std::to_string(shape.processes) + "x" + std::to_string(shape.threads) + "x" +
         std::to_string(shape.members) + (shape.transport == TransportKind::staged ? "staged" : "");
}

CommunicatorOptions options_of(const Exchange& exchange, const ThreadShape& shape) {
  CommunicatorOptions options;
  for (int member = 0; member < shape.members; ++member)
    options.devices.emplace_back((exchange.rank() * shape.members + member) % device_count());
  options.transport = shape.transport;
  return options;
}

CommunicatorOptions on_own_device(const Exchange& exchange) {
  return options_of(exchange, {});
}

Tensor of_rank(int rank, std::int64_t count, int value) {
  return full({count}, value, {.dtype = DType::int32, .device = rank});
}

bool have_devices(const ThreadShape& shape) {
  return device_count() >= shape.threads * shape.members;
}

class ThreadRanks : public testing::TestWithParam<ThreadShape> {};

TEST_P(ThreadRanks, KeepTheContract) {
  const ThreadShape& shape = GetParam();
  expect_threads_right(shape.processes, shape.threads, [&](Exchange& exchange) {
    if (!have_devices(shape)) return;
    for (const ranks::Rule& rule : ranks::short_contract()) {
      SCOPED_TRACE(rule.name);
      // It empties the cache, for which all devices of the process must come to rest, while others wait.
      if (std::string_view(rule.name) == "MemoryIsOpenedAndClosedWhileOthersWait") continue;
      CommunicatorOptions options = options_of(exchange, shape);
      options.determinism = rule.determinism;
      Communicator communicator(exchange, options);
      const bool is_direct = communicator.explain().find("rounds: p2p") != std::string::npos;
      EXPECT_EQ(is_direct, shape.transport == TransportKind::automatic) << communicator.explain();
      rule.check(communicator);
    }
  });
}

INSTANTIATE_TEST_SUITE_P(Shapes, ThreadRanks,
                         testing::Values(ThreadShape{1, 2}, ThreadShape{1, 4}, ThreadShape{2, 2},
                                         ThreadShape{1, 2, 2}, ThreadShape{1, 2, 1, TransportKind::staged}),
                         name_of_shape);

TEST(ThreadRanks, AddWhatAllOfThemGive) {
  expect_threads_right(1, 2, [](Exchange& exchange) {
    if (device_count() < 2) return;
    const int rank = exchange.rank();
    Communicator communicator(exchange, on_own_device(exchange));
    for (const std::int64_t count : {small, large}) {
      const Tensor mine = of_rank(rank, count, rank + 1);
      for (int call = 0; call < 20; ++call) communicator.all_reduce_add({mine}, {mine});
      EXPECT_TRUE(holds(mine, 3 << 19)) << count;
    }
  });
}

TEST(ThreadRanks, SendOneAnotherMessages) {
  expect_threads_right(2, 2, [](Exchange& exchange) {
    if (device_count() < 4) return;
    const int rank = exchange.rank();
    Communicator communicator(exchange, on_own_device(exchange));
    for (const std::int64_t count : {small, large}) {
      for (int distance = 1; distance < 4; ++distance) {
        const Tensor mine = of_rank(rank, count, rank);
        const Tensor got = communicator.sendrecv(mine, (rank + distance) % 4, (rank + 4 - distance) % 4);
        EXPECT_TRUE(holds(got, (rank + 4 - distance) % 4)) << count << " from " << distance;
      }
    }
  });
}

TEST(ThreadRanks, AreSplit) {
  expect_threads_right(1, 4, [](Exchange& exchange) {
    if (device_count() < 4) return;
    const int rank = exchange.rank();
    Communicator communicator(exchange, on_own_device(exchange));
    std::optional<Communicator> part = communicator.split(rank % 2, -rank);
    ASSERT_TRUE(part.has_value());
    EXPECT_EQ(part->rank(), rank < 2 ? 1 : 0);
    const Tensor mine = of_rank(rank, large, rank);
    part->all_reduce_add({mine}, {mine});
    EXPECT_TRUE(holds(mine, rank % 2 == 0 ? 2 : 4));
    EXPECT_EQ(communicator.split(rank == 0 ? std::optional<int>() : 0).has_value(), rank != 0);
  });
}

TEST(ThreadRanks, BindCallsAndCaptureThem) {
  expect_threads_right(1, 2, [](Exchange& exchange) {
    if (device_count() < 2) return;
    const int rank = exchange.rank();
    Communicator communicator(exchange, on_own_device(exchange));
    const Tensor mine = of_rank(rank, large, rank + 1);
    synchronize(rank);
    PersistentCollective step = communicator.persistent([&] { communicator.all_reduce_add({mine}, {mine}); });
    for (int launch = 0; launch < 3; ++launch) step.launch();
    EXPECT_TRUE(holds(mine, 12));
    const Stream stream(rank);
    const Graph graph =
        Graph::capture(stream, [&] { communicator.all_reduce_add({mine}, {mine}, {stream}); });
    for (int launch = 0; launch < 3; ++launch) graph.launch(stream);
    stream.synchronize();
    EXPECT_TRUE(holds(mine, 96));
  });
}

TEST(ThreadRanks, GiveBackTheMemoryThatOthersHaveRead) {
  expect_threads_right(1, 2, [](Exchange& exchange) {
    if (device_count() < 2) return;
    const int rank = exchange.rank();
    Communicator communicator(exchange, on_own_device(exchange));
    const std::size_t before = memory_reserved(rank);
    {
      const Tensor mine = of_rank(rank, large, rank + 1);
      communicator.all_reduce_add({mine}, {mine});
      EXPECT_TRUE(holds(mine, 3));
    }
    communicator.barrier();
    synchronize(rank);
    EXPECT_TRUE(becomes_true([&] {
      empty_cache();
      return memory_reserved(rank) <= before;
    }));
  });
}

TEST(ThreadRanks, NameTheOneThatIsLate) {
  expect_threads_right(1, 2, [](Exchange& exchange) {
    if (device_count() < 2) return;
    const int rank = exchange.rank();
    CommunicatorOptions options = on_own_device(exchange);
    options.patience = patient(500ms);
    Communicator communicator(exchange, options);
    const Tensor mine = of_rank(rank, large, 1);
    if (rank == 0) {
      const std::string text = failure_of(0, [&] { communicator.all_reduce_add({mine}, {mine}); });
      EXPECT_TRUE(mentions(text, {"all_reduce", "rank 1 has not made it"}));
    } else {
      EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
      EXPECT_TRUE(refuses([&] { communicator.barrier(); }, ErrorCode::timeout, {"rank 1 has not made it"}));
    }
  });
}

TEST(ThreadRanks, AreEndedTogether) {
  expect_threads_right(1, 2, [](Exchange& exchange) {
    if (device_count() < 2) return;
    Communicator communicator(exchange, on_own_device(exchange));
    const Tensor mine = of_rank(exchange.rank(), large, 1);
    if (exchange.rank() == 0) communicator.abort("enough");
    EXPECT_TRUE(becomes_true([&] { return !communicator.is_running(); }));
    EXPECT_TRUE(refuses([&] { communicator.all_reduce_add({mine}, {mine}); }, ErrorCode::aborted,
                        {"rank 0", "enough"}));
  });
}

TEST(ThreadRanks, AreToldWhoHasLeft) {
  expect_threads_right(1, 2, [](Exchange& exchange) {
    if (device_count() < 2) return;
    Communicator communicator(exchange, on_own_device(exchange));
    if (exchange.rank() == 1) return;
    const Tensor mine = of_rank(0, large, 1);
    const std::string text = failure_of(0, [&] { communicator.all_reduce_add({mine}, {mine}); });
    EXPECT_TRUE(mentions(text, {"rank 1 has left"}));
  });
}

TEST(ThreadRanks, GoOnWithoutOneThatHasLeft) {
  expect_threads_right(1, 3, [](Exchange& exchange) {
    if (device_count() < 3) return;
    const int rank = exchange.rank();
    Communicator communicator(exchange, on_own_device(exchange));
    SymmetricMemory memory = communicator.symmetric({large}, DType::int32);
    if (rank == 1) return;
    communicator = communicator.shrink();
    EXPECT_EQ(communicator.rank_count(), 2);
    EXPECT_TRUE(refuses([&] { static_cast<void>(memory.tensor()); }, ErrorCode::invalid_argument,
                        {"its communicator has been destroyed"}));
    memory = communicator.symmetric({large}, DType::int32);
    memory.tensor().fill_(rank + 1);
    communicator.all_reduce_add({memory.tensor()}, {memory.tensor()});
    EXPECT_TRUE(holds(memory.tensor(), 4));
  });
}

/// Calls `work` on each rank of two threads, and destroys their communicators in a third, that of rank
/// `first` before the other, at once.
void expect_one_thread_destroys_all(std::size_t first, const std::function<void(Communicator&, int)>& work) {
  expect_all_right(1, [&](Exchange& process) {
    if (device_count() < 2) return;
    std::vector<Communicator> communicators(2);
    run_threads(process, 2, [&](Exchange& exchange) {
      Communicator communicator(exchange, on_own_device(exchange));
      work(communicator, exchange.rank());
      synchronize(exchange.rank());
      communicators[static_cast<std::size_t>(exchange.rank())] = std::move(communicator);
    });
    for (const std::size_t rank : {first, 1 - first}) {
      EXPECT_LT(time_of([&] { Communicator ends = std::move(communicators[rank]); }), at_once) << rank;
    }
    for (const int device : {0, 1}) {
      empty_cache();
      EXPECT_EQ(memory_reserved(device), 0U) << device;
    }
  });
}

TEST(ThreadRanks, AreDestroyedByOneThread) {
  for (const std::size_t first : {0U, 1U}) {
    expect_one_thread_destroys_all(first, [](Communicator& communicator, int rank) {
      const Tensor mine = of_rank(rank, large, 1);
      communicator.all_reduce_add({mine}, {mine});
    });
  }
}

TEST(ThreadRanks, ThatHaveCapturedCallsAreDestroyedByOneThread) {
  expect_one_thread_destroys_all(0, [](Communicator& communicator, int rank) {
    const Tensor mine = of_rank(rank, large, 1);
    const Stream stream(rank);
    synchronize(rank);
    const Graph graph =
        Graph::capture(stream, [&] { communicator.all_reduce_add({mine}, {mine}, {stream}); });
    graph.launch(stream);
    stream.synchronize();
    EXPECT_TRUE(holds(mine, 2));
  });
}

TEST(ThreadRanks, ThatHaveSymmetricMemoryAreDestroyedByOneThread) {
  expect_all_right(1, [](Exchange& process) {
    if (device_count() < 2) return;
    std::vector<Communicator> communicators(2);
    std::vector<SymmetricMemory> memory(2);
    run_threads(process, 2, [&](Exchange& exchange) {
      const auto rank = static_cast<std::size_t>(exchange.rank());
      Communicator communicator(exchange, on_own_device(exchange));
      memory[rank] = communicator.symmetric({large}, DType::int32);
      for (int member = 0; member < 2; ++member)
        EXPECT_EQ(memory[rank].peer_data(member) == memory[rank].tensor().data(), member == exchange.rank());
      communicators[rank] = std::move(communicator);
    });
    EXPECT_EQ(memory[0].peer_data(1), memory[1].tensor().data());
    for (Communicator& communicator : communicators)
      EXPECT_LT(time_of([&] { const Communicator ends = std::move(communicator); }), at_once);
    memory.clear();
    for (const int device : {0, 1}) {
      EXPECT_TRUE(becomes_true([device] {
        empty_cache();
        return memory_reserved(device) == 0;
      })) << device;
    }
  });
}

TEST(ThreadRanks, DoNotShareADevice) {
  expect_threads_right(1, 2, [](Exchange& exchange) {
    EXPECT_TRUE(refuses([&] { const Communicator communicator(exchange, {.devices = {0}}); },
                        ErrorCode::invalid_argument,
                        {"options.devices has device 0 on ranks 0 and 1", "threads of one process"}));
  });
}

}  // namespace
}  // namespace tutti::test
