// SPDX-License-Identifier: Apache-2.0
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "ranks/lifetime/threads_without_memory.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/stream.hpp"
#include "tutti/virtual_devices.hpp"

#include <array>
#include <atomic>
#include <bit>
#include <cfenv>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

/// The threads of ranks: what they take from the program's, and what becomes of the ranks when they cannot be
/// had or cannot go on.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

/// Lines of /proc/self/task/N/status, by the names of threads of the library's.
std::map<std::string, std::map<std::string, std::string>> library_threads() {
  std::map<std::string, std::map<std::string, std::string>> threads;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::ifstream status(task.path() / "status");
    std::map<std::string, std::string> fields;
    for (std::string line; std::getline(status, line);) {
      const std::size_t colon = line.find(":\t");
      if (colon != std::string::npos) fields[line.substr(0, colon)] = line.substr(colon + 2);
    }
    if (fields["Name"].starts_with("tutti-")) threads[fields["Name"]] = fields;
  }
  return threads;
}

bool blocks(const std::string& mask, int signal) {
  return (std::stoull(mask, nullptr, 16) >> (static_cast<unsigned>(signal) - 1U) & 1U) != 0;
}

void use(Communicator& communicator) {
  const Tensor tensor = some_tensor();
  communicator.all_reduce_add({tensor}, {tensor});
  synchronize(tensor.device().index());
}

TEST(LibraryThreads, TakeNeitherSignalsNorTheProcessorsOfTheThreadThatStartsThem) {
  const auto body = [](Exchange& exchange) {
    std::array<cpu_set_t, 16> of_process{};
    ASSERT_EQ(sched_getaffinity(0, sizeof of_process, of_process.data()), 0);
    std::array<cpu_set_t, 16> one{};
    std::size_t first = 0;
    while (!CPU_ISSET_S(first, sizeof of_process, of_process.data())) ++first;
    CPU_SET_S(first, sizeof one, one.data());
    ASSERT_EQ(sched_setaffinity(0, sizeof one, one.data()), 0);
    pretend_host(exchange.rank() / 2);
    Communicator communicator = make(exchange);
    std::optional<Communicator> of_this_host = communicator.split(exchange.rank() / 2, 0);
    ASSERT_TRUE(of_this_host.has_value());
    use(communicator);
    use(*of_this_host);
    const auto threads = library_threads();
    for (const char* const name :
         {"tutti-watch", "tutti-proxy", "tutti-opener", "tutti-closer", "tutti-d0-s0"})
      EXPECT_TRUE(threads.contains(name)) << name;
    ASSERT_EQ(sched_setaffinity(0, sizeof of_process, of_process.data()), 0);
    std::ifstream own_status("/proc/thread-self/status");
    std::string allowed;
    for (std::string line; std::getline(own_status, line);)
      if (line.starts_with("Cpus_allowed:\t")) allowed = line.substr(14);
    for (const auto& [name, status] : threads) {
      for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGUSR1, SIGALRM, SIGCHLD})
        EXPECT_TRUE(blocks(status.at("SigBlk"), signal)) << name << " takes signal " << signal;
      EXPECT_FALSE(blocks(status.at("SigBlk"), SIGSEGV)) << name;
      EXPECT_EQ(status.at("Cpus_allowed"), allowed) << name;
    }
  };
  expect_all_right(4, body);
}

TEST(LibraryThreads, LeaveASignalToTheProgramThatBlocksItAfterwards) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    use(communicator);
    sigset_t wanted;
    sigemptyset(&wanted);
    sigaddset(&wanted, SIGTERM);
    pthread_sigmask(SIG_BLOCK, &wanted, nullptr);
    ASSERT_EQ(kill(getpid(), SIGTERM), 0);
    const timespec longest{.tv_sec = 30, .tv_nsec = 0};
    EXPECT_EQ(sigtimedwait(&wanted, nullptr, &longest), SIGTERM);
    use(communicator);
  });
}

void round_upward() {
  std::fesetround(FE_UPWARD);
}

void flush_to_zero() {
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040U);
#elif defined(__aarch64__)
  asm volatile("msr fpcr, %0" ::"r"(std::uint64_t{1} << 24U));
#endif
}

