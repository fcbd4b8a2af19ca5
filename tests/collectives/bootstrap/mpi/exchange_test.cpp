// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/mpi/checks.hpp"
#include "collectives/bootstrap/mpi/world.hpp"
#include "support/errors.hpp"
#include "support/forwarding_exchange.hpp"
#include "tutti/mpi.hpp"
#include "tutti/tensor.hpp"

#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::Part;
using test::refuses;
using test::world_rank;
using test::world_size;

constexpr auto invalid = ErrorCode::invalid_argument;

TEST(MpiExchange, GathersInOrderOfRanks) {
  mpi::Exchange exchange(MPI_COMM_WORLD);
  EXPECT_EQ(exchange.rank(), world_rank());
  EXPECT_EQ(exchange.size(), world_size());
  for (const std::size_t bytes : {0U, 1U, 1000U, 300'000U}) {
    const std::vector<std::byte> mine(bytes, std::byte(world_rank() + 1));
    std::vector<std::byte> all(bytes * static_cast<std::size_t>(world_size()));
    exchange.all_gather(mine, all);
    for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], std::byte(i / bytes + 1)) << i;
  }
}

TEST(MpiExchange, TakesPartsOfTheWorldInTheirOrder) {
  const Part reversed(0, -world_rank());
  mpi::Exchange exchange(reversed);
  EXPECT_EQ(exchange.rank(), world_size() - 1 - world_rank());
}

TEST(MpiExchange, OutlivesTheCommunicatorItIsMadeFrom) {
  auto exchange = [] {
    const Part all(0, world_rank());
    return std::make_unique<mpi::Exchange>(all);
  }();
  const std::vector<std::byte> mine(3, std::byte{7});
  std::vector<std::byte> all(mine.size() * static_cast<std::size_t>(world_size()));
  exchange->all_gather(mine, all);
  EXPECT_EQ(all, std::vector<std::byte>(all.size(), std::byte{7}));
}

TEST(MpiExchange, RefusesWhatIsNoGroupOfProcesses) {
  EXPECT_TRUE(refuses([] { mpi::Exchange{MPI_COMM_NULL}; }, invalid, {"Exchange", "MPI_COMM_NULL"}));
  EXPECT_TRUE(refuses([] { static_cast<void>(mpi::make_communicator(MPI_COMM_NULL)); }, invalid,
                      {"make_communicator", "MPI_COMM_NULL"}));
  EXPECT_TRUE(refuses([] { static_cast<void>(mpi::local_rank(MPI_COMM_NULL)); }, invalid,
                      {"local_rank", "MPI_COMM_NULL"}));

  const bool is_even = world_rank() % 2 == 0;
  const Part half(is_even ? 0 : 1, world_rank());
  MPI_Comm between = MPI_COMM_NULL;
  MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, is_even ? 1 : 0, 0, &between);
  EXPECT_TRUE(refuses([&] { mpi::Exchange{between}; }, invalid, {"inter-communicator"}));
  MPI_Comm_free(&between);
}

TEST(MpiExchange, RefusesThreadsThatMayNotCallMpi) {
  std::thread([] {
    EXPECT_TRUE(refuses([] { mpi::Exchange{MPI_COMM_SELF}; }, invalid, {"thread", "MPI_THREAD_SERIALIZED"}));
  }).join();
}

