// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/handshake.hpp"
#include "collectives/bootstrap/tcp/local_rendezvous.hpp"
#include "collectives/bootstrap/tcp/sockets.hpp"
#include "support/errors.hpp"
#include "tutti/error.hpp"
#include "tutti/tcp.hpp"

#include <chrono>
#include <cstddef>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// Ranks that come where rank 0 is not yet, no longer, or does not answer.
namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::as_rank;
using test::local_rendezvous;
using test::meet;
using test::on_threads;
using test::refuses;

/// The first life of a rank 0: it lets one rank in, and ends.
void let_one_in_and_end(const tcp::Rendezvous& rendezvous) {
  const Descriptor listener = tcp::listen_at(tcp::addresses_of(rendezvous), rendezvous);
  Descriptor socket;
  while (!(socket = tcp::accept_at(listener)).is_open()) std::this_thread::sleep_for(1ms);
  tcp::Visitor visitor(std::move(socket), tcp::key_of(rendezvous), false);
  tcp::Visitor::State state = visitor.advance();
  for (; state == tcp::Visitor::State::undecided; state = visitor.advance()) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(state, tcp::Visitor::State::admitted);
}

TEST(TcpArrival, IsNotConnectedToItself) {
  // The system gives out ports in turn, and those to connect from are of the parity of the first.
  int first = 0;
  int last = 0;
  std::ifstream("/proc/sys/net/ipv4/ip_local_port_range") >> first >> last;
  ASSERT_LT(first, last);
  tcp::Rendezvous rendezvous = local_rendezvous(2);
  if ((rendezvous.port - first) % 2 != 0) rendezvous.port += rendezvous.port < last ? 1 : -1;
  const tcp::Exchange::Watch no_watch;
  const tcp::Wait wait(60s, no_watch);
  const tcp::Address address = tcp::addresses_of(rendezvous).front();
  for (int i = first; i <= last; i += 2) ASSERT_FALSE(tcp::connect_to(address, wait).is_open()) << i - first;
}

TEST(TcpArrival, WaitsForRank0ToComeAgain) {
  const tcp::Rendezvous rendezvous = local_rendezvous(2);
  on_threads({[&] {
                let_one_in_and_end(rendezvous);
                meet(rendezvous);
              },
              [&] { meet(as_rank(rendezvous, 1)); }});
}

TEST(TcpArrival, TellsThatRank0HasLeft) {
  tcp::Rendezvous rendezvous = local_rendezvous(2);
  rendezvous.timeout = 1s;
  on_threads({[&] { let_one_in_and_end(rendezvous); },
              [&] {
                EXPECT_TRUE(
                    refuses([&] { meet(as_rank(rendezvous, 1)); }, ErrorCode::timeout,
                            {"after 1 s, rank 0 does not listen at 127.0.0.1:", "it had come, and left"}));
              }});
}

TEST(TcpArrival, BlamesNoOtherProgramForWhatEndsUnanswered) {
  tcp::Rendezvous rendezvous = local_rendezvous(2);
  rendezvous.timeout = 1s;
  std::string error;
  on_threads({[&] {
                const Descriptor listener = tcp::listen_at(tcp::addresses_of(rendezvous), rendezvous);
                while (!tcp::accept_at(listener).is_open()) std::this_thread::sleep_for(1ms);
              },
              [&] { error = test::error_of([&] { meet(as_rank(rendezvous, 1)); }); }});
  EXPECT_TRUE(test::mentions(error, {"rank 0 does not listen"}));
  EXPECT_EQ(error.find("another program"), std::string::npos) << error;
}

TEST(TcpArrival, DoesNotWaitForOneAddressAlone) {
  const test::Listener deaf(0);
  tcp::Rendezvous rendezvous = local_rendezvous(2);
  rendezvous.port = deaf.port();
  const tcp::Address address = tcp::addresses_of(rendezvous).front();
  const tcp::Exchange::Watch no_watch;
  std::vector<Descriptor> waiting;  // as many as the system keeps for a listener that accepts none
  const tcp::Wait wait(60s, no_watch);
  do {
    waiting.push_back(tcp::connect_to(address, wait, 50ms));
  } while (waiting.back().is_open() && waiting.size() < 10);
  EXPECT_FALSE(waiting.back().is_open());
  EXPECT_FALSE(wait.is_over());
}

TEST(TcpArrival, SilenceIsNoAnswerAndLastsUntilTheTimeout) {
  const test::Listener other;
  tcp::Rendezvous rendezvous = as_rank(local_rendezvous(2), 1);
  rendezvous.port = other.port();
  rendezvous.timeout = 500ms;
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_TRUE(refuses([&] { meet(rendezvous); }, ErrorCode::timeout,
                      {"after 0.5 s, what listens at 127.0.0.1:", "has not answered"}));
  const auto waited = std::chrono::steady_clock::now() - begin;
  EXPECT_GE(waited, 500ms);
  EXPECT_LT(waited, 5s);
}

TEST(TcpArrival, ConnectionsThatAreClosedUnansweredAreMadeAgain) {
  const tcp::Rendezvous rendezvous = local_rendezvous(2);
  on_threads({[&] {
                {
                  const Descriptor listener = tcp::listen_at(tcp::addresses_of(rendezvous), rendezvous);
                  for (int closed = 0; closed < 3; std::this_thread::sleep_for(1ms))
                    closed += tcp::accept_at(listener).is_open() ? 1 : 0;
                }
                meet(rendezvous);
              },
              [&] { meet(as_rank(rendezvous, 1)); }});
}

}  // namespace
}  // namespace tutti
