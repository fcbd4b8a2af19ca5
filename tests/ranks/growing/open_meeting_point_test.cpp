// SPDX-License-Identifier: Apache-2.0
#include "tutti/open_meeting_point.hpp"

#include "collectives/bootstrap/tcp/admission.hpp"
#include "ranks/growing/growing.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/idle_process.hpp"
#include "support/memory/process_resources.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

/// Meeting points that are open between the calls that let processes in.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

/// Limit of a process that nobody lets in: others see meanwhile that it waits.
const std::chrono::milliseconds until_it_gives_up = patient(1s);

testing::AssertionResult await_waiting(const OpenMeetingPoint& point, int count) {
  return becomes_true([&] { return point.waiting_count() == count; });
}

/// Waits on rank 0 until so many processes wait, and has all ranks wait for it.
void await_waiting(Exchange& exchange, const std::optional<OpenMeetingPoint>& point, int count) {
  if (point) {
    EXPECT_TRUE(await_waiting(*point, count));
  }
  transport::team::synchronize(exchange);
}

TEST(OpenMeetingPoints, ProcessesComeAnyTimeAndAreLetInUpToALimit) {
  const MeetingPoint point = some_meeting_point();
  Ranks newcomers(3, [&](Exchange&) {
    Communicator communicator = join(point);
    if (communicator.rank_count() == 4) communicator = communicator.grow({.meeting_point = point});
    expect_works(communicator, communicator.rank(), 5);
  });
  Ranks members(2, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const auto open = held_by(0, exchange, point);
    await_waiting(exchange, open, 3);
    expect_works(communicator, exchange.rank(), 2);
    communicator = communicator.grow({.meeting_point = point, .most = 2});
    EXPECT_EQ(communicator.rank_count(), 4);
    await_waiting(exchange, open, 1);
    communicator = communicator.grow({.meeting_point = point});
    expect_works(communicator, exchange.rank(), 5);
    await_waiting(exchange, open, 0);
  });
  expect_endings(members, {all_right, all_right});
  expect_endings(newcomers, {all_right, all_right, all_right});
}

TEST(OpenMeetingPoints, TakesThoseWhoWaitAndNobodyElse) {
  const MeetingPoint point = some_meeting_point();
  Ranks newcomers(1, joins_as(point, 2, 3));
  Ranks members(2, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const auto open = held_by(0, exchange, point);
    await_waiting(exchange, open, 1);
    const Stopwatch watch;
    const GrowOptions those_waiting{.meeting_point = point, .most = 4, .fewest = 1, .new_rank_timeout = 0ms};
    communicator = communicator.grow(those_waiting);
    EXPECT_LT(watch.elapsed(), slack);
    expect_works(communicator, exchange.rank(), 3);
  });
  expect_endings(members, {all_right, all_right});
  expect_endings(newcomers, {all_right});
}

TEST(OpenMeetingPoints, GoesOnAsBeforeIfNobodyWaits) {
  const MeetingPoint point = some_meeting_point();
  expect_all_right(2, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const auto open = held_by(0, exchange, point);
    const Stopwatch watch;
    EXPECT_TRUE(refuses(
        [&] {
          static_cast<void>(
              communicator.grow({.meeting_point = point, .most = 4, .fewest = 1, .new_rank_timeout = 0ms}));
        },
        ErrorCode::timeout, {"Communicator::grow: 0 of 1 new ranks came to 127.0.0.1:", within(0ms)}));
    EXPECT_LT(watch.elapsed(), slack);
    expect_works(communicator, exchange.rank(), 2);
  });
}

TEST(OpenMeetingPoints, AnyRankMayHoldIt) {
  const MeetingPoint point = some_meeting_point();
  Ranks newcomers(1, joins_as(point, 3, 4));
  Ranks members(3, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const auto open = held_by(2, exchange, point);
    await_waiting(exchange, open, 1);
    communicator = communicator.grow({.meeting_point = point});
    expect_works(communicator, exchange.rank(), 4);
  });
  expect_endings(members, {all_right, all_right, all_right});
  expect_endings(newcomers, {all_right});
}

TEST(OpenMeetingPoints, ThoseWhoWaitComeAgainIfTheirHolderIsKilled) {
  const MeetingPoint point = some_meeting_point();
  Ranks spares(1, joins_as(point, 0, 3));
  Ranks members(3, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const auto open = held_by(0, exchange, point);
    await_waiting(exchange, open, 1);
    if (exchange.rank() == 0) std::raise(SIGKILL);
    await_end(communicator);
    communicator = communicator.replace({.meeting_point = point});
    expect_works(communicator, exchange.rank(), 3);
  });
  expect_endings(members, {killed, all_right, all_right});
  expect_endings(spares, {all_right});
}

