// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/stream_gate.hpp"
#include "support/timing.hpp"
#include "transport/team/calls/live_teams.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/memory.hpp"
#include "tutti/stream.hpp"
#include "tutti/virtual_devices.hpp"

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

/// A communicator that is destroyed waits for its own calls, and leaves everything else of its devices, of
/// the process and of other processes as it is. What other ranks need of its memory outlives it, and no
/// longer than that. And streams that are destroyed before it.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

TEST(Leaving, KeepsFailuresOfOtherWork) {
  expect_all_right(2, [](Exchange& exchange) {
    std::optional<Communicator> communicator = make(exchange);
    const Tensor tensor = some_tensor();
    communicator->all_reduce_add({tensor}, {tensor});
    synchronize(0);
    virtual_devices::inject({.operation = virtual_devices::Operation::kernel,
                             .kind = virtual_devices::FaultKind::fail_asynchronously});
    tensor.fill_(5);
    communicator.reset();
    EXPECT_TRUE(refuses([] { synchronize(0); }, ErrorCode::device_failure, {"injected"}));
  });
}

/// A kernel that fails leaves data of an earlier time, which later rounds must not make others take for its
/// own.
TEST(FailedWork, EndsTheTeamAndIsNamed) {
  for (const std::int64_t count : {1000, 300'000}) {
    SCOPED_TRACE(count);
    expect_all_right(2, [&](Exchange& exchange) {
      const int rank = exchange.rank();
      Communicator communicator = make(exchange, 60s);
      const Tensor input = full({count}, 1, {.device = 0});
      const Tensor first = full({count}, -5, {.device = 0});
      const Tensor second = full({count}, -5, {.device = 0});
      communicator.barrier();
      synchronize(0);
      transport::team::synchronize(exchange);  // nobody is still in the barrier
      if (rank == 1) {
        virtual_devices::inject({.operation = virtual_devices::Operation::kernel,
                                 .kind = virtual_devices::FaultKind::fail_asynchronously});
      }
      std::string failure;
      try {
        communicator.all_reduce_add({input}, {first});
        communicator.all_reduce_add({input}, {second});
        synchronize(0);
      } catch (const Error& error) {
        failure = error.what();
      }
      EXPECT_TRUE(mentions(failure, {"injected"}));
      EXPECT_FALSE(communicator.is_running());
    });
  }
}

TEST(Leaving, DoesNotWaitForCallsOfOtherCommunicators) {
  for (const bool is_on_own_stream : {true, false}) {
    SCOPED_TRACE(is_on_own_stream);
    expect_all_right(2, [&](Exchange& exchange) {
      Communicator stays = make(exchange);
      std::optional<Communicator> leaves = make(exchange, 60s);
      const Tensor tensor = full({1000}, exchange.rank(), {.device = 0});
      leaves->all_reduce_add({tensor}, {tensor});
      synchronize(0);
      transport::team::synchronize(exchange);
      const Tensor sent = full({1000}, exchange.rank(), {.device = 0});
      synchronize(0);
      const std::vector<Stream> streams{is_on_own_stream ? Stream(0) : current_stream(0)};
      if (exchange.rank() == 0) stays.broadcast({sent}, 1, streams);
      leaves.reset();
      if (exchange.rank() == 1) stays.broadcast({sent}, 1, streams);
      streams[0].synchronize();
      EXPECT_EQ(sent.to_vector<float>(), std::vector<float>(1000, 1.0F));
    });
  }
}

TEST(Leaving, DoesNotWaitForWorkThatWaitsForTheProgram) {
  for (const bool is_on_own_stream : {true, false}) {
    SCOPED_TRACE(is_on_own_stream);
    expect_all_right(2, [&](Exchange& exchange) {
      std::optional<Communicator> communicator = make(exchange, 60s);
      const Tensor tensor = some_tensor();
      communicator->all_reduce_add({tensor}, {tensor});
      StreamGate gate(is_on_own_stream ? Stream(0) : current_stream(0));
      EXPECT_LT(time_of([&] { communicator.reset(); }), slack);
      gate.open();
      synchronize(0);
    });
  }
}

TEST(Leaving, KeepsWhatCallsUseThatHaveNotBegun) {
  expect_all_right(2, [](Exchange& exchange) {
    std::optional<Communicator> communicator = make(exchange);
    const Tensor tensor = some_tensor();
    communicator->all_reduce_add({tensor}, {tensor});
    synchronize(0);
    StreamGate gate(current_stream(0));
    communicator->all_reduce_add({tensor}, {tensor});
    EXPECT_LT(time_of([&] { communicator.reset(); }), timeout + slack);
    EXPECT_EQ(Runtime::get().part<transport::team::LiveTeams>().room_on(0).count(), 0U);
    gate.open();
    EXPECT_TRUE(refuses([] { synchronize(0); }, ErrorCode::aborted, {"rank"}));
    tensor.fill_(1);
    synchronize(0);
  });
}

TEST(Leaving, LeavesNoFailuresOfItsOwn) {
  expect_all_right(2, [](Exchange& exchange) {
    std::optional<Communicator> communicator = make(exchange, 60s);
    if (exchange.rank() == 0) communicator->barrier();
    transport::team::synchronize(exchange);
    if (exchange.rank() == 1) communicator->abort("enough");
    communicator.reset();
    const Communicator next = make(exchange);
    EXPECT_TRUE(mentions(next.explain(), {"rounds: p2p"}));
  });
}

/// A communicator that has carried large sums.
std::optional<Communicator> make_used(Exchange& exchange) {
  std::optional<Communicator> communicator = make(exchange, 60s);
  const Tensor tensor = some_tensor(1'000'000);
  communicator->all_reduce_add({tensor}, {tensor});
  synchronize(0);
  return communicator;
}

TEST(Leaving, MayComeInDifferentOrders) {
  expect_all_right(2, [](Exchange& exchange) {
    const std::size_t free = free_memory(0);
    constexpr std::size_t count = 3;
    std::vector<std::optional<Communicator>> communicators;
    for (std::size_t i = 0; i < count; ++i) communicators.push_back(make_used(exchange));
    for (std::size_t i = 0; i < count; ++i) {
      auto& communicator = communicators[exchange.rank() == 0 ? i : count - 1 - i];
      EXPECT_LT(time_of([&] { communicator.reset(); }), slack);
    }
    transport::team::synchronize(exchange);
    empty_cache();
    EXPECT_EQ(free_memory(0), free);
  });
}

TEST(Leaving, WaitsForThoseWhoHaveYetToRead) {
  expect_all_right(2, [](Exchange& exchange) {
    std::optional<Communicator> communicator = make(exchange, 60s);
    const Tensor tensor = full({1000}, 5 - exchange.rank(), {.device = 0});
    synchronize(0);
    if (exchange.rank() == 1) std::this_thread::sleep_for(2s);
    communicator->broadcast({tensor}, 0);
    synchronize(0);
    EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(1000, 5.0F));
    const auto took = time_of([&] { communicator.reset(); });
    if (exchange.rank() == 0) {
      EXPECT_GT(took, 1s);
    }
  });
}