void expect_the_same_bits(void (*disturb)(), const std::vector<float>& inputs) {
  for (const std::int64_t count : {100, 300'000}) {
    expect_all_right(2, [&](Exchange& exchange) {
      if (exchange.rank() == 1) disturb();
      Communicator communicator(
          exchange, {.devices = {Device(0)}, .timeout = timeout, .determinism = Determinism::bitwise});
      std::vector<float> values(static_cast<std::size_t>(count));
      for (std::size_t i = 0; i < values.size(); ++i)
        values[i] = inputs[(i + static_cast<std::size_t>(exchange.rank())) % inputs.size()];
      const Tensor tensor = tutti::tensor(values, {count}).to(Device(0));
      communicator.all_reduce_add({tensor}, {tensor});
      const auto sums = tensor.to_vector<float>();
      std::uint64_t hash = 0;
      for (const float sum : sums) hash = hash * 1'099'511'628'211U + std::bit_cast<std::uint32_t>(sum);
      const auto hashes = transport::team::gather(exchange, hash);
      EXPECT_EQ(hashes[0], hashes[1]);
    });
  }
}

TEST(LibraryThreads, AddTheSameBitsOnARankThatRoundsUpward) {
  expect_the_same_bits(&round_upward, {0.1F, 0.2F, 0.3F, 1e-8F, 1.0F});
}

TEST(LibraryThreads, AddTheSameBitsOnARankThatFlushesSmallNumbersToZero) {
  expect_the_same_bits(&flush_to_zero, {1e-40F, 2e-40F, 1.1754944e-38F, -1e-45F});
}

TEST(LibraryThreads, WithoutMemoryWhileARankIsLostTheOthersAreTold) {
  Ranks ranks(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange, 60s);
    use(communicator);
    transport::team::synchronize(exchange);
    if (exchange.rank() == 1) std::raise(SIGKILL);
    const Stopwatch watch;
    {
      const ThreadsWithoutMemory watches("tutti-watch");
      static_cast<void>(failure_of(0, [&] { communicator.barrier(); }));
    }
    EXPECT_FALSE(communicator.is_running());
    EXPECT_LT(watch.elapsed(), slack);
    EXPECT_TRUE(mentions(failure_of(0, [&] { communicator.check(); }), {"rank"}));
  });
  expect_endings(ranks, {all_right, killed, all_right});
}

TEST(LibraryThreads, WithoutMemoryBetweenHostsTheCommunicatorEnds) {
  expect_all_right(2, [](Exchange& exchange) {
    pretend_host(exchange.rank());
    Communicator communicator = make(exchange, 60s);
    use(communicator);
    transport::team::synchronize(exchange);
    // What a rank that has lost its host proxy cannot tell the other host, that one does not hear.
    if (exchange.rank() == 1) {
      const Stopwatch watch;
      const ThreadsWithoutMemory host_proxies("tutti-proxy");
      const std::string text = failure_of(0, [&] { communicator.barrier(); });
      EXPECT_TRUE(mentions(text, {"rank 1 has lost its connection to other hosts", "out of memory"}));
      EXPECT_LT(watch.elapsed(), slack);
    }
    transport::team::synchronize(exchange);
    communicator.abort("the test is over");
  });
}

TEST(LibraryThreads, WithoutMemoryToOpenMemoryOfAnotherRankThatRankIsTold) {
  expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange, 60s);
    use(communicator);
    const Tensor large = some_tensor(5'000'000);
    synchronize(0);
    transport::team::synchronize(exchange);
    const ThreadsWithoutMemory openers(exchange.rank() == 1 ? "tutti-opener" : "none");
    if (exchange.rank() == 0) {
      EXPECT_TRUE(refuses([&] { communicator.all_reduce_add({large}, {large}); },
                          ErrorCode::transport_failure,
                          {"rank 1 cannot open memory of rank 0", "out of memory"}));
      communicator.abort("the test is over");
    } else {
      static_cast<void>(failure_of(0, [&] { communicator.all_reduce_add({large}, {large}); }));
    }
    transport::team::synchronize(exchange);
  });
}

TEST(LibraryThreads, WithoutMemoryForAKernelItsStreamGoesOn) {
  expect_all_right(1, [](Exchange&) {
    const Stream stream(0);
    const ThreadsWithoutMemory streams("tutti-d");
    virtual_devices::launch(stream, "greedy", {}, [](auto) { static_cast<void>(std::vector<int>(1000)); });
    std::atomic<bool> has_run = false;
    virtual_devices::launch(stream, "modest", {}, [&](auto) { has_run = true; });
    EXPECT_TRUE(refuses([&] { stream.synchronize(); }, ErrorCode::device_failure,
                        {"'greedy' on stream ", " of device 0 failed: out of memory"}));
    EXPECT_TRUE(has_run);
  });
}

/// As where there is no room for more: threads cannot be had while this exists.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << 47U);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;
  ~NoMoreThreads() { pthread_setattr_default_np(&before_); }

 private:
  pthread_attr_t before_{};
};

TEST(LibraryThreads, ThatCannotBeHadAreNamedToAllRanks) {
  expect_all_right(2, [](Exchange& exchange) {
    const auto refused = [&] {
      const Communicator communicator(exchange, {.devices = {Device(0)}, .timeout = timeout});
    };
    if (exchange.rank() == 1) {
      const NoMoreThreads limit;
      EXPECT_TRUE(refuses(refused, ErrorCode::out_of_memory,
                          {"cannot start a thread ", "Resource temporarily unavailable", "ulimit -u"}));
    } else {
      EXPECT_TRUE(mentions(failure_of(0, refused), {"rank 1", "cannot start a thread ", "ulimit -u"}));
    }
    Communicator communicator = make(exchange);
    use(communicator);
  });
}

TEST(LibraryThreads, ThatCannotBeHadForAStreamAreNamed) {
  expect_all_right(1, [](Exchange&) {
    const Tensor tensor = some_tensor();
    synchronize(0);
    {
      const StreamGuard guard(Stream(0));
      {
        const NoMoreThreads limit;
        EXPECT_TRUE(refuses([&] { tensor.fill_(1); }, ErrorCode::out_of_memory,
                            {"cannot start a thread for stream ", " of device 0", "ulimit -u"}));
      }
      tensor.fill_(2);
    }
    synchronize(0);
    EXPECT_EQ(tensor.to_vector<float>().front(), 2.0F);
  });
}

}  // namespace
}  // namespace tutti::test::ranks