TEST(OpenMeetingPoints, AProcessWaitsForItsOwnTimeout) {
  const MeetingPoint point = some_meeting_point();
  expect_all_right(2, [&](Exchange& exchange) {
    const auto open = held_by(0, exchange, point);
    transport::team::synchronize(exchange);
    if (open) {
      EXPECT_TRUE(await_waiting(*open, 1));
      EXPECT_TRUE(await_waiting(*open, 0));
      return;
    }
    const Stopwatch watch;
    EXPECT_TRUE(refuses([&] { static_cast<void>(join(point, until_it_gives_up)); }, ErrorCode::timeout,
                        {"no rank has let this process in at 127.0.0.1:", "it waits there, and the ranks"}));
    EXPECT_LT(watch.elapsed(), until_it_gives_up + slack);
  });
}

tcp::Rendezvous rendezvous_at(const MeetingPoint& point) {
  return {.rank = tcp::Claim::newcomer, .port = point.port, .secret = point.secret, .job = point.job};
}

/// Comes to the point, and does not ask to be let in.
Descriptor come_to(const MeetingPoint& point) {
  return come(rendezvous_at(point));
}

TEST(OpenMeetingPoints, TellsWhoIsOneTooMany) {
  const MeetingPoint point = some_meeting_point();
  expect_all_right(2, [&](Exchange& exchange) {
    std::optional<OpenMeetingPoint> open;
    Descriptor first;
    if (exchange.rank() == 0) {
      open.emplace(point, 1);
      first = come_to(point);
    }
    transport::team::synchronize(exchange);
    if (exchange.rank() == 1) {
      EXPECT_TRUE(refuses([&] { static_cast<void>(join(point, short_timeout)); }, ErrorCode::timeout,
                          {"no more than 1 may wait there"}));
    }
    transport::team::synchronize(exchange);
  });
}

TEST(OpenMeetingPoints, ThoseWhoLoseTheRaceForAPlaceComeAgain) {
  const MeetingPoint point = some_meeting_point();
  const int count = asks_for_gpus() ? 5 : 16;
  constexpr int places = 2;
  const Ranks newcomers(count, [&](Exchange&) {
    Communicator communicator = join(point);
    expect_works(communicator, communicator.rank(), 2 + places);
  });
  Ranks members(2, [&](Exchange& exchange) {
    Communicator communicator = make(exchange, hang_limit());
    const auto open = held_by(0, exchange, point);
    await_waiting(exchange, open, count);
    communicator = communicator.grow({.meeting_point = point, .most = places});
    expect_works(communicator, exchange.rank(), 2 + places);
    await_waiting(exchange, open, count - places);
  });
  expect_endings(members, {all_right, all_right});
  // The others still wait, and are killed.
}

TEST(OpenMeetingPoints, WhoHasLostARaceIsToldWhatToDo) {
  const tcp::Place place = tcp::place_at(some_meeting_point(), 10ms, "Communicator::join");
  const std::function<void()> no_watch;
  const auto is_told = [&](int losses, std::chrono::milliseconds time, const std::vector<std::string>& text) {
    return refuses([&] { static_cast<void>(await_admission(place, tcp::Wait(time, no_watch), losses)); },
                   ErrorCode::timeout, text);
  };
  EXPECT_TRUE(is_told(1, patient(1s),
                      {"nobody listens there; ranks have asked it once, and gone on without it",
                       "call Communicator::join again before they next call grow or replace"}));
  EXPECT_TRUE(is_told(2, 0ms, {"its time is over; ranks have asked it 2 times"}));
}

/// Returns how many bytes come before the connection is closed.
std::size_t bytes_until_closed(const Descriptor& line) {
  std::size_t total = 0;
  std::array<char, 4096> bytes{};
  for (;;) {
    const ssize_t count = recv(line.number(), bytes.data(), bytes.size(), 0);
    if (count <= 0) return total;
    total += static_cast<std::size_t>(count);
  }
}

