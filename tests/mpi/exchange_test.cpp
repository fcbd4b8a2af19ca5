#include "mpi/checks.hpp"
#include "mpi/world.hpp"
#include "support/errors.hpp"
#include "tutti/mpi.hpp"

#include <chrono>
#include <climits>
#include <cstddef>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

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
    EXPECT_TRUE(refuses([&] { exchange.all_gather(mine, all); }, ErrorCode::timeout, {"300 ms", "join"}));
    EXPECT_TRUE(refuses([&] { exchange.all_gather(mine, all); }, invalid, {"given up"}));
  }
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(MpiExchange, IsNotMadeWithoutRanksThatDoNotCome) {
  const Part all(0, world_rank());
  if (world_rank() != world_size() - 1) {
    EXPECT_TRUE(refuses([&] { mpi::Exchange(all, 300ms); }, ErrorCode::timeout, {"300 ms", "duplicated"}));
  }
  MPI_Barrier(MPI_COMM_WORLD);
  if (world_rank() == world_size() - 1)
    mpi::Exchange(all, 10s);  // what the others have begun comes to an end
  MPI_Barrier(MPI_COMM_WORLD);
}

TEST(MpiExchange, NeedsThreadsForSeveralHosts) {
  // main asks MPI for no more than MPI_THREAD_FUNNELED.
  int level = MPI_THREAD_SINGLE;
  MPI_Query_thread(&level);
  if (level == MPI_THREAD_MULTIPLE) GTEST_SKIP() << "MPI gives more than it is asked for";
  setenv("TUTTI_HOST_ID", std::to_string(world_rank()).c_str(), 1);
  EXPECT_TRUE(refuses([] { static_cast<void>(mpi::make_communicator(MPI_COMM_WORLD)); },
                      ErrorCode::unsupported, {"several hosts", "rank 0", "MPI_THREAD_MULTIPLE"}));
  unsetenv("TUTTI_HOST_ID");
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
