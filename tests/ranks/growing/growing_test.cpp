// SPDX-License-Identifier: Apache-2.0
#include "ranks/growing/growing.hpp"

#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/memory/process_resources.hpp"
#include "support/ranks.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/tcp.hpp"

#include <chrono>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

/// Communicators that let new ranks in.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

/// Makes calls that a rank, once it has made them, may end by its death.
void try_to_work(Communicator& communicator) {
  try {
    expect_works(communicator, communicator.rank(), communicator.rank_count());
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::peer_unavailable) << error.what();
  }
}

TEST(Growing, LetsNewRanksInBehindTheOldOnes) {
  const MeetingPoint point = some_meeting_point();
  Ranks newcomers(2, [&](Exchange&) {
    Communicator communicator = join(point);
    EXPECT_GE(communicator.rank(), 3);
    expect_works(communicator, communicator.rank(), 5);
  });
  Ranks members(3, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const Tensor tensor = full({10'000}, 1, {.dtype = DType::float32, .device = 0});
    communicator.all_reduce_add({tensor}, {tensor});
    Communicator larger = communicator.grow({.meeting_point = point, .most = 2});
    EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(10'000, 3.0F)) << "calls are waited for";
    EXPECT_TRUE(
        refuses([&] { communicator.check(); }, ErrorCode::aborted, {"go on as another communicator"}));
    expect_works(larger, exchange.rank(), 5);
  });
  expect_endings(members, {all_right, all_right, all_right});
  expect_endings(newcomers, {all_right, all_right});
}

TEST(Growing, GrowsFromOneRankAgainAndAgain) {
  const MeetingPoint point = some_meeting_point();
  constexpr int most = 4;
  const auto grow = [&](Communicator& communicator) {
    const int rank = communicator.rank();
    for (int count = communicator.rank_count() + 1; count <= most; ++count) {
      communicator = communicator.grow({.meeting_point = point});
      expect_works(communicator, rank, count);
    }
  };
  Ranks newcomers(most - 1, [&](Exchange&) {
    Communicator communicator = join(point);
    expect_works(communicator, communicator.rank(), communicator.rank() + 1);
    grow(communicator);
  });
  Ranks members(1, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    grow(communicator);
  });
  expect_endings(members, {all_right});
  expect_endings(newcomers, std::vector<Ending>(most - 1, all_right));
}

TEST(Growing, GoesOnAsBeforeIfTooFewCome) {
  const MeetingPoint point = some_meeting_point();
  Ranks newcomers(1, [&](Exchange&) {
    EXPECT_TRUE(refuses([&] { static_cast<void>(join(point)); }, ErrorCode::timeout,
                        {"Communicator::join: 1 of 2 new ranks came to 127.0.0.1:", within(short_timeout)}));
  });
  Ranks members(2, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const Stopwatch watch;
    EXPECT_TRUE(refuses(
        [&] {
          static_cast<void>(communicator.grow({.meeting_point = point, .most = 2, .timeout = short_timeout}));
        },
        ErrorCode::timeout, {"Communicator::grow: 1 of 2 new ranks came to 127.0.0.1:"}));
    EXPECT_LT(watch.elapsed(), short_timeout + slack);
    EXPECT_TRUE(communicator.is_running());
    expect_works(communicator, exchange.rank(), 2);
  });
  expect_endings(members, {all_right, all_right});
  expect_endings(newcomers, {all_right});
}

TEST(Growing, TakesWhoHasComeByChoice) {
  const MeetingPoint point = some_meeting_point();
  const std::chrono::milliseconds enough = patient(asks_for_gpus() ? 5s : 1s);
  Ranks newcomers(1, joins_as(point, 2, 3));
  Ranks members(2, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    communicator = communicator.grow({.meeting_point = point, .most = 3, .fewest = 1, .timeout = enough});
    expect_works(communicator, exchange.rank(), 3);
  });
  expect_endings(members, {all_right, all_right});
  expect_endings(newcomers, {all_right});
}

