// SPDX-License-Identifier: Apache-2.0
#include "device/runtime.hpp"
#include "os/shared_flag.hpp"
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "support/errors.hpp"
#include "support/forwarding_exchange.hpp"
#include "support/memory/process_resources.hpp"
#include "support/timing.hpp"
#include "transport/team/joining/build_mark.hpp"
#include "transport/team/shared/agreement.hpp"
#include "transport/team/shared/signature.hpp"
#include "transport/team/team.hpp"
#include "transport/team/team_exchange.hpp"
#include "tutti/version.hpp"
#include "tutti/virtual_devices.hpp"

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

/// What goes wrong while ranks come together.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

/// As an exchange among ranks of which rank 1 is killed when it comes to step `step`.
class ExchangeThatLosesARank final : public ForwardingExchange {
 public:
  ExchangeThatLosesARank(Exchange& exchange, int step) : ForwardingExchange(exchange), steps_left_(step) {}

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (steps_left_-- == 0) {
      if (rank() == 1) std::raise(SIGKILL);
      throw std::runtime_error("rank 1 does not come");
    }
    ForwardingExchange::all_gather(mine, all);
  }

 private:
  int steps_left_;
};

TEST(Joining, EndsWithTheExchangeWhenARankIsKilled) {
  int step = 0;
  for (bool have_joined = false; !have_joined; ++step) {
    SCOPED_TRACE(testing::Message() << "step " << step);
    Ranks ranks(3, [step](Exchange& exchange) {
      const Tensor tensor = some_tensor();
      const std::size_t descriptors = open_descriptors();
      const std::size_t mappings = shared_mappings();
      ExchangeThatLosesARank losing(exchange, step);
      try {
        Communicator communicator = make(losing);
        communicator.barrier();
        synchronize(0);
      } catch (const std::exception& error) {
        EXPECT_TRUE(mentions(error.what(), {"rank 1 does not come"}));
      }
      EXPECT_LE(open_descriptors(), descriptors);
      EXPECT_LE(shared_mappings(), mappings);
    });
    const std::vector<Ending> endings = ranks.wait(60s);
    EXPECT_EQ(endings[0], all_right);
    EXPECT_EQ(endings[2], all_right);
    have_joined = endings[1] == all_right;
    ASSERT_TRUE(have_joined || endings[1] == killed) << endings[1];
  }
  EXPECT_GT(step, 3) << "ranks exchange something";
}

/// As an exchange among ranks that waits for rank 1 in vain at step `step`.
class ExchangeThatWaits final : public ForwardingExchange {
 public:
  ExchangeThatWaits(Exchange& exchange, int step) : ForwardingExchange(exchange), steps_left_(step) {}

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (steps_left_-- == 0) throw Error(ErrorCode::timeout, fmt::format("{} ms, rank 1", limit_.count()), 7);
    ForwardingExchange::all_gather(mine, all);
  }
  void limit_waits(std::chrono::milliseconds limit) override { limit_ = limit; }

 private:
  int steps_left_;
  std::chrono::milliseconds limit_{};
};

TEST(Joining, EveryStepIsBoundedByTheTimeoutAndNamedIfARankDoesNotCome) {
  for (const int hosts : {1, 2}) {
    expect_all_right(2, [hosts](Exchange& exchange) {
      pretend_host(exchange.rank() % hosts);
      std::vector<std::string> steps;
      bool have_joined = false;
      for (int step = 0; !have_joined; ++step) {
        ExchangeThatWaits waiting(exchange, step);
        try {
          const Communicator communicator(waiting, {.devices = {Device(0)}, .timeout = 4321ms});
          have_joined = true;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::timeout);
          EXPECT_EQ(error.native_code(), 7);
          EXPECT_TRUE(mentions(error.what(), {"Communicator: while the ranks ", ": 4321 ms, rank 1"}));
          steps.emplace_back(error.what());
        }
        transport::team::synchronize(exchange);
      }
      EXPECT_TRUE(mentions(steps.front(), {"introduce themselves"}));
      EXPECT_TRUE(std::ranges::any_of(steps, [](const std::string& step) {
        return step.find("start to supervise one another") != std::string::npos;
      }));
      EXPECT_GT(std::set(steps.begin(), steps.end()).size(), 3U);
    });
  }
}

