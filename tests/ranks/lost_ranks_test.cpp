#include "runtime.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/ranks.hpp"
#include "transport/ranks/agreement.hpp"
#include "tutti/communicator.hpp"
#include "tutti/event.hpp"
#include "tutti/memory.hpp"
#include "tutti/stream.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

/// Ranks that die, stop, or do something else than the others: all others must hear who and what, in time.
namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::all_right;
using test::Ending;
using test::Ranks;

constexpr auto timeout = 1500ms;
/// What may come on top: looking around, waking up, on a busy machine.
constexpr auto slack = 3s;

Communicator make(Exchange& exchange) {
  return Communicator(exchange, {.devices = {Device(0)}, .timeout = timeout});
}

Tensor some_tensor(std::int64_t count = 10'000) {
  return zeros({count}, {.device = 0});
}

/// Makes calls until one fails or their work does; returns what it says.
std::string failure_of(const std::function<void()>& call) {
  try {
    for (;;) call();
  } catch (const Error& error) {
    return error.what();
  }
}

void expect_mentions(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in: " << text;
}

class Stopwatch {
 public:
  [[nodiscard]] std::chrono::steady_clock::duration elapsed() const {
    return std::chrono::steady_clock::now() - start_;
  }

 private:
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

void expect_endings(Ranks& ranks, const std::vector<Ending>& expected) {
  EXPECT_EQ(ranks.wait(60s), expected);
}

constexpr Ending killed{false, SIGKILL};

TEST(LostRanks, AKilledRankEndsTheCallsOfAllOthers) {
  Ranks ranks(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const Tensor tensor = some_tensor();
    for (int call = 0; call < 5; ++call) communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    if (exchange.rank() == 1) std::raise(SIGKILL);
    const Stopwatch watch;
    const std::string text = failure_of([&] {
      communicator.all_reduce_add({tensor}, {tensor});
      synchronize(0);
    });
    EXPECT_LT(watch.elapsed(), timeout + slack);
    expect_mentions(text, {"rank 1", "is gone", "all_reduce_add"});
    EXPECT_FALSE(communicator.is_running());
    EXPECT_TRUE(
        test::refuses([&] { communicator.barrier(); }, ErrorCode::peer_unavailable, {"rank 1", "is gone"}));
  });
  expect_endings(ranks, {all_right, killed, all_right});
}

TEST(LostRanks, ARankKilledWithWorkUnderWayIsNoticedToo) {
  Ranks ranks(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const Tensor tensor = some_tensor(5'000'000);
    const Stopwatch watch;
    if (exchange.rank() == 1) {
      std::thread([] {
        std::this_thread::sleep_for(300ms);
        std::raise(SIGKILL);
      }).detach();
    }
    const std::string text = failure_of([&] {
      communicator.broadcast({tensor}, 1);
      synchronize(0);
    });
    EXPECT_LT(watch.elapsed(), 300ms + timeout + slack);
    expect_mentions(text, {"rank 1", "is gone", "broadcast"});
  });
  expect_endings(ranks, {all_right, killed});
}

TEST(LostRanks, ARankThatExitsWithoutLeavingIsNoticed) {
  Ranks ranks(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    if (exchange.rank() == 0) _exit(0);
    const std::string text = failure_of([&] {
      communicator.barrier();
      synchronize(0);
    });
    expect_mentions(text, {"rank 0", "is gone", "nothing yet"});
  });
  expect_endings(ranks, {all_right, all_right});
}

TEST(LostRanks, ARankThatLeavesInOrderDisturbsNobody) {
  test::expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    communicator.barrier();
    synchronize(0);
    if (exchange.rank() == 0) return;
    std::this_thread::sleep_for(500ms);
    EXPECT_TRUE(communicator.is_running());
  });
}