TEST(MpiExchange, RefusesLengthsThatDoNotFit) {
  mpi::Exchange exchange(MPI_COMM_WORLD);
  const std::vector<std::byte> mine(10);
  std::vector<std::byte> all(10 * static_cast<std::size_t>(world_size()) + 1);
  EXPECT_TRUE(refuses([&] { exchange.all_gather(mine, all); }, invalid, {"all has", "10 for each"}));

  const std::size_t many = std::size_t{INT_MAX} + 1;
  void* const nothing = mmap(nullptr, many, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  ASSERT_NE(nothing, MAP_FAILED);
  EXPECT_TRUE(refuses(
      [&] {
        exchange.all_gather({static_cast<const std::byte*>(nothing), many}, all);
      },
      invalid, {"2147483648 bytes", "2147483647"}));
  munmap(nothing, many);
}

TEST(MpiExchange, GivesUpOnRanksThatDoNotCome) {
  mpi::Exchange exchange(MPI_COMM_WORLD, 300ms);
  if (world_rank() != world_size() - 1) {
    const std::vector<std::byte> mine(10);
    std::vector<std::byte> all(10 * static_cast<std::size_t>(world_size()));
    EXPECT_TRUE(refuses([&] { exchange.all_gather(mine, all); }, ErrorCode::timeout,
                        {"300 ms", fmt::format("waits for rank {} to join", world_size() - 1)}));
    EXPECT_TRUE(refuses([&] { exchange.all_gather(mine, all); }, invalid, {"given up"}));
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(MpiExchange, IsNotMadeWithoutRanksThatDoNotCome) {
  const Part all(0, world_rank());
  if (world_rank() != world_size() - 1) {
    EXPECT_TRUE(refuses(
        [&] { mpi::Exchange(all, 300ms); }, ErrorCode::timeout,
        {"300 ms", "duplicate the communicator", fmt::format("rank {} has not begun to", world_size() - 1)}));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == world_size() - 1)
    mpi::Exchange(all, 10s);  // what the others have begun comes to an end
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(MpiExchange, NamesAllRanksThatDoNotCome) {
  const Part all(0, world_rank());
  const bool comes = world_rank() == 0;
  if (comes) {
    const std::string missing = world_size() == 2 ? "rank 1 has" : "ranks 1, 2 and 3 have";
    EXPECT_TRUE(refuses([&] { mpi::Exchange(all, 300ms); }, ErrorCode::timeout, {missing + " not begun to"}));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (!comes) mpi::Exchange(all, 10s);
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(MpiExchange, WaitsNoLongerThanACommunicatorDoes) {
  mpi::Exchange exchange(MPI_COMM_WORLD);
  exchange.limit_waits(1h);
  exchange.limit_waits(300ms);
  if (world_rank() == 0) {
    const std::vector<std::byte> mine(10);
    std::vector<std::byte> all(10 * static_cast<std::size_t>(world_size()));
    EXPECT_TRUE(refuses([&] { exchange.all_gather(mine, all); }, ErrorCode::timeout, {"300 ms"}));
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(MpiExchange, ACommunicatorIsMadeWithinItsTimeoutOrTheMissingRankIsNamed) {
  const Part all(0, world_rank());
  const int last = world_size() - 1;
  const CommunicatorOptions options{.timeout = 500ms};
  if (world_rank() != last) {
    const auto start = std::chrono::steady_clock::now();
    EXPECT_TRUE(refuses([&] { static_cast<void>(mpi::make_communicator(all, options)); }, ErrorCode::timeout,
                        {"500 ms", fmt::format("rank {} has not begun to", last)}));
    EXPECT_LT(std::chrono::steady_clock::now() - start, 20s);
  }
  MPI_Barrier(MPI_COMM_WORLD);
  // All have begun to duplicate the communicator, and none goes on.
  if (world_rank() == last) {
    EXPECT_TRUE(
        refuses([&] { static_cast<void>(mpi::make_communicator(all, options)); }, ErrorCode::timeout,
                {"500 ms", world_size() == 2 ? "waits for rank 0 to" : "waits for ranks 0, 1 and 2 to"}));
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

/// Of three or more ranks, the last one does no more after so many steps.
class StoppingExchange final : public test::ForwardingExchange {
 public:
  StoppingExchange(Exchange& exchange, int steps) : ForwardingExchange(exchange), steps_(steps) {}
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (steps_-- == 0 && rank() == size() - 1) throw Error(ErrorCode::aborted, "no more");
    ForwardingExchange::all_gather(mine, all);
  }

 private:
  int steps_;
};

TEST(MpiExchange, ARankThatStopsWhileACommunicatorIsMadeIsNamedWithWhatItHasNotDone) {
  for (const int steps : {0, 1, 3}) {
    SCOPED_TRACE(testing::Message() << steps << " steps");
    mpi::Exchange exchange(MPI_COMM_WORLD);
    StoppingExchange stopping(exchange, steps);
    const auto make = [&] { const Communicator made(stopping, {.devices = {Device(0)}, .timeout = 500ms}); };
    if (world_rank() == world_size() - 1) {
      EXPECT_TRUE(refuses(make, ErrorCode::aborted, {"no more"}));
    } else {
      EXPECT_TRUE(refuses(make, ErrorCode::timeout,
                          {steps == 0 ? "while the ranks introduce themselves" : "while the ranks ", "500 ms",
                           fmt::format("waits for rank {} to join", world_size() - 1)}));
    }
    MPI_Barrier(MPI_COMM_WORLD);
  }
}

TEST(MpiExchange, WithoutThreadsHostsTalkOverTcp) {
  // main asks MPI for no more than MPI_THREAD_FUNNELED.
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level == MPI_THREAD_MULTIPLE) GTEST_SKIP() << "MPI gives more than it is asked for";
  setenv("TUTTI_HOST_ID", std::to_string(world_rank()).c_str(), 1);
  {
    Communicator communicator = mpi::make_communicator(MPI_COMM_WORLD);
    EXPECT_NE(communicator.explain().find("TCP"), std::string::npos) << communicator.explain();
    const Tensor sum = full({1000}, world_rank() + 1.0, {.device = communicator.devices().front()});
    communicator.all_reduce_add({sum}, {sum});
    const int size = world_size();
    EXPECT_EQ(sum.to_vector<float>().back(), static_cast<float>(size * (size + 1) / 2));
  }
  unsetenv("TUTTI_HOST_ID");
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(MpiExchange, RefusedOptionsAreToldToAll) {
  CommunicatorOptions options;
  if (world_rank() == 1) options.devices = {Device(99)};
  EXPECT_TRUE(refuses([&] { static_cast<void>(mpi::make_communicator(MPI_COMM_WORLD, options)); },
                      world_rank() == 1 ? invalid : ErrorCode::peer_unavailable,
                      {"options.devices[0]", "99"}));
}

TEST(MpiExchange, FailuresCarryTheTextOfMpi) {
  mpi::check(MPI_SUCCESS, "MPI_Something");
  try {
    mpi::check(MPI_ERR_COMM, "MPI_Something");
    ADD_FAILURE() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport_failure);
    EXPECT_EQ(error.native_code(), MPI_ERR_COMM);
    EXPECT_NE(std::string(error.what()).find("MPI_Something: MPI_ERR_COMM"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace tutti
