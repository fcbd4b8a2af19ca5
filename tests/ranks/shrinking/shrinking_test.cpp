// SPDX-License-Identifier: Apache-2.0
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "ranks/shrinking/changed_ranks.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/memory/process_resources.hpp"
#include "support/ranks.hpp"
#include "support/shared_object.hpp"
#include "support/thread_ranks.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/persistent.hpp"
#include "tutti/stream.hpp"
#include "tutti/virtual_devices.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// Ranks that go on as a smaller communicator.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

/// Returns the limit for ranks that do not come, in tests that wait for it. On a GPU that many processes
/// share, opening memory takes long.
std::chrono::milliseconds short_timeout() {
  return patient(backend_kind() == BackendKind::host ? 300ms : 3000ms);
}

void expect_to_go_on_soon(int count) {
  Ranks ranks(count, [count](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const Tensor tensor = full({10'000}, 1, {.dtype = DType::float32, .device = 0});
    communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    transport::team::synchronize(exchange);
    if (exchange.rank() == 1) std::raise(SIGKILL);
    const Stopwatch watch;
    static_cast<void>(failure_of(0, [&] { communicator.all_reduce_add({tensor}, {tensor}); }));
    communicator = communicator.shrink();
    communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    EXPECT_LT(watch.elapsed(), slack);
    if (exchange.rank() == 0)
      std::printf("%d ranks: %lld ms\n", count, static_cast<long long>(watch.elapsed() / 1ms));
    expect_works(communicator, exchange.rank() == 0 ? 0 : exchange.rank() - 1, count - 1);
  });
  std::vector<Ending> endings(static_cast<std::size_t>(count), all_right);
  endings[1] = killed;
  expect_endings(ranks, endings);
}

TEST(Shrinking, GoesOnWithoutAKilledRankSoon) {
  expect_to_go_on_soon(4);
}

TEST(Shrinking, GoesOnAloneSoon) {
  expect_to_go_on_soon(2);
}

TEST(Shrinking, ShrinksAgainDownToOneRank) {
  const SharedObject<std::atomic<int>> have_worked;
  Ranks ranks(4, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    int all_so_far = 0;
    for (int lost = 3; lost > 0; --lost) {
      if (exchange.rank() == lost) {
        EXPECT_TRUE(becomes_true([&] { return have_worked->load() == all_so_far; }));
        std::raise(SIGKILL);
      }
      await_end(communicator);
      communicator = communicator.shrink();
      expect_works(communicator, exchange.rank(), lost);
      ++*have_worked;
      all_so_far += lost;
    }
  });
  expect_endings(ranks, {all_right, killed, killed, killed});
}

TEST(Shrinking, GoesOnWithoutAStoppedRankWhichThenLearnsIt) {
  Ranks ranks(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange, short_timeout());
    if (exchange.rank() == 2) {
      std::raise(SIGSTOP);
      await_end(communicator);
      EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.shrink()); }, ErrorCode::timeout,
                          {"ranks 0 and 1 went on without rank 2"}));
      return;
    }
    const Tensor tensor = some_tensor();
    static_cast<void>(failure_of(0, [&] { communicator.all_reduce_add({tensor}, {tensor}); }));
    communicator = communicator.shrink();
    expect_works(communicator, exchange.rank(), 2);
  });
  ranks.resume_after_others(hang_limit(), 2);
  expect_endings(ranks, {all_right, all_right, all_right});
}

TEST(Shrinking, GoesOnWithoutRanksThatHaveLeft) {
  expect_all_right(3, [](Exchange& exchange) {
    std::optional<Communicator> communicator = make(exchange, hang_limit());
    if (exchange.rank() == 0) return communicator.reset();
    const Tensor tensor = some_tensor();
    static_cast<void>(failure_of(0, [&] { communicator->all_reduce_add({tensor}, {tensor}); }));
    communicator = communicator->shrink();
    expect_works(*communicator, exchange.rank() - 1, 2);
  });
}

