// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shared/membership.hpp"

#include <array>
#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::transport::team {
namespace {

const std::array<Membership::Rank, 4> four_ranks{{{.host = "a", .member_count = 2},
                                                  {.host = "b", .member_count = 1},
                                                  {.host = "a", .member_count = 3},
                                                  {.host = "a", .member_count = 1}}};

TEST(Membership, NumbersMembersThroughAllRanks) {
  const Membership membership(2, four_ranks, {5, 3, 4});
  EXPECT_EQ(membership.rank(), 2U);
  EXPECT_EQ(membership.rank_count(), 4U);
  EXPECT_EQ(membership.member_count(), 7U);
  EXPECT_EQ(membership.rank_of_member(), (std::vector<std::size_t>{0, 0, 1, 2, 2, 2, 3}));
  EXPECT_EQ(membership.first_member(0), 0U);
  EXPECT_EQ(membership.first_member(3), 6U);
  EXPECT_EQ(membership.member_count(2), 3U);
  EXPECT_EQ(membership.most_members_of_a_rank(), 3U);
}

TEST(Membership, KnowsWhichMembersAreLocal) {
  const Membership membership(2, four_ranks, {5, 3, 4});
  EXPECT_EQ(membership.first_local(), 3U);
  EXPECT_EQ(membership.local_count(), 3U);
  EXPECT_EQ(membership.devices(), (std::vector<int>{5, 3, 4}));
  for (std::size_t member = 0; member < 7; ++member)
    EXPECT_EQ(membership.is_local(member), member >= 3 && member < 6) << member;
}

TEST(Membership, HostsComeInOrderOfTheirFirstRanks) {
  const Membership membership(1, four_ranks, {0});
  ASSERT_EQ(membership.hosts().size(), 2U);
  EXPECT_TRUE(membership.spans_hosts());
  EXPECT_EQ(membership.hosts()[0].name, "a");
  EXPECT_EQ(membership.hosts()[0].ranks, (std::vector<std::size_t>{0, 2, 3}));
  EXPECT_EQ(membership.hosts()[1].ranks, (std::vector<std::size_t>{1}));
  EXPECT_EQ(membership.host_of(3), 0U);
  EXPECT_EQ(membership.this_host(), 1U);
  EXPECT_TRUE(membership.is_on_this_host(1));
  EXPECT_FALSE(membership.is_on_this_host(2));
  EXPECT_EQ(membership.first_on_this_host(), 1U);
  EXPECT_EQ(Membership(3, four_ranks, {0}).first_on_this_host(), 0U);
}

TEST(Membership, WhatARankSendsToAHostAlwaysGoesToTheSameRank) {
  const Membership membership(0, four_ranks, {0, 1});
  EXPECT_EQ(membership.receiver(0, 1), 1U);
  EXPECT_EQ(membership.receiver(1, 0), 2U);
  const Membership others_view(1, four_ranks, {0});
  EXPECT_EQ(others_view.receiver(1, 0), 2U) << "all ranks see it alike";
}

TEST(Membership, KnowsTheRanksThatShareAProcess) {
  const std::array<Membership::Rank, 4> ranks{{{.host = "a", .member_count = 1, .process = 7},
                                               {.host = "a", .member_count = 1, .process = 7},
                                               {.host = "a", .member_count = 1, .process = 8},
                                               {.host = "b", .member_count = 1, .process = 7}}};
  const Membership first(0, ranks, {0});
  EXPECT_EQ(first.shares_process(), (std::vector<bool>{false, true, false, false})) << "rank 3 is elsewhere";
  EXPECT_TRUE(first.shares_process_with_any());
  EXPECT_FALSE(first.is_in_one_process());
  EXPECT_TRUE(Membership(1, std::span(ranks).first(2), {0}).is_in_one_process());
  EXPECT_FALSE(Membership(2, ranks, {0}).shares_process_with_any());
  EXPECT_FALSE(Membership(0, four_ranks, {0, 1}).shares_process_with_any())
      << "nothing is known of processes";
  EXPECT_TRUE(Membership(0, std::span(ranks).first(1), {0}).is_in_one_process());
}

TEST(Membership, SaysWhereRanksAre) {
  EXPECT_EQ(Membership(0, four_ranks, {0, 1}).hosts_in_words("pigeons"),
            "2 hosts: 'a' (ranks 0, 2, 3), 'b' (ranks 1); between them what the hosts share is copied by "
            "pigeons");
  EXPECT_EQ(Membership(0, std::span(four_ranks).first(1), {0, 1}).hosts_in_words(""), "");
}

}  // namespace
}  // namespace tutti::transport::team