/// Rank 1 leaves when rank 0 no longer waits for it; then rank 0 does what should give it its memory back.
void expect_memory_back(Exchange& exchange, bool is_aborted, const std::function<void()>& sweep) {
  const std::size_t free = free_memory(0);
  std::optional<Communicator> communicator = make_used(exchange);
  transport::team::synchronize(exchange);  // rank 1 is done, too
  if (exchange.rank() == 0) {
    if (is_aborted) communicator->abort("enough");
    EXPECT_LT(time_of([&] { communicator.reset(); }), slack);
    empty_cache();
    EXPECT_LT(free_memory(0), free) << "rank 1 has it open";
  }
  transport::team::synchronize(exchange);
  communicator.reset();
  transport::team::synchronize(exchange);
  sweep();
  EXPECT_EQ(free_memory(0), free);
}

TEST(Leaving, HasTensorsClosedByThoseWhoStay) {
  expect_all_right(2, [](Exchange& exchange) {
    std::optional<Communicator> communicator = make(exchange, 60s);
    Communicator other = make(exchange, 60s);
    const std::size_t free = free_memory(0);
    {
      const Tensor tensor = some_tensor(1'000'000);
      communicator->all_reduce_add({tensor}, {tensor});
      synchronize(0);
    }
    if (exchange.rank() == 1) other.barrier();
    transport::team::synchronize(exchange);
    if (exchange.rank() == 0) {
      communicator.reset();
      empty_cache();
      EXPECT_LT(free_memory(0), free) << "rank 1 closes nothing beside calls";
      other.barrier();
      EXPECT_TRUE(becomes_true([&] {
        empty_cache();
        return free_memory(0) >= free;
      }));
    }
    transport::team::synchronize(exchange);
  });
}