TEST(LostRanks, AStoppedRankIsWaitedForAndThenNamed) {
  Ranks ranks(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const Tensor tensor = some_tensor();
    communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    if (exchange.rank() == 1) std::raise(SIGSTOP);
    const Stopwatch watch;
    const std::string text = failure_of([&] {
      communicator.reduce_add({tensor}, {tensor}, 0);
      synchronize(0);
    });
    EXPECT_TRUE(exchange.rank() == 1 ||
                watch.elapsed() >= timeout);  // no time passed for the one that was stopped
    EXPECT_LT(watch.elapsed(), timeout + slack);
    expect_mentions(text,
                    {"reduce_add", "1500 ms", "rank 1 has not made it", "its last call is all_reduce_add"});
    EXPECT_TRUE(test::refuses([&] { communicator.barrier(); }, ErrorCode::timeout, {"rank 1"}));
  });
  std::this_thread::sleep_for(timeout + slack);
  kill(ranks.process(1), SIGCONT);  // hears of it as soon as it goes on
  expect_endings(ranks, {all_right, all_right});
}

TEST(LostRanks, ALateRankInTimeGetsTheRightResult) {
  test::expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const Tensor tensor = some_tensor(100'000);
    if (exchange.rank() == 0) tensor.fill_(7);
    if (exchange.rank() == 1) std::this_thread::sleep_for(timeout / 2);
    communicator.broadcast({tensor}, 0);
    const auto values = tensor.to_vector<float>();
    EXPECT_EQ(std::ranges::count(values, 7.0F), 100'000);
    EXPECT_TRUE(communicator.is_running());
  });
}

struct Difference {
  const char* name;
  std::function<void(Communicator&, int rank)> call;
  std::vector<std::string> mentions;
};

TEST(LostRanks, CallsThatDifferEndOnAllRanksWithBothSignatures) {
  const Tensor none;
  const std::vector<Difference> differences{
      {"operation",
       [](Communicator& communicator, int rank) {
         const Tensor tensor = some_tensor();
         if (rank == 1) return communicator.broadcast({tensor}, 0);
         communicator.all_reduce_add({tensor}, {tensor});
       },
       {"broadcast", "all_reduce_add"}},
      {"element type",
       [](Communicator& communicator, int rank) {
         const Tensor tensor = zeros({8}, {.dtype = rank == 1 ? DType::float16 : DType::int16, .device = 0});
         communicator.all_reduce_add({tensor}, {tensor});
       },
       {"float16", "int16"}},
      {"count",
       [](Communicator& communicator, int rank) {
         const Tensor tensor = some_tensor(rank == 1 ? 10 : 20);
         communicator.broadcast({tensor}, 0);
       },
       {"10 float32", "20 float32"}},
      {"root",
       [](Communicator& communicator, int rank) {
         communicator.broadcast({some_tensor()}, rank == 1 ? 1 : 0);
       },
       {"root 0", "root 1"}},
      {"order",
       [](Communicator& communicator, int rank) {
         const Tensor tensor = some_tensor();
         if (rank == 1) communicator.barrier();
         communicator.broadcast({tensor}, 0);
         if (rank != 1) communicator.barrier();
       },
       {"broadcast", "barrier"}},
      {"sizes of a list",
       [](Communicator& communicator, int rank) {
         const std::vector<std::vector<Tensor>> lists{
             {some_tensor(rank == 1 ? 3 : 5), some_tensor(rank == 1 ? 5 : 3)}};
         communicator.broadcast_coalesced(lists, 0);
       },
       {"broadcast_coalesced", "2 tensors", "shapes"}},
      {"sum of the parts",
       [](Communicator& communicator, int rank) {
         communicator.scatter(rank == 0 ? some_tensor(100) : Tensor(), {some_tensor(30)}, 0);
       },
       {"scatter", "90 long in all", "is 100"}},
  };
  for (const Difference& difference : differences) {
    SCOPED_TRACE(difference.name);
    test::expect_all_right(3, [&](Exchange& exchange) {
      Communicator communicator = make(exchange);
      const Stopwatch watch;
      const std::string text = failure_of([&] {
        difference.call(communicator, exchange.rank());
        synchronize(0);
      });
      EXPECT_LT(watch.elapsed(), timeout + slack);
      expect_mentions(text, difference.mentions);
      EXPECT_TRUE(
          test::refuses([&] { communicator.barrier(); }, ErrorCode::invalid_argument, difference.mentions));
    });
  }
}

