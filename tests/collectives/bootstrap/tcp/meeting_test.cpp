// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/local_rendezvous.hpp"
#include "support/errors.hpp"
#include "tutti/error.hpp"
#include "tutti/tcp.hpp"

#include <chrono>
#include <cstddef>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// Ranks that come to a meeting and leave it before all have come.
namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::as_rank;
using test::come;
using test::error_of;
using test::local_rendezvous;
using test::meet;
using test::mentions;
using test::on_threads;
using test::refuses;

tcp::Rendezvous for_time(tcp::Rendezvous rendezvous, std::chrono::milliseconds timeout) {
  rendezvous.timeout = timeout;
  return rendezvous;
}

TEST(TcpMeeting, ARankThatHasLeftComesAgain) {
  const tcp::Rendezvous rendezvous = local_rendezvous(3);
  on_threads({[&] { meet(rendezvous); },
              [&] {
                for (int life = 0; life < 3; ++life) static_cast<void>(come(as_rank(rendezvous, 1)));
                on_threads({[&] { meet(as_rank(rendezvous, 1)); }, [&] { meet(as_rank(rendezvous, 2)); }});
              }});
}

TEST(TcpMeeting, ARankThatHasLeftAndDoesNotComeAgainIsNamedSoByAll) {
  const tcp::Rendezvous rendezvous = for_time(local_rendezvous(4), 2s);
  std::vector<std::string> errors(2);
  on_threads({[&] { errors[0] = error_of([&] { meet(rendezvous); }); },
              [&] { errors[1] = error_of([&] { meet(as_rank(rendezvous, 2)); }); },
              [&] { static_cast<void>(come(as_rank(rendezvous, 1))); }});
  for (const std::string& error : errors) {
    EXPECT_TRUE(mentions(
        error, {"after 2 s, rank 3 has not come to 127.0.0.1:", "; rank 1 came ", " s ago and left "}));
  }
}

TEST(TcpMeeting, WhoWaitsForLessTimeIsToldWhoIsMissingAndMayComeAgain) {
  const tcp::Rendezvous rendezvous = local_rendezvous(3);
  on_threads({[&] { meet(rendezvous); },
              [&] {
                EXPECT_TRUE(refuses([&] { meet(for_time(as_rank(rendezvous, 1), 1s)); }, ErrorCode::timeout,
                                    {"after 1 s, rank 2 has not come"}));
                on_threads({[&] { meet(as_rank(rendezvous, 1)); }, [&] { meet(as_rank(rendezvous, 2)); }});
              }});
}

TEST(TcpMeeting, WhoHasGivenUpIsNotBlamedForIt) {
  const tcp::Rendezvous rendezvous = for_time(local_rendezvous(3), 2s);
  on_threads({[&] {
                EXPECT_TRUE(refuses([&] { meet(rendezvous); }, ErrorCode::timeout,
                                    {"after 2 s, rank 2 has not come", "rank 1 came ", " gave up waiting "}));
              },
              [&] {
                EXPECT_TRUE(
                    refuses([&] { meet(for_time(as_rank(rendezvous, 1), 500ms)); }, ErrorCode::timeout, {}));
              }});
}

TEST(TcpMeeting, AllHearWhyARankWasRefused) {
  const tcp::Rendezvous rendezvous = for_time(local_rendezvous(3), 2s);
  tcp::Rendezvous of_four = as_rank(rendezvous, 1);
  of_four.size = 4;
  const std::vector<std::string> about{
      "who came as rank 1 was refused: rank 1 was started as one of 4 processes, rank 0 as one of 3"};
  on_threads({[&] { EXPECT_TRUE(refuses([&] { meet(rendezvous); }, ErrorCode::timeout, about)); },
              [&] { EXPECT_TRUE(refuses([&] { meet(as_rank(rendezvous, 2)); }, ErrorCode::timeout, about)); },
              [&] {
                EXPECT_TRUE(refuses([&] { meet(of_four); }, ErrorCode::invalid_argument,
                                    {"rank 1 was started as one of 4 processes"}));
              }});
}

TEST(TcpMeeting, Rank0ThatGivesUpSaysSo) {
  const tcp::Rendezvous rendezvous = local_rendezvous(3);
  bool has_come = false;
  on_threads({[&] {
    std::vector<std::jthread> threads;
    threads.emplace_back([&] {
      EXPECT_TRUE(refuses([&] { meet(as_rank(rendezvous, 1)); }, ErrorCode::peer_unavailable,
                          {"rank 0 has given up"}));
    });
    const auto watch = [&, first = std::chrono::steady_clock::now()] {
      if (std::chrono::steady_clock::now() > first + 1s) throw std::runtime_error("seen enough");
    };
    EXPECT_THROW(tcp::Exchange(rendezvous, watch), std::runtime_error);
    has_come = true;
  }});
  EXPECT_TRUE(has_come);
}

}  // namespace
}  // namespace tutti