TEST(Leaving, GivesMemoryBackOnceALateRankHasLeft) {
  for (const bool is_aborted : {false, true}) {
    SCOPED_TRACE(is_aborted);
    expect_all_right(2, [&](Exchange& exchange) {
      expect_memory_back(exchange, is_aborted, [] { empty_cache(); });
      expect_memory_back(exchange, is_aborted, [&] {
        const std::size_t before = free_memory(0);
        const Communicator next = make(exchange);
        constexpr std::size_t counters = 512;  // a member's own, besides its window
        EXPECT_GE(free_memory(0) + counters, exchange.rank() == 0 ? before : 0)
            << "what it takes has been given back";
        empty_cache();
      });
      const std::size_t free = free_memory(0);
      std::optional<Communicator> other = make(exchange);
      expect_memory_back(exchange, is_aborted, [&] {
        other.reset();
        if (exchange.rank() == 1) empty_cache();
        EXPECT_EQ(free_memory(0), free);
        other = make(exchange);
      });
    });
  }
}

TEST(Leaving, GivesMemoryBackOnceALateRankIsGone) {
  Ranks ranks(2, [](Exchange& exchange) {
    const std::size_t free = free_memory(0);
    std::optional<Communicator> communicator = make_used(exchange);
    if (exchange.rank() == 1) {
      transport::team::synchronize(exchange);
      std::raise(SIGKILL);
    }
    communicator.reset();
    empty_cache();
    EXPECT_LT(free_memory(0), free);
    transport::team::synchronize(exchange);
    EXPECT_TRUE(becomes_true([&] {
      empty_cache();
      return free_memory(0) == free;
    }));
  });
  expect_endings(ranks, {all_right, killed});
}

/// Ends a forked child once everything that was made after this is destroyed, and before the leak checker
/// looks: to that, what only the parent's threads hold is lost.
struct ForkedChild {
  ForkedChild() = default;
  ForkedChild(const ForkedChild&) = delete;
  ForkedChild& operator=(const ForkedChild&) = delete;
  ~ForkedChild() {
    if (getpid() == parent) return;
    std::fflush(nullptr);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }

  pid_t parent = getpid();
};

TEST(Leaving, IsNotDoneByAForkedChild) {
  expect_all_right(2, [](Exchange& exchange) {
    static const ForkedChild forked_child;
    static std::optional<Communicator> communicator;
    communicator.emplace(make(exchange));
    const Tensor tensor = full({1000}, 1, {.device = 0});
    communicator->all_reduce_add({tensor}, {tensor});
    synchronize(0);
    if (exchange.rank() == 0) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(20);
        const auto forked = [&](const std::function<void()>& call) {
          return refuses(call, ErrorCode::unsupported, {"forked"});
        };
        EXPECT_TRUE(forked([&] { communicator->barrier(); }));
        EXPECT_TRUE(forked([&] { static_cast<void>(communicator->split(0)); }));
        virtual_devices::start(virtual_devices::VirtualMachine{});
        EXPECT_TRUE(forked([&] { communicator->all_reduce_add({tensor}, {tensor}); }));
        communicator->abort("by a child");
        std::exit(0);  // by way of the destructors
      }
      int status = -1;
      EXPECT_EQ(waitpid(child, &status, 0), child);
      EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
    }
    transport::team::synchronize(exchange);
    communicator->all_reduce_add({tensor}, {tensor});
    EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(1000, 4.0F));
    communicator.reset();
  });
}

TEST(Leaving, StreamsMayGoBeforeTheNextCall) {
  expect_all_right(2, [](Exchange& exchange) {
    backend::Backend& backend = Runtime::get().backend();
    Communicator communicator = make(exchange);
    for (int round = 0; round < 20; ++round) {
      const backend::StreamRef made = backend.create_stream(0, 0);
      {
        const Stream stream = ExternalStream(made.handle, 0);
        const StreamGuard guard(stream);
        const Tensor first = ones({100'000}, {.device = 0});
        communicator.all_reduce_add({first}, {first});
        if (round % 2 == 0) stream.synchronize();
      }
      backend.destroy_stream(made);
      backend.destroy_stream(backend.create_stream(0, 0));  // now the first one's handle may be reused
      const Tensor second = ones({1000}, {.device = 0});
      communicator.all_reduce_add({second}, {second});
      EXPECT_EQ(second.to_vector<float>(), std::vector<float>(1000, 2.0F));
    }
  });
}

TEST(Leaving, StreamsMayGoBeforeTheCommunicator) {
  expect_all_right(2, [](Exchange& exchange) {
    backend::Backend& backend = Runtime::get().backend();
    std::optional<Communicator> communicator = make(exchange);
    const backend::StreamRef made = backend.create_stream(0, 0);
    {
      const Stream stream = ExternalStream(made.handle, 0);
      communicator->barrier({stream});
      stream.synchronize();
    }
    backend.destroy_stream(made);
    backend.destroy_stream(backend.create_stream(0, 0));
    communicator.reset();
  });
}

}  // namespace
}  // namespace tutti::test::ranks