TEST(Shrinking, GoesOnWithoutRanksThatAreNamed) {
  expect_all_right(4, [](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const Tensor tensor = full({10'000}, 1, {.dtype = DType::float32, .device = 0});
    communicator.all_reduce_add({tensor}, {tensor});
    if (exchange.rank() == 2) {
      await_end(communicator);
      EXPECT_TRUE(refuses([&] { communicator.check(); }, ErrorCode::aborted,
                          {"ranks 0 and 3 go on as another communicator"}));
      return;
    }
    Communicator smaller = communicator.shrink({.leaving = {2, 1}});
    EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(10'000, 4.0F)) << "calls are waited for";
    if (exchange.rank() == 1) {
      EXPECT_FALSE(smaller);
      return await_end(communicator);
    }
    EXPECT_FALSE(communicator.is_running());
    expect_works(smaller, exchange.rank() / 3, 2);
  });
}

TEST(Shrinking, KeepsAllRanksAfterAnEndThatIsNobodysLoss) {
  expect_all_right(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    if (exchange.rank() == 1) communicator.abort("of a test");
    await_end(communicator);
    communicator = communicator.shrink();
    expect_works(communicator, exchange.rank(), 3);
  });
}

TEST(Shrinking, NamesWhoIsLateOnAllRanksAndMayBeTriedAgain) {
  expect_all_right(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const auto rank = exchange.rank();
    if (rank == 0) communicator.abort("of a test");
    await_end(communicator);
    const Stopwatch watch;
    if (rank != 2) {
      EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.shrink({.timeout = short_timeout()})); },
                          ErrorCode::timeout, {"shrink: rank 2 did not come", within(short_timeout())}));
      EXPECT_LT(watch.elapsed(), short_timeout() + slack);
    }
    transport::team::synchronize(exchange);
    communicator = communicator.shrink();
    expect_works(communicator, rank, 3);
  });
}

TEST(Shrinking, LeavesOutWhoIsLateByChoice) {
  expect_all_right(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const ShrinkOptions options{.late = LateRanks::leave_out, .timeout = short_timeout()};
    if (exchange.rank() == 0) communicator.abort("of a test");
    await_end(communicator);
    if (exchange.rank() == 0) {
      transport::team::synchronize(exchange);
      EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.shrink(options)); }, ErrorCode::timeout,
                          {"ranks 1 and 2 went on without rank 0"}));
      return;
    }
    Communicator smaller = communicator.shrink(options);
    expect_works(smaller, exchange.rank() - 1, 2);
    EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.shrink(options)); }, ErrorCode::invalid_argument,
                        {"ranks 1 and 2 have gone on as another communicator already"}));
    transport::team::synchronize(exchange);
  });
}

TEST(Shrinking, RefusesWishesThatDiffer) {
  expect_all_right(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const int rank = exchange.rank();
    const std::vector<int> leaving = rank == 0 ? std::vector<int>{} : std::vector<int>{2};
    if (rank != 2) {
      EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.shrink({.leaving = leaving})); },
                          ErrorCode::invalid_argument,
                          {"options.leaving is", "nobody on rank 0", "rank 2 on rank 1"}));
      EXPECT_TRUE(communicator.is_running());
    }
    transport::team::synchronize(exchange);
    const LateRanks late = rank == 1 ? LateRanks::leave_out : LateRanks::fail;
    EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.shrink({.late = late})); },
                        ErrorCode::invalid_argument, {"options.late differs"}));
    transport::team::synchronize(exchange);
    EXPECT_TRUE(communicator.is_running());
    expect_works(communicator, rank, 3);
  });
}

TEST(Shrinking, RefusesBadOptions) {
  expect_all_right(1, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const auto is_refused = [&](const ShrinkOptions& options, const std::string& text) {
      return refuses([&] { static_cast<void>(communicator.shrink(options)); }, ErrorCode::invalid_argument,
                     {"Communicator::shrink", text});
    };
    EXPECT_TRUE(is_refused({.leaving = {1}}, "options.leaving[0] is 1, expected a rank, 0 to 0"));
    EXPECT_TRUE(is_refused({.leaving = {0}}, "options.leaving has all 1 ranks"));
    EXPECT_TRUE(is_refused({.leaving = {0, 0}}, "options.leaving has rank 0 twice"));
    EXPECT_TRUE(is_refused({.timeout = 0ms}, "options.timeout is 0 ms, expected more than 0"));
    EXPECT_TRUE(is_refused({.late = static_cast<LateRanks>(7)}, "options.late"));
    EXPECT_TRUE(communicator.is_running());
    communicator = communicator.shrink();
    expect_works(communicator, 0, 1);
  });
}