TEST(LostRanks, AbortEndsWaitsOfAllRanksAtOnce) {
  test::expect_all_right(3, [](Exchange& exchange) {
    Communicator communicator(exchange, {.devices = {Device(0)}, .timeout = 60s});
    const Tensor tensor = some_tensor();
    std::jthread aborter;
    if (exchange.rank() == 2) {
      aborter = std::jthread([&] {
        std::this_thread::sleep_for(300ms);
        const Stopwatch watch;
        communicator.abort("enough");
        EXPECT_LT(watch.elapsed(), 100ms);
      });
      std::this_thread::sleep_for(600ms);
    }
    const Stopwatch watch;
    const std::string text = failure_of([&] {
      communicator.all_reduce_add({tensor}, {tensor});
      synchronize(0);
    });
    EXPECT_LT(watch.elapsed(), slack);
    expect_mentions(text, {"rank 2 gave up: enough"});
    EXPECT_TRUE(test::refuses([&] { communicator.barrier(); }, ErrorCode::aborted, {"enough"}));
  });
}

TEST(LostRanks, TheFlightRecordTellsWhatEveryRankDid) {
  test::expect_all_right(2, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    const Tensor tensor = some_tensor(123);
    communicator.broadcast({tensor}, 1);
    communicator.all_reduce_add({tensor}, {tensor});
    communicator.barrier();
    synchronize(0);
    const auto record = nlohmann::json::parse(communicator.flight_record());
    EXPECT_EQ(record["schema"], "tutti-flight-record/1");
    EXPECT_TRUE(record["aborted"].is_null());
    ASSERT_EQ(record["ranks"].size(), 2U);
    for (const auto& rank : record["ranks"]) {
      ASSERT_EQ(rank["calls"].size(), 3U);
      EXPECT_EQ(rank["calls"][0]["sequence"], 1);
      expect_mentions(rank["calls"][0]["call"], {"broadcast of 123 float32", "root 1"});
      expect_mentions(rank["calls"][1]["call"], {"all_reduce_add"});
      EXPECT_EQ(rank["calls"][1]["completed"], true);
    }
    EXPECT_EQ(record["ranks"][static_cast<std::size_t>(exchange.rank())]["process"], getpid());
  });
}

TEST(LostRanks, WhoCannotJoinFailsForAll) {
  test::expect_all_right(3, [](Exchange& exchange) {
    auto machine = virtual_devices::VirtualMachine::from_topology("island", 1);
    virtual_devices::start(machine);
    // Registering the shared memory fails on one rank.
    if (exchange.rank() == 1) {
      virtual_devices::inject({.operation = virtual_devices::Operation::allocate_pinned,
                               .kind = virtual_devices::FaultKind::fail});
    }
    EXPECT_TRUE(test::refuses([&] { make(exchange); }, ErrorCode::peer_unavailable, {"rank 1:", "register"}));
    Communicator communicator = make(exchange);  // the fault was for once
    communicator.barrier();
    synchronize(0);
  });
}

TEST(LostRanks, AHostThatIsAlwaysACallAheadIsNotLate) {
  test::expect_all_right(1, [](Exchange& exchange) {
    Communicator communicator(exchange, {.devices = {Device(0)}, .timeout = 400ms});
    const Tensor tensor = some_tensor();
    Event previous;
    for (int call = 0; call < 60; ++call) {
      Runtime::get().backend().launch_host_function(
          StreamAccess::ref(current_stream(0)), [](void*) { std::this_thread::sleep_for(20ms); }, nullptr);
      communicator.broadcast({tensor}, 0);  // of one member: no rounds
      Event now;
      now.record();
      if (call > 0) previous.synchronize();
      previous = std::move(now);
    }
    synchronize(0);
    EXPECT_TRUE(communicator.is_running());
  });
}

TEST(LostRanks, RanksThatPlanDifferentlyAreRefused) {
  test::expect_all_right(2, [](Exchange& exchange) {
    const auto determinism = exchange.rank() == 0 ? Determinism::bitwise : Determinism::fastest;
    EXPECT_TRUE(test::refuses(
        [&] { const Communicator refused(exchange, {.devices = {Device(0)}, .determinism = determinism}); },
        ErrorCode::invalid_argument, {"options.determinism is fastest on rank 1", "bitwise as on rank 0"}));
  });
}