TEST(Growing, SparesTakeTheNumbersOfLostRanksSoon) {
  const MeetingPoint point = some_meeting_point();
  Ranks spares(2, [&](Exchange&) {
    Communicator communicator = join(point);
    const int rank = communicator.rank();
    EXPECT_TRUE(rank == 0 || rank == 2) << rank;
    const Tensor tensor = full({10'000}, 1, {.dtype = DType::float32, .device = 0});
    communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    expect_works(communicator, rank, 4);
  });
  Ranks members(4, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const Tensor tensor = full({10'000}, 1, {.dtype = DType::float32, .device = 0});
    communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    transport::team::synchronize(exchange);
    if (exchange.rank() % 2 == 0) std::raise(SIGKILL);
    const Stopwatch watch;
    static_cast<void>(failure_of(0, [&] { communicator.all_reduce_add({tensor}, {tensor}); }));
    communicator = communicator.replace({.meeting_point = point});
    communicator.all_reduce_add({tensor}, {tensor});
    synchronize(0);
    EXPECT_LT(watch.elapsed(), slack);
    if (exchange.rank() == 1) std::printf("%lld ms\n", static_cast<long long>(watch.elapsed() / 1ms));
    expect_works(communicator, exchange.rank(), 4);
  });
  expect_endings(members, {killed, all_right, killed, all_right});
  expect_endings(spares, {all_right, all_right});
}

TEST(Growing, SparesWaitForTheirTurn) {
  const MeetingPoint point = some_meeting_point();
  constexpr int losses = 3;
  // Each rank that comes as a spare is the next to be lost.
  Ranks spares(losses, [&](Exchange&) {
    Communicator communicator = join(point);
    expect_works(communicator, 1, 3);
    if (!testing::Test::HasFailure()) std::raise(SIGKILL);
  });
  Ranks members(3, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    if (exchange.rank() == 1) std::raise(SIGKILL);
    for (int loss = 0; loss < losses; ++loss) {
      await_end(communicator);
      communicator = communicator.replace({.meeting_point = point});
      try_to_work(communicator);
    }
  });
  expect_endings(members, {all_right, killed, all_right});
  expect_endings(spares, std::vector<Ending>(losses, killed));
}

TEST(Growing, NobodyMayLetAProcessIn) {
  const MeetingPoint point = some_meeting_point();
  expect_all_right(1, [&](Exchange&) {
    const Stopwatch watch;
    EXPECT_TRUE(refuses([&] { static_cast<void>(join(point, short_timeout)); }, ErrorCode::timeout,
                        {"Communicator::join: after ",
                         "no rank has let this process in at 127.0.0.1:", "nobody listens there"}));
    EXPECT_LT(watch.elapsed(), short_timeout + slack);
    EXPECT_TRUE(refuses([&] { static_cast<void>(Communicator::join({.timeout = 0ms})); },
                        ErrorCode::invalid_argument, {"Communicator::join"}));
  });
}

TEST(Growing, ReplacesRanksThatLeave) {
  const MeetingPoint point = some_meeting_point();
  Ranks spares(1, joins_as(point, 0, 3));
  Ranks members(3, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    Communicator next = communicator.replace({.meeting_point = point, .leaving = {0}});
    EXPECT_EQ(static_cast<bool>(next), exchange.rank() != 0);
    if (next) {
      expect_works(next, exchange.rank(), 3);
    } else {
      await_end(communicator);
    }
  });
  expect_endings(members, {all_right, all_right, all_right});
  expect_endings(spares, {all_right});
}

TEST(Growing, ReplacesNobodyWhereNobodyIsLost) {
  const MeetingPoint point = some_meeting_point();
  expect_all_right(2, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    communicator = communicator.replace({.meeting_point = point});
    expect_works(communicator, exchange.rank(), 2);
  });
}

TEST(Growing, LetsTheLeftShrinkWhereNoSpareComes) {
  const MeetingPoint point = some_meeting_point();
  Ranks members(3, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    if (exchange.rank() == 2) std::raise(SIGKILL);
    await_end(communicator);
    EXPECT_TRUE(refuses(
        [&] { static_cast<void>(communicator.replace({.meeting_point = point, .timeout = short_timeout})); },
        ErrorCode::timeout, {"Communicator::replace: 0 of 1 new ranks came"}));
    EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.grow({.meeting_point = point})); },
                        ErrorCode::peer_unavailable, {"only 2 of 3 ranks are left"}));
    communicator = communicator.shrink();
    expect_works(communicator, exchange.rank(), 2);
  });
  expect_endings(members, {all_right, all_right, killed});
}