TEST(Joining, ARankKilledWhileAllSplitIsNamed) {
  for (const auto delay : {0us, 300us, 1000us, 3000us, 10'000us, 30'000us}) {
    SCOPED_TRACE(testing::Message() << delay.count() << " us");
    Ranks ranks(3, [delay](Exchange& exchange) {
      Communicator communicator = make(exchange, 60s);
      communicator.barrier();
      synchronize(0);
      transport::team::synchronize(exchange);
      std::jthread killer;
      if (exchange.rank() == 1) {
        killer = std::jthread([delay] {
          std::this_thread::sleep_for(delay);
          std::raise(SIGKILL);
        });
      }
      const Stopwatch watch;
      const std::string text = failure_of(0, [&] {
        std::optional<Communicator> part = communicator.split(0);
        part->barrier();
      });
      EXPECT_TRUE(mentions(text, {"rank 1", "is gone"}));
      EXPECT_LT(watch.elapsed(), slack);
      // This one's own watch may be a moment behind the part's.
      EXPECT_TRUE(mentions(failure_of(0, [&] { communicator.barrier(); }), {"rank 1", "is gone"}));
    });
    expect_endings(ranks, {all_right, killed, all_right});
  }
}

TEST(Joining, ARankKilledWhereTheOthersSplitIsNamedWithWhatTheyWaitFor) {
  Ranks ranks(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange, 60s);
    transport::team::synchronize(exchange);
    if (exchange.rank() == 1) {
      std::this_thread::sleep_for(timeout / 4);  // the others wait
      std::raise(SIGKILL);
    }
    const std::string text = failure_of(0, [&] { static_cast<void>(communicator.split(0)); });
    EXPECT_TRUE(
        mentions(text, {"rank 1", "is gone", fmt::format("rank {} waits in split", exchange.rank())}) ||
        mentions(text, {"rank 1", "is gone", fmt::format("rank {} waits in split", 2 - exchange.rank())}));
  });
  expect_endings(ranks, {all_right, killed, all_right});
}

/// `text` tells of rank 1 that it holds up a split, and of no other.
testing::AssertionResult names_rank_1_alone(const std::string& text) {
  for (const char* const other : {"rank 0 has", "rank 2 has"}) {
    if (text.find(other) != std::string::npos) return testing::AssertionFailure() << other << ": " << text;
  }
  return mentions(text, {"split", within_timeout, "rank 1 has made it and not completed it"});
}

TEST(Joining, ARankThatHangsWhileAllSplitIsNamed) {
  expect_all_right(3, [](Exchange& exchange) {
    Communicator communicator = make(exchange);
    communicator.barrier();
    synchronize(0);
    transport::team::synchronize(exchange);  // nobody is still in the barrier
    // It tests the part's memory for so long.
    if (exchange.rank() == 1) {
      virtual_devices::inject(
          {.operation = virtual_devices::Operation::kernel,
           .kind = virtual_devices::FaultKind::delay,
           .delay_microseconds = static_cast<std::uint64_t>(std::chrono::microseconds(2 * timeout).count())});
    }
    const Stopwatch watch;
    EXPECT_TRUE(names_rank_1_alone(failure_of(0, [&] { static_cast<void>(communicator.split(0)); })));
    EXPECT_LT(watch.elapsed(), 2 * timeout + slack);
  });
}

TEST(Joining, ARankStoppedInTheMiddleOfASplitIsNamed) {
  for (const int hosts : {1, 2}) {
    SCOPED_TRACE(testing::Message() << hosts << " hosts");
    Ranks ranks(3, [hosts](Exchange& exchange) {
      using namespace transport::team;
      pretend_host(exchange.rank() % hosts);
      Team team(Runtime::get(), exchange,
                {.timeout = timeout, .patience = timeout, .window_bytes = 1U << 20U, .devices = {0}});
      const std::uint64_t call = team.calls().post({.collective = Collective::split}, false);
      backend::set_flag(team.state().done_flag(team.membership().first_local()),
                        static_cast<std::uint32_t>(call));  // on devices
      TeamExchange among(team, call);
      transport::team::synchronize(among);
      transport::team::synchronize(exchange);  // the others have heard from it
      if (exchange.rank() == 1) std::raise(SIGSTOP);
      const Stopwatch watch;
      const std::string text = failure_of(0, [&] { transport::team::synchronize(among); });
      if (exchange.rank() == 1) return;
      EXPECT_LT(watch.elapsed(), timeout + slack);
      EXPECT_TRUE(names_rank_1_alone(text));
    });
    ranks.resume_after_others(timeout + slack, 1);
    expect_endings(ranks, {all_right, all_right, all_right});
  }
}

/// No file, and no shared memory, may become longer; for the scope's lifetime.
class FileSizeLimit {
 public:
  explicit FileSizeLimit(std::size_t bytes) {
    EXPECT_EQ(getrlimit(RLIMIT_FSIZE, &before_), 0);
    const rlimit limit{bytes, before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_FSIZE, &limit), 0);
  }
  FileSizeLimit(const FileSizeLimit&) = delete;
  FileSizeLimit& operator=(const FileSizeLimit&) = delete;
  ~FileSizeLimit() { setrlimit(RLIMIT_FSIZE, &before_); }

 private:
  rlimit before_{};
};