TEST(LostRanks, ARankWithoutMemoryForACallMayMakeItAgain) {
  test::expect_all_right(2, [](Exchange& exchange) {
    virtual_devices::start(virtual_devices::VirtualMachine::from_topology("island", 1));
    Communicator communicator(exchange, {.devices = {Device(0)}, .timeout = 60s});
    const Tensor strided = ones({3000, 2000}, {.device = 0}).transpose(0, 1);  // goes through a dense copy
    const Tensor out = zeros({2000, 3000}, {.device = 0});
    synchronize(0);
    empty_cache();
    const std::size_t in_use = memory_allocated(0);
    if (exchange.rank() == 1) {
      virtual_devices::inject({.operation = virtual_devices::Operation::allocate_device,
                               .kind = virtual_devices::FaultKind::fail,
                               .count = 10});  // the allocator tries again when it has emptied its cache
      EXPECT_THROW(communicator.all_reduce_add({strided}, {out}), OutOfMemoryError);
      virtual_devices::clear_faults();
      EXPECT_EQ(memory_allocated(0), in_use);
      EXPECT_EQ(out.to_vector<float>()[0], 0.0F);
    }
    communicator.all_reduce_add({strided}, {out});
    EXPECT_EQ(out.to_vector<float>(), std::vector<float>(6'000'000, 2.0F));
  });
}

/// Forwards everything but messages.
class WithoutNetwork final : public Exchange {
 public:
  explicit WithoutNetwork(Exchange& exchange) : exchange_(exchange) {}
  [[nodiscard]] int rank() const override { return exchange_.rank(); }
  [[nodiscard]] int size() const override { return exchange_.size(); }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    exchange_.all_gather(mine, all);
  }

 private:
  Exchange& exchange_;
};

void pretend_host(int host) {
  setenv("TUTTI_HOST_ID", fmt::format("host {}", host).c_str(), 1);
}

/// Ranks of one machine that pretend to be on several.
class SeveralHosts : public testing::Test {
 protected:
  void SetUp() override {
    // Asked of the environment, as this process forks and must not start CUDA itself.
    const char* const backend = std::getenv("TUTTI_BACKEND");
    if (backend != nullptr && std::string_view(backend) == "cuda")
      GTEST_SKIP() << "losing ranks of several hosts is tried on virtual devices";
  }
};

TEST_F(SeveralHosts, AreRefusedByNameWithoutANetwork) {
  test::expect_all_right(2, [](Exchange& exchange) {
    pretend_host(exchange.rank());
    WithoutNetwork without(exchange);
    EXPECT_TRUE(test::refuses([&] { make(without); }, ErrorCode::unsupported,
                              {"rank 1", "'host 1'", "'host 0'", "no network"}));
  });
}

TEST_F(SeveralHosts, CannotReachOneAnothersMemory) {
  test::expect_all_right(2, [](Exchange& exchange) {
    pretend_host(exchange.rank());
    EXPECT_TRUE(test::refuses(
        [&] {
          const Communicator refused(exchange, {.devices = {Device(0)}, .transport = TransportKind::p2p});
        },
        ErrorCode::unsupported, {"p2p", "2 hosts"}));
    Communicator communicator = make(exchange);
    expect_mentions(communicator.explain(), {"2 hosts", "'host 0' (ranks 0)", "'host 1' (ranks 1)", "pipes"});
  });
}

TEST_F(SeveralHosts, AKilledRankEndsTheCallsOnAllHosts) {
  // Rank 1 has a neighbour on its host, who sees it go, and rank 2 hears of it.
  Ranks ranks(3, [](Exchange& exchange) {
    pretend_host(exchange.rank() / 2);
    Communicator communicator(exchange, {.devices = {Device(0)}, .timeout = 60s});
    const Tensor tensor = some_tensor();
    for (int call = 0; call < 5; ++call) communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    transport::ranks::synchronize(exchange);  // the others have come here too
    if (exchange.rank() == 1) std::raise(SIGKILL);
    const Stopwatch watch;
    const std::string text = failure_of([&] {
      communicator.all_reduce_add({tensor}, {tensor});
      synchronize(0);
    });
    EXPECT_LT(watch.elapsed(), slack);
    expect_mentions(text, {"rank 1", "is gone", "all_reduce_add"});
    EXPECT_TRUE(
        test::refuses([&] { communicator.barrier(); }, ErrorCode::peer_unavailable, {"rank 1", "is gone"}));
  });
  expect_endings(ranks, {all_right, killed, all_right});
}