TEST(Growing, RefusesAProcessWithOtherOptionsOnAllAndGoesOnAsBefore) {
  const MeetingPoint point = some_meeting_point();
  Ranks newcomers(1, [&](Exchange&) {
    EXPECT_TRUE(refuses(
        [&] {
          static_cast<void>(Communicator::join(
              {.meeting_point = point}, {.devices = {Device(0)}, .window_bytes = std::size_t{1} << 20U}));
        },
        ErrorCode::invalid_argument, {"Communicator::join", "options.window_bytes"}));
  });
  Ranks members(2, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    EXPECT_TRUE(refuses([&] { static_cast<void>(communicator.grow({.meeting_point = point})); },
                        ErrorCode::invalid_argument, {"Communicator::grow", "options.window_bytes"}));
    EXPECT_TRUE(communicator.is_running());
    expect_works(communicator, exchange.rank(), 2);
  });
  expect_endings(members, {all_right, all_right});
  expect_endings(newcomers, {all_right});
}

TEST(Growing, RefusesStrangersAndRanksThatMeet) {
  const MeetingPoint point = some_meeting_point();
  Ranks newcomers(3, [&](Exchange& exchange) {
    if (exchange.rank() == 0) {
      MeetingPoint other = point;
      other.secret = "another secret 16";
      EXPECT_TRUE(refuses([&] { static_cast<void>(join(other)); }, ErrorCode::invalid_argument,
                          {"another secret than this process"}));
    } else if (exchange.rank() == 1) {
      const tcp::Rendezvous late{
          .rank = 1, .size = 2, .port = point.port, .secret = point.secret, .job = point.job};
      EXPECT_TRUE(
          refuses([&] { tcp::Exchange met(late); }, ErrorCode::invalid_argument,
                  {"rank 1 has come to a meeting point at which running ranks let new processes in"}));
    }
    transport::team::synchronize(exchange);
    if (exchange.rank() == 2) expect_works(*std::make_unique<Communicator>(join(point)), 2, 3);
  });
  Ranks members(2, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    communicator = communicator.grow({.meeting_point = point});
    expect_works(communicator, exchange.rank(), 3);
  });
  expect_endings(members, {all_right, all_right});
  expect_endings(newcomers, {all_right, all_right, all_right});
}

TEST(Growing, WaitsWhereRanksStillMeet) {
  tcp::Rendezvous rendezvous = local_rendezvous(2);
  const MeetingPoint point{.port = rendezvous.port, .secret = rendezvous.secret, .job = rendezvous.job};
  Ranks newcomers(1, joins_as(point, 2, 3));
  Ranks members(2, [&](Exchange& exchange) {
    // Rank 0 listens for a while before rank 1 comes, and turns the other process away.
    if (exchange.rank() == 1) std::this_thread::sleep_for(patient(100ms));
    tcp::Exchange met(as_rank(rendezvous, exchange.rank()));
    Communicator communicator(met, {.devices = {Device(0)}, .timeout = hang_limit()});
    communicator = communicator.grow({.meeting_point = point});
    expect_works(communicator, exchange.rank(), 3);
  });
  expect_endings(members, {all_right, all_right});
  expect_endings(newcomers, {all_right});
}