/// Launches of graphs end before their communicator does.
TEST(Shrinking, WaitsForBoundCalls) {
  expect_all_right(1, [](Exchange& /*exchange*/) {
    std::vector<Device> devices{Device(0)};
    if (device_count() > 1) devices.emplace_back(1);
    for (int round = 0; round < 10; ++round) {
      Communicator communicator({.devices = devices});
      std::vector<Tensor> values;
      for (const Device device : devices) values.push_back(full({100'000}, 1, {.device = device}));
      for (const Device device : devices) synchronize(device);
      PersistentCollective bound = communicator.persistent(
          [&communicator, values] { communicator.all_reduce(values, values, ReduceOp::avg); });
      for (int launch = 0; launch < 5; ++launch) bound.launch();
      Communicator next = communicator.shrink();
      for (const Device device : devices) synchronize(device);
      EXPECT_EQ(values.back().to_vector<float>(), std::vector<float>(100'000, 1));
    }
  });
}

TEST(Shrinking, IsRefusedBetweenHostsThatTcpDoesNotConnect) {
  expect_all_right(2, [](Exchange& exchange) {
    pretend_host(exchange.rank());
    Communicator communicator = make(exchange, hang_limit());
    EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.shrink()); }, ErrorCode::unsupported,
                        {"the ranks are on 2 hosts"}));
    // Between hosts NCCL connects GPUs, and these ranks share one.
    if (backend_kind() == BackendKind::host) expect_works(communicator, exchange.rank(), 2);
  });
}

TEST(Shrinking, KeepsOptionsAndMembersOfSeveralDevices) {
  expect_all_right(3, [](Exchange& exchange) {
    const int rank = exchange.rank();
    const int count = device_count();
    std::vector<Device> devices{Device(rank % count)};
    if (rank == 2 && count > 1) devices.emplace_back((rank + 1) % count);
    Communicator communicator(exchange, {.devices = devices,
                                         .timeout = hang_limit(),
                                         .window_bytes = std::size_t{1} << 20U,
                                         .transport = TransportKind::staged,
                                         .determinism = Determinism::bitwise});
    if (rank == 0) return;
    communicator = communicator.shrink();
    EXPECT_EQ(communicator.devices(), devices);
    EXPECT_EQ(communicator.member_count(), count > 1 ? 3 : 2);
    EXPECT_EQ(communicator.first_member(), rank - 1);
    communicator.barrier();
    EXPECT_EQ(communicator.last_plan().transport.substr(0, 6), "staged");
  });
}

TEST(Shrinking, LeavesTensorsAndStreamsAlone) {
  Ranks ranks(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const Tensor memory = full({300'000}, 1, {.dtype = DType::float32, .device = 0});
    const Tensor kept = full({300'000}, 5, {.dtype = DType::float32, .device = 0});
    const Stream stream(0);
    stream.wait_stream(current_stream(0));
    communicator.all_reduce_add({memory}, {memory}, {stream});
    stream.synchronize();
    EXPECT_EQ(memory.to_vector<float>(), std::vector<float>(300'000, 3.0F));
    transport::team::synchronize(exchange);
    if (exchange.rank() == 2) std::raise(SIGKILL);
    await_end(communicator);
    communicator = communicator.shrink();
    EXPECT_EQ(kept.to_vector<float>(), std::vector<float>(300'000, 5.0F));
    EXPECT_EQ(memory.to_vector<float>(), std::vector<float>(300'000, 3.0F));
    communicator.all_reduce_add({memory}, {memory}, {stream});
    stream.synchronize();
    EXPECT_EQ(memory.to_vector<float>(), std::vector<float>(300'000, 6.0F));
  });
  expect_endings(ranks, {all_right, all_right, killed});
}

TEST(Shrinking, BindsCallsAgain) {
  Ranks ranks(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const Tensor sum = full({10'000}, 1, {.dtype = DType::float32, .device = 0});
    PersistentCollective bound =
        communicator.persistent([&communicator, sum] { communicator.all_reduce_add({sum}, {sum}); });
    bound.launch();
    synchronize(0);
    transport::team::synchronize(exchange);
    if (exchange.rank() == 0) std::raise(SIGKILL);
    await_end(communicator);
    EXPECT_TRUE(refuses([&] { bound.launch(); }, ErrorCode::peer_unavailable, {"rank 0", "is gone"}));
    communicator = communicator.shrink();
    EXPECT_TRUE(refuses([&] { bound.launch(); }, ErrorCode::invalid_argument, {"is gone", "rebind"}));
    bound.rebind(communicator);
    EXPECT_EQ(bound.home_device(), 0);
    for (int launch = 0; launch < 3; ++launch) bound.launch();
    EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(10'000, 24.0F));
    communicator.check();
  });
  expect_endings(ranks, {killed, all_right, all_right});
}

TEST(Shrinking, RefusesToBindWhatIsNoCallOfACommunicator) {
  expect_all_right(1, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const Tensor tensor = some_tensor(10);
    PersistentCollective bound = persistent_broadcast(tensor, {tensor});
    EXPECT_TRUE(refuses([&] { bound.rebind(communicator); }, ErrorCode::invalid_argument,
                        {"PersistentCollective::rebind", "expected calls of a communicator"}));
    bound.launch();
  });
}

TEST(Shrinking, FailsOnAllRanksIfOneOfThemCannotAndMayBeTriedAgain) {
  expect_all_right(3, [](Exchange& exchange) {
    if (!on_virtual_devices()) return;
    Communicator communicator = make(exchange, hang_limit());
    transport::team::synchronize(exchange);
    if (exchange.rank() == 0) communicator.abort("of a test");
    await_end(communicator);
    const std::size_t mappings = shared_mappings();
    if (exchange.rank() == 1)
      virtual_devices::inject({.operation = virtual_devices::Operation::allocate_pinned});
    EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.shrink()); }, ErrorCode::peer_unavailable,
                        {"Communicator::shrink: not all ranks can join", "rank 1"}));
    EXPECT_EQ(shared_mappings(), mappings);
    transport::team::synchronize(exchange);
    communicator = communicator.shrink();
    expect_works(communicator, exchange.rank(), 3);
  });
}

TEST(Shrinking, LeavesThreadsOfAProcessWhenAnotherIsKilled) {
  Ranks ranks(2, [](Exchange& processes) {
    run_threads(processes, 2, [](Exchange& exchange) {
      const int rank = exchange.rank();
      const bool has_devices = device_count() > 1;  // threads of a process have one each
      Communicator communicator;
      if (has_devices)
        communicator = Communicator(exchange, {.devices = {Device(rank % 2)}, .timeout = hang_limit()});
      transport::team::synchronize(exchange);
      if (rank == 2) std::raise(SIGKILL);
      if (!has_devices) return;
      await_end(communicator);
      communicator = communicator.shrink();
      EXPECT_EQ(communicator.rank(), rank);
      EXPECT_EQ(communicator.rank_count(), 2);
      const Tensor sum = full({300'000}, rank + 1, {.dtype = DType::float32, .device = Device(rank)});
      communicator.all_reduce_add({sum}, {sum});
      EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(300'000, 3.0F));
      communicator.check();
    });
  });
  expect_endings(ranks, {all_right, killed});
}

TEST(Shrinking, LeavesNothingBehind) {
  expect_all_right(2, [](Exchange& exchange) {
    constexpr std::size_t window_bytes = std::size_t{1} << 20U;
    Communicator communicator(
        exchange, {.devices = {Device(0)}, .timeout = hang_limit(), .window_bytes = window_bytes});
    const Tensor tensor = some_tensor(300'000);
    const auto end_and_go_on = [&] {
      communicator.all_reduce_add({tensor}, {tensor});
      synchronize(0);
      transport::team::synchronize(exchange);
      communicator.abort("of a test");
      communicator = communicator.shrink();
    };
    for (int round = 0; round < 5; ++round) end_and_go_on();
    transport::team::synchronize(exchange);
    const std::size_t descriptors = open_descriptors();
    const std::size_t mappings = shared_mappings();
    const std::size_t threads_before = threads();
    const std::size_t memory = free_memory(0);
    for (std::int64_t round = 0; round < scaled(200); ++round) end_and_go_on();
    transport::team::synchronize(exchange);
    // What the last communicators have left may not have been closed yet by the other rank.
    constexpr std::size_t late = 4;
    EXPECT_LE(open_descriptors(), descriptors + late);
    EXPECT_LE(shared_mappings(), mappings + late);
    EXPECT_EQ(threads(), threads_before);
    EXPECT_TRUE(!on_virtual_devices() || free_memory(0) >= memory - late * window_bytes);
  });
}

}  // namespace
}  // namespace tutti::test::ranks