TEST_F(SeveralHosts, ARankThatWasAloneOnItsHostIsNamedAfterTheTimeout) {
  Ranks ranks(3, [](Exchange& exchange) {
    pretend_host(exchange.rank() % 2);
    Communicator communicator = make(exchange);
    const Tensor tensor = some_tensor();
    communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    transport::ranks::synchronize(exchange);  // the others have come here too
    if (exchange.rank() == 1) std::raise(SIGKILL);
    const Stopwatch watch;
    const std::string text = failure_of([&] {
      communicator.all_reduce_add({tensor}, {tensor});
      synchronize(0);
    });
    EXPECT_LT(watch.elapsed(), timeout + slack);
    expect_mentions(text, {"1500 ms", "rank 1 has not made it", "its last call is all_reduce_add"});
  });
  expect_endings(ranks, {all_right, killed, all_right});
}

TEST_F(SeveralHosts, AStoppedRankIsNamedAndNotThoseWhoseWordsItHandsOn) {
  // What rank 0 sends to the other host goes to rank 1.
  Ranks ranks(3, [](Exchange& exchange) {
    pretend_host(exchange.rank() == 0 ? 0 : 1);
    Communicator communicator = make(exchange);
    const Tensor tensor = some_tensor();
    communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    transport::ranks::synchronize(exchange);  // the others have come here too
    if (exchange.rank() == 1) std::raise(SIGSTOP);
    const std::string text = failure_of([&] {
      communicator.reduce_add({tensor}, {tensor}, 0);
      synchronize(0);
    });
    if (exchange.rank() == 1) return;
    expect_mentions(text, {"reduce_add", "1500 ms", "rank 1 has not made it"});
    EXPECT_EQ(text.find("rank 0 has not made it"), std::string::npos) << text;
    EXPECT_EQ(text.find("rank 2 has not made it"), std::string::npos) << text;
  });
  std::this_thread::sleep_for(2 * timeout + slack);
  kill(ranks.process(1), SIGCONT);
  expect_endings(ranks, {all_right, all_right, all_right});
}

TEST_F(SeveralHosts, CallsThatDifferEndOnAllRanksWithBothSignatures) {
  for (const bool are_alternating : {false, true}) {
    test::expect_all_right(4, [&](Exchange& exchange) {
      pretend_host(are_alternating ? exchange.rank() % 2 : exchange.rank() / 2);
      Communicator communicator = make(exchange);
      const Stopwatch watch;
      const std::string text = failure_of([&] {
        communicator.broadcast({some_tensor(exchange.rank() < 2 ? 10 : 20)}, 0);
        synchronize(0);
      });
      EXPECT_LT(watch.elapsed(), timeout + slack);
      expect_mentions(text, {"does not match", "rank 1", "rank 2", "10 float32", "20 float32"});
    });
  }
}

TEST_F(SeveralHosts, AbortEndsWaitsOnAllHosts) {
  test::expect_all_right(3, [](Exchange& exchange) {
    pretend_host(exchange.rank());
    Communicator communicator(exchange, {.devices = {Device(0)}, .timeout = 60s});
    if (exchange.rank() == 2) {
      std::this_thread::sleep_for(300ms);
      communicator.abort("enough");
    }
    const Stopwatch watch;
    const std::string text = failure_of([&] {
      communicator.all_reduce_add({some_tensor()}, {some_tensor()});
      synchronize(0);
    });
    EXPECT_LT(watch.elapsed(), slack);
    expect_mentions(text, {"rank 2 gave up: enough"});
  });
}

TEST_F(SeveralHosts, ALateRankInTimeGetsTheRightResult) {
  test::expect_all_right(3, [](Exchange& exchange) {
    pretend_host(exchange.rank() % 2);
    Communicator communicator = make(exchange);
    const std::int64_t count = test::scaled(3'000'000);  // which takes as long under sanitizers
    const Tensor tensor = some_tensor(count);
    for (int call = 1; call <= 3; ++call) {
      if (exchange.rank() == 0) tensor.fill_(call);
      if (exchange.rank() == call % 3) std::this_thread::sleep_for(timeout / 3);
      communicator.broadcast({tensor}, 0);
      const auto values = tensor.to_vector<float>();
      EXPECT_EQ(std::ranges::count(values, static_cast<float>(call)), count);
    }
  });
}