TEST(Growing, RefusesBadOptionsAndWishesThatDiffer) {
  const MeetingPoint point = some_meeting_point();
  expect_all_right(2, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const auto is_refused = [&](const GrowOptions& options, const std::string& text) {
      return refuses([&] { static_cast<void>(communicator.grow(options)); }, ErrorCode::invalid_argument,
                     {text});
    };
    EXPECT_TRUE(is_refused({}, "Communicator::grow: options.meeting_point.port is 0, expected 1 to 65535"));
    EXPECT_TRUE(is_refused({.meeting_point = point, .most = 17}, "options.most is 17, expected 1 to 16"));
    EXPECT_TRUE(is_refused({.meeting_point = point, .most = 2, .fewest = 3}, "options.fewest is 3"));
    EXPECT_TRUE(is_refused({.meeting_point = {.port = 1, .secret = "short"}}, "secret has 5 byte(s)"));
    EXPECT_TRUE(is_refused({.meeting_point = {.address = "192.0.2.1", .port = 1}}, "secret is not set"));
    EXPECT_TRUE(is_refused({.meeting_point = point, .timeout = 0ms}, "options.timeout is 0 ms"));
    const int rank = exchange.rank();
    EXPECT_TRUE(is_refused({.meeting_point = point, .most = 1 + rank}, "expected the same"));
    transport::team::synchronize(exchange);
    EXPECT_TRUE(is_refused({.meeting_point = {.port = point.port, .job = std::to_string(rank)}},
                           "options.meeting_point differs"));
    transport::team::synchronize(exchange);
    EXPECT_TRUE(refuses(
        [&] {
          static_cast<void>(rank == 0 ? communicator.shrink()
                                      : communicator.replace({.meeting_point = point}));
        },
        ErrorCode::invalid_argument, {"Communicator::shrink", "Communicator::replace", "expected the same"}));
    transport::team::synchronize(exchange);
    EXPECT_TRUE(communicator.is_running());
    expect_works(communicator, rank, 2);
  });
}

TEST(Growing, LeavesNothingBehind) {
  const MeetingPoint point = some_meeting_point();
  const auto rounds = static_cast<int>(scaled(asks_for_gpus() ? 8 : 80));
  constexpr int first_rounds = 5;
  // A new process for each loss.
  Ranks spares(1, [&](Exchange&) {
    for (int round = 0; round < first_rounds + rounds; ++round) {
      const pid_t process = fork();
      if (process == 0) {
        Communicator communicator = join(point);
        communicator.barrier();
        synchronize(0);
        std::raise(SIGKILL);
      }
      int status = 0;
      EXPECT_EQ(waitpid(process, &status, 0), process);
      ASSERT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
    }
  });
  Ranks members(2, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const auto lose = [&] {
      try {
        communicator.barrier();
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::peer_unavailable) << error.what();
      }
      await_end(communicator);
    };
    communicator = communicator.grow({.meeting_point = point});
    const auto lose_and_replace = [&](int round) {
      lose();
      if (round % 2 == 0) {
        communicator = communicator.replace({.meeting_point = point});
      } else {
        communicator = communicator.shrink();
        communicator = communicator.grow({.meeting_point = point});
      }
    };
    for (int round = 1; round < first_rounds; ++round) lose_and_replace(round);
    transport::team::synchronize(exchange);
    const std::size_t heap = heap_bytes();
    const std::size_t descriptors = open_descriptors();
    const std::size_t mappings = shared_mappings();
    const std::size_t threads_before = threads();
    const std::size_t memory = free_memory(0);
    for (int round = 0; round < rounds; ++round) lose_and_replace(round);
    transport::team::synchronize(exchange);
    if (exchange.rank() == 0) {
      const auto more = [](std::size_t now, std::size_t before) {
        return static_cast<long long>(now) - static_cast<long long>(before);
      };
      std::printf("%d losses: %+lld descriptors, %+lld mappings, %+lld threads, %+lld bytes of the heap\n",
                  rounds, more(open_descriptors(), descriptors), more(shared_mappings(), mappings),
                  more(threads(), threads_before), more(heap_bytes(), heap));
    }
    // What the last communicators have left may not have been closed yet by the other rank.
    constexpr std::size_t late = 6;
    EXPECT_LE(open_descriptors(), descriptors + late);
    EXPECT_LE(shared_mappings(), mappings + late);
    EXPECT_EQ(threads(), threads_before);
    constexpr std::size_t histories = std::size_t{32} << 10U;  // of bounded length
    EXPECT_TRUE(!on_virtual_devices() || heap_bytes() <= heap + histories) << heap_bytes() - heap;
    EXPECT_TRUE(!on_virtual_devices() || free_memory(0) + late * (std::size_t{8} << 20U) >= memory);
    lose();
  });
  expect_endings(members, {all_right, all_right});
  expect_endings(spares, {all_right});
}

}  // namespace
}  // namespace tutti::test::ranks
