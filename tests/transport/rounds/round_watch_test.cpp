// SPDX-License-Identifier: Apache-2.0
#include "transport/rounds/round_watch.hpp"

#include "transport/rounds/round_work.hpp"

#include <cstddef>
#include <set>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// Whose earlier work a member's later work comes after, by the rounds in between.
namespace tutti::transport::team {
namespace {

using round_work::Work;
using Order = std::pair<std::size_t, std::size_t>;  ///< the earlier, and the later

std::set<Order> orders_of(const RoundPlan& plan) {
  std::set<Order> orders;
  for (const backend::MeetingOrder& order : orders_after(plan))
    EXPECT_TRUE(orders.emplace(order.earlier, order.later).second) << "each is told once";
  return orders;
}

TEST(RoundWatch, WhoReadsFollowsWhoPuts) {
  Work broadcast(3);
  broadcast.flow({0, 0}, {broadcast.output(1), broadcast.output(2)}, 100);
  EXPECT_EQ(orders_of(broadcast.plan()), (std::set<Order>{{0, 1}, {0, 2}}));
}

TEST(RoundWatch, WhoGivesMemoryFollowsItsReaders) {
  Work broadcast(3);
  broadcast.flow({0, 0}, {broadcast.output(2)}, 100);
  RoundLimits direct = round_work::limits;
  direct.protocol = Protocol::direct;
  EXPECT_EQ(orders_of(broadcast.plan(direct)), (std::set<Order>{{0, 2}, {2, 0}}));
}

TEST(RoundWatch, WhatIsHandedOnFollowsWhoeverHasGivenToIt) {
  Work relayed(3);  // member 1 hands on to member 2 what member 0 has
  relayed.sum_of_one({0, 0}, 100, relayed.output(1));
  relayed.flow(relayed.output(1), {relayed.output(2)}, 100);
  const std::set<Order> orders = orders_of(relayed.plan());
  EXPECT_TRUE(orders.contains({0, 1}));
  EXPECT_TRUE(orders.contains({1, 2}));
  EXPECT_TRUE(orders.contains({0, 2})) << "by way of member 1";
  EXPECT_FALSE(orders.contains({2, 0}));
}

TEST(RoundWatch, WithMembersElsewhereAllLocalOnesFollowAll) {
  Work broadcast(3);
  broadcast.flow({0, 0}, {broadcast.output(1)}, 100);
  const RoundPlan plan = plan_rounds(broadcast.work, 3, 0, 2, round_work::limits);
  EXPECT_EQ(orders_of(plan), (std::set<Order>{{0, 1}, {1, 0}}));
}

}  // namespace
}  // namespace tutti::transport::team