TEST_F(SeveralHosts, ARankThatLeavesWaitsForThoseWhoNeedItsCourier) {
  test::expect_all_right(4, [](Exchange& exchange) {
    pretend_host(exchange.rank() / 2);
    Communicator communicator = make(exchange);
    const Tensor tensor = some_tensor();
    communicator.broadcast({tensor}, 0);
    // The root is through long before the others begin.
    if (exchange.rank() != 0) std::this_thread::sleep_for(timeout / 3);
    if (exchange.rank() == 3) {
      EXPECT_EQ(tensor.to_vector<float>()[0], 0.0F);
    }
    EXPECT_TRUE(communicator.is_running());
  });
}

TEST_F(SeveralHosts, AnIdleTeamLeavesTheProcessorAlone) {
  test::expect_all_right(2, [](Exchange& exchange) {
    pretend_host(exchange.rank());
    Communicator communicator = make(exchange);
    communicator.barrier();
    synchronize(0);
    const auto used = [] {
      timespec time{};
      clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
      return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
    };
    std::this_thread::sleep_for(100ms);
    const auto before = used();
    std::this_thread::sleep_for(1s);
    EXPECT_LT(used() - before, 200ms);
  });
}

TEST_F(SeveralHosts, TheFlightRecordTellsOfAllHosts) {
  test::expect_all_right(2, [](Exchange& exchange) {
    pretend_host(exchange.rank());
    Communicator communicator = make(exchange);
    communicator.broadcast({some_tensor(123)}, 1);
    communicator.barrier();
    synchronize(0);
    const Stopwatch watch;
    for (;;) {
      const auto record = nlohmann::json::parse(communicator.flight_record());
      const auto& other = record["ranks"][exchange.rank() == 0 ? 1U : 0U];
      EXPECT_EQ(other["host"], fmt::format("host {}", 1 - exchange.rank()));
      // It comes when it comes: this rank has no need of the other's last word.
      const bool is_there = other["calls"].size() == 2 && other["calls"][1]["completed"] == true;
      if (is_there) expect_mentions(other["calls"][0]["call"], {"broadcast of 123 float32"});
      if (is_there) break;
      ASSERT_LT(watch.elapsed(), slack);
    }
  });
}

TEST(LostRanks, ARankWithBadOptionsIsNamedToTheOthers) {
  test::expect_all_right(3, [](Exchange& exchange) {
    const Stopwatch watch;
    CommunicatorOptions options{.devices = {Device(0)}};
    if (exchange.rank() == 1) options.window_bytes = 1000;
    const auto refused = [&] { const Communicator communicator(exchange, options); };
    if (exchange.rank() == 1) {
      EXPECT_TRUE(test::refuses(refused, ErrorCode::invalid_argument, {"options.window_bytes is 1000"}));
    } else {
      EXPECT_TRUE(
          test::refuses(refused, ErrorCode::peer_unavailable, {"rank 1:", "options.window_bytes is 1000"}));
    }
    EXPECT_LT(watch.elapsed(), slack);
    Communicator communicator = make(exchange);
    communicator.barrier();
    synchronize(0);
  });
}

std::size_t open_descriptors() {
  const std::filesystem::directory_iterator open("/proc/self/fd");
  return static_cast<std::size_t>(std::distance(begin(open), end(open)));
}

void expect_nothing_left_behind(int hosts) {
  test::expect_all_right(2, [hosts](Exchange& exchange) {
    pretend_host(exchange.rank() % hosts);
    static_cast<void>(device_count());  // what the library opens once
    const Tensor tensor = some_tensor();
    {
      Communicator communicator = make(exchange);
      communicator.all_reduce_add({tensor}, {tensor});
    }
    const std::size_t before = open_descriptors();
    for (int round = 0; round < 20; ++round) {
      Communicator communicator = make(exchange);
      communicator.all_reduce_add({tensor}, {tensor});
    }
    EXPECT_EQ(open_descriptors(), before);
  });
  for (const auto& file : std::filesystem::directory_iterator("/dev/shm")) {
    EXPECT_EQ(file.path().string().find("tutti"), std::string::npos) << file.path();
  }
}

TEST(LostRanks, NothingIsLeftBehind) {
  expect_nothing_left_behind(1);
}

TEST_F(SeveralHosts, NothingIsLeftBehind) {
  expect_nothing_left_behind(2);
}

}  // namespace
}  // namespace tutti