TEST(Joining, WithoutSharedMemoryFailsForAllAndMayBeTriedAgain) {
  expect_all_right(3, [](Exchange& exchange) {
    const Tensor tensor = some_tensor();
    const std::size_t descriptors = open_descriptors();
    const std::size_t mappings = shared_mappings();
    // Room for nothing; for what ranks tell one another, but not for their data.
    for (const std::size_t bytes : {std::size_t{4} << 10U, std::size_t{1} << 20U}) {
      std::optional<FileSizeLimit> limit;
      if (exchange.rank() == 0) limit.emplace(bytes);
      EXPECT_TRUE(refuses([&] { make(exchange); }, ErrorCode::peer_unavailable,
                          {"rank 0:", "shared memory", "bytes cannot be allocated", "ulimit -f"}));
      EXPECT_LE(open_descriptors(), descriptors);
      EXPECT_LE(shared_mappings(), mappings);
    }
    Communicator communicator = make(exchange);
    communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
  });
}

/// As an exchange of which one rank has another version of the library.
class ExchangeOfAnotherVersion final : public ForwardingExchange {
 public:
  using ForwardingExchange::ForwardingExchange;

  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    std::vector<std::byte> told(mine.begin(), mine.end());
    if (std::exchange(is_first_, false) && rank() == 1) {
      transport::team::BuildMark mark;
      EXPECT_EQ(mine.size(), sizeof mark);
      std::memcpy(&mark, mine.data(), sizeof mark);
      mark.version[0] = '9';
      std::memcpy(told.data(), &mark, sizeof mark);
    }
    ForwardingExchange::all_gather(told, all);
  }

 private:
  bool is_first_ = true;
};

TEST(Joining, RanksOfDifferentBuildsAreRefused) {
  expect_all_right(3, [](Exchange& exchange) {
    ExchangeOfAnotherVersion other(exchange);
    std::string theirs(version());
    theirs[0] = '9';
    EXPECT_TRUE(refuses([&] { make(other); }, ErrorCode::invalid_argument,
                        {"rank 1 uses tutti " + theirs, "rank 0 tutti " + std::string(version())}));
    Communicator communicator = make(exchange);
    communicator.barrier();
    synchronize(0);
  });
}

TEST(Joining, AHostWithTooLongANameIsToldToAll) {
  expect_all_right(2, [](Exchange& exchange) {
    { const Tensor used = some_tensor(); }
    const std::string longest(511, 'x');
    setenv("TUTTI_HOST_ID", (exchange.rank() == 1 ? longest + "y" : longest).c_str(), 1);
    if (exchange.rank() == 1) {
      EXPECT_TRUE(refuses([&] { make(exchange); }, ErrorCode::invalid_argument, {"TUTTI_HOST_ID", "511"}));
    } else {
      EXPECT_TRUE(
          refuses([&] { make(exchange); }, ErrorCode::peer_unavailable, {"rank 1:", "TUTTI_HOST_ID"}));
    }
  });
}

/// Standard streams that are closed, for the scope's lifetime.
class ClosedStreams {
 public:
  ClosedStreams() {
    for (int stream = 0; stream < count; ++stream) {
      kept_[stream] = fcntl(stream, F_DUPFD_CLOEXEC, 50);
      close(stream);
    }
  }
  ClosedStreams(const ClosedStreams&) = delete;
  ClosedStreams& operator=(const ClosedStreams&) = delete;
  ~ClosedStreams() {
    for (int stream = 0; stream < count; ++stream) {
      dup2(kept_[stream], stream);
      close(kept_[stream]);
    }
  }
  /// Nobody has taken their numbers.
  [[nodiscard]] static bool are_free() {
    bool are_free = true;
    for (int stream = 0; stream < count; ++stream) are_free &= fcntl(stream, F_GETFD) < 0;
    return are_free;
  }

 private:
  static constexpr int count = 3;
  int kept_[count] = {};
};

TEST(Joining, StandardStreamsThatAreClosedStaySo) {
  for (const int hosts : {1, 2}) {
    SCOPED_TRACE(testing::Message() << hosts << " hosts");
    expect_all_right(3, [hosts](Exchange& exchange) {
      pretend_host(exchange.rank() % hosts);
      bool are_free = true;
      std::vector<float> sums;
      {
        const ClosedStreams closed;
        Communicator communicator = make(exchange);
        are_free &= ClosedStreams::are_free();
        const Tensor tensor = full({100'000}, 1, {.device = 0});  // is read where it lies
        communicator.all_reduce_add({tensor}, {tensor});
        sums = tensor.to_vector<float>();
        are_free &= ClosedStreams::are_free();
        const std::optional<Communicator> part = communicator.split(0);
        are_free &= ClosedStreams::are_free();
      }
      EXPECT_TRUE(are_free);
      EXPECT_EQ(sums, std::vector<float>(100'000, 3.0F));
    });
  }
}

}  // namespace
}  // namespace tutti::test::ranks