TEST(OpenMeetingPoints, StrangersLearnNothingAndDelayNobody) {
  const MeetingPoint point = some_meeting_point();
  expect_all_right(2, [&](Exchange& exchange) {
    const auto open = held_by(0, exchange, point);
    std::vector<Descriptor> silent;
    for (int i = 0; open && i < 40; ++i) silent.push_back(connected_to(rendezvous_at(point)));
    transport::team::synchronize(exchange);
    if (!open) {
      MeetingPoint other = point;
      other.secret = "another secret 16";
      EXPECT_TRUE(refuses([&] { static_cast<void>(join(other)); }, ErrorCode::invalid_argument,
                          {"another secret than this process"}));
      EXPECT_TRUE(refuses([&] { static_cast<void>(join(point, until_it_gives_up)); }, ErrorCode::timeout,
                          {"it waits there, and the ranks"}));
      return transport::team::synchronize(exchange);
    }
    EXPECT_TRUE(await_waiting(*open, 1));
    // All that somebody without the secret gets is the greeting.
    const Descriptor guesser = connected_to(rendezvous_at(point));
    EXPECT_EQ(send(guesser.number(), "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL), 18);
    EXPECT_EQ(bytes_until_closed(guesser), sizeof(tcp::Hello));
    transport::team::synchronize(exchange);
  });
}

TEST(OpenMeetingPoints, ForkedProcessesHoldNothingOpen) {
  const MeetingPoint point = some_meeting_point();
  expect_all_right(1, [&](Exchange&) {
    std::optional<OpenMeetingPoint> open(point);
    const Descriptor line = come_to(point);
    const pid_t child = fork();
    if (child == 0) {
      for (;;) pause();
    }
    open.reset();
    EXPECT_EQ(bytes_until_closed(line), 0U);
    open.emplace(point);
    kill(child, SIGKILL);
    EXPECT_EQ(waitpid(child, nullptr, 0), child);
  });
}

TEST(OpenMeetingPoints, ForkedProcessesHoldNothingOpenWheneverTheyAreForked) {
  const MeetingPoint point = some_meeting_point();
  expect_all_right(1, [&](Exchange&) {
    std::vector<pid_t> children;
    std::atomic<bool> is_over{false};
    const auto can_be_opened = [&] {
      try {
        const OpenMeetingPoint open(point);
        return true;
      } catch (const Error&) {
        return false;  // a child listens there still
      }
    };
    std::thread opens([&] {
      while (!is_over.load() && !testing::Test::HasFailure()) EXPECT_TRUE(becomes_true(can_be_opened));
    });
    constexpr int count = 150;
    for (int i = 0; i < count && !testing::Test::HasFailure(); ++i) {
      const pid_t child = fork();
      if (child == 0) idle_until_killed();
      children.push_back(child);
    }
    is_over.store(true);
    opens.join();
    for (const pid_t child : children) {
      kill(child, SIGKILL);
      EXPECT_EQ(waitpid(child, nullptr, 0), child);
    }
  });
}

TEST(OpenMeetingPoints, LeaveNothingBehind) {
  const MeetingPoint point = some_meeting_point();
  expect_all_right(1, [&](Exchange&) {
    const auto open_and_come = [&] {
      const OpenMeetingPoint open(point);
      const Descriptor line = come_to(point);
      EXPECT_EQ(open.waiting_count(), 0) << "it has not asked to be let in";
    };
    // The C library counts what it keeps for later as allocated, until it has enough of that.
    constexpr int rounds = 50;
    for (int round = 0; round < 2 * rounds; ++round) open_and_come();
    const std::size_t heap = heap_bytes();
    const std::size_t descriptors = open_descriptors();
    const std::size_t threads_before = threads();
    for (int round = 0; round < rounds; ++round) open_and_come();
    EXPECT_EQ(open_descriptors(), descriptors);
    // The system lists a thread for a moment after it has been joined.
    EXPECT_LE(threads(), threads_before + 1);
    EXPECT_LE(heap_bytes(), heap + 4096);
  });
}

testing::AssertionResult is_refused(const MeetingPoint& point, int most, ErrorCode code,
                                    const std::string& text) {
  return refuses([&] { const OpenMeetingPoint open(point, most); }, code, {text});
}

TEST(OpenMeetingPoints, RefuseBadArguments) {
  const MeetingPoint point = some_meeting_point();
  constexpr ErrorCode invalid = ErrorCode::invalid_argument;
  EXPECT_TRUE(is_refused({}, 1, invalid, "OpenMeetingPoint: point.port is 0, expected 1 to 65535"));
  EXPECT_TRUE(is_refused(point, 0, invalid, "OpenMeetingPoint: most_waiting is 0, expected 1 to 256"));
  EXPECT_TRUE(is_refused(point, 257, invalid, "OpenMeetingPoint: most_waiting is 257"));
  EXPECT_TRUE(is_refused({.port = 1, .secret = "short"}, 1, invalid, "point.secret has 5 byte(s)"));
  EXPECT_TRUE(is_refused({.address = "192.0.2.1", .port = 1}, 1, invalid, "point.secret is not set"));
  const Listener listener;
  EXPECT_TRUE(
      is_refused({.port = listener.port()}, 1, ErrorCode::transport_failure, "another program has taken it"));
}

TEST(OpenMeetingPoints, GrowRefusesAnotherJobAtTheSamePlace) {
  MeetingPoint point = some_meeting_point();
  expect_all_right(1, [&](Exchange& exchange) {
    OpenMeetingPoint open(point);
    const OpenMeetingPoint moved = std::move(open);
    // NOLINTNEXTLINE(bugprone-use-after-move): it is empty.
    EXPECT_EQ(open.waiting_count(), 0);
    Communicator communicator = make(exchange, hang_limit());
    point.job = "another";
    const auto is_refused_to_grow = [&](const GrowOptions& options, const std::string& text) {
      return refuses([&] { static_cast<void>(communicator.grow(options)); }, ErrorCode::invalid_argument,
                     {text});
    };
    EXPECT_TRUE(is_refused_to_grow({.meeting_point = point}, "is held open with another secret or job"));
    EXPECT_TRUE(is_refused_to_grow({.meeting_point = point, .new_rank_timeout = -1ms},
                                   "options.new_rank_timeout is -1 ms, expected 0 or more"));
    EXPECT_TRUE(communicator.is_running());
  });
}

}  // namespace
}  // namespace tutti::test::ranks
