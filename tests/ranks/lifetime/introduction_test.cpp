// SPDX-License-Identifier: Apache-2.0
#include "transport/team/joining/introduction.hpp"

#include "device/runtime.hpp"
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "support/errors.hpp"
#include "transport/team/shared/agreement.hpp"

#include <chrono>
#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

/// What ranks tell one another before they make a team.
namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;
using test::expect_all_right;
using test::refuses;
using test::ranks::pretend_host;

Introductions introduce_with(Exchange& exchange, const TeamSettings& settings) {
  BootstrapExchange bootstrap(exchange, 30s);
  return introduce(Runtime::get(), bootstrap, settings);
}

TEST(Introduction, TellsWhoHasWhichMembersWhere) {
  expect_all_right(3, [](Exchange& exchange) {
    pretend_host(exchange.rank() % 2);
    const auto own = static_cast<std::size_t>(exchange.rank());
    const std::vector<int> devices(own + 1, exchange.rank());  // one more than the rank before
    const Introductions introductions = introduce_with(exchange, {.devices = devices});
    const Membership& membership = introductions.membership;
    EXPECT_EQ(membership.rank(), own);
    EXPECT_EQ(membership.devices(), devices);
    EXPECT_EQ(membership.rank_of_member(), (std::vector<std::size_t>{0, 1, 1, 2, 2, 2}));
    ASSERT_EQ(membership.hosts().size(), 2U);
    EXPECT_EQ(membership.hosts()[0].ranks, (std::vector<std::size_t>{0, 2}));
    EXPECT_EQ(introductions.process_numbers, gather(exchange, getpid()));
    for (const PeerProcess& process : introductions.processes) EXPECT_FALSE(process.is_gone());
    ASSERT_NE(introductions.network, nullptr);
    synchronize(exchange);
  });
}

TEST(Introduction, OfOneHostTakesNoNetwork) {
  expect_all_right(2, [](Exchange& exchange) {
    const Introductions introductions = introduce_with(exchange, {.devices = {0}});
    EXPECT_FALSE(introductions.membership.spans_hosts());
    EXPECT_EQ(introductions.network, nullptr);
    EXPECT_NE(introductions.port, nullptr);
    synchronize(exchange);
  });
}

/// What rank 1 gives otherwise than rank 0, and how that is told.
struct Difference {
  std::function<void(TeamSettings&)> change;
  std::string told;
};

TEST(Introduction, WhatMustBeAlikeIsRefusedOnAllRanksIfItIsNot) {
  expect_all_right(2, [](Exchange& exchange) {
    const std::vector<Difference> differences{
        {[](TeamSettings& settings) { settings.window_bytes = 2000; },
         "options.window_bytes is 2000 on rank 1, expected 1000 as on rank 0"},
        {[](TeamSettings& settings) {
           settings.transport = TransportKind::staged;
           settings.transport_source = TransportSource::environment;
         },
         "options.transport is staged (by TUTTI_TRANSPORT) on rank 1, expected auto as on rank 0"},
        {[](TeamSettings& settings) { settings.determinism = Determinism::bitwise; },
         "options.determinism is bitwise on rank 1, expected fastest as on rank 0"},
        {[](TeamSettings& settings) { settings.is_direct = false; },
         "TUTTI_DIRECT is 0 on rank 1, expected 1 as on rank 0"}};
    for (const Difference& difference : differences) {
      TeamSettings settings{.window_bytes = 1000, .devices = {0}};
      if (exchange.rank() == 1) difference.change(settings);
      EXPECT_TRUE(refuses([&] { static_cast<void>(introduce_with(exchange, settings)); },
                          ErrorCode::invalid_argument, {difference.told}));
    }
    TeamSettings settings{.devices = {0}};
    settings.timeout = exchange.rank() * 1s + 1s;
    settings.patience = exchange.rank() * 1s + 1s;
    EXPECT_NO_THROW(static_cast<void>(introduce_with(exchange, settings))) << "these are each rank's own";
    synchronize(exchange);
  });
}

TEST(Introduction, WhoDeclinesSaysWhyToAllOthers) {
  for (const std::string complaint : {"it has no devices", ""}) {
    expect_all_right(3, [&](Exchange& exchange) {
      if (exchange.rank() == 1) return decline_to_join(exchange, complaint);
      EXPECT_TRUE(refuses(
          [&] { static_cast<void>(introduce_with(exchange, {.devices = {0}})); }, ErrorCode::peer_unavailable,
          {"not all ranks can join: rank 1: " + (complaint.empty() ? "it gives no reason" : complaint)}));
    });
  }
}

}  // namespace
}  // namespace tutti::transport::team
