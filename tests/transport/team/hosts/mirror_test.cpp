// SPDX-License-Identifier: Apache-2.0
#include "transport/team/hosts/mirror.hpp"

#include "backend/team_round.hpp"
#include "support/errors.hpp"
#include "support/machines/mirrored_rank.hpp"
#include "transport/team/hosts/host_proxy_messages.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

/// What a rank tells another host, and what that makes of it; both hosts' memory is in this process.
namespace tutti::transport::team {
namespace {

using test::MirroredRank;
using test::refuses;

class TwoHosts : public testing::Test {
 protected:
  static constexpr Signature sum{.collective = Collective::all_reduce, .elements = 10};
  static constexpr Signature longer_sum{.collective = Collective::all_reduce, .elements = 20};

  MirroredRank a_{0};
  MirroredRank b_{1};
};

TEST_F(TwoHosts, CallsArriveInOrderAndOnce) {
  static_cast<void>(a_.components().calls.post(sum, false));
  static_cast<void>(a_.components().calls.post(longer_sum, true));
  b_.mirror().deliver(a_.news());
  const RankStatus& mirrored = b_.components().state.status(0);
  EXPECT_EQ(mirrored.last_sequence.load(), 2U);
  EXPECT_TRUE(mirrored.entries[1].signature().matches(sum));
  EXPECT_TRUE(mirrored.entries[2].signature().matches(longer_sum));
  EXPECT_FALSE(mirrored.entries[1].is_captured());
  EXPECT_TRUE(mirrored.entries[2].is_captured());
  EXPECT_TRUE(a_.news().bytes.empty()) << "nothing is said twice";
}

TEST_F(TwoHosts, CallsThatDifferEndTheTeamWhereTheyMeet) {
  static_cast<void>(a_.components().calls.post(sum, false));
  static_cast<void>(b_.components().calls.post(longer_sum, false));
  b_.mirror().deliver(a_.news());
  const auto check = [](MirroredRank& rank) {
    return refuses([&] { rank.components().abort.require_running(); }, ErrorCode::invalid_argument,
                   {"10 float32", "20 float32"});
  };
  EXPECT_TRUE(check(b_));
  EXPECT_FALSE(a_.components().abort.is_set());
  a_.mirror().deliver(b_.news());
  EXPECT_TRUE(check(a_)) << "where the reason has come";
}

TEST_F(TwoHosts, MailArrives) {
  Mailbox& box = a_.components().state.mailbox(0, Mailbox::part);
  std::ranges::fill(box.bytes, std::byte{7});
  ++box.written;
  EXPECT_FALSE(a_.mirror().has_sent(Mailbox::part));
  b_.mirror().deliver(a_.news());
  EXPECT_TRUE(a_.mirror().has_sent(Mailbox::part));
  const Mailbox& mirrored = b_.components().state.mailbox(0, Mailbox::part);
  EXPECT_EQ(mirrored.written.load(), 1U);
  EXPECT_EQ(mirrored.bytes, box.bytes);
}

TEST_F(TwoHosts, ProgressArrives) {
  static_cast<void>(b_.components().calls.post(sum, false));
  b_.components().complete(1);
  const backend::TeamWindowLayout& layout = b_.windows().layout();
  backend::set_flag(b_.windows().flag_on_host(2, layout.finished_offset(2)), 5);
  a_.mirror().deliver(b_.news());
  EXPECT_TRUE(a_.components().progress.has_completed(1, 1));
  EXPECT_EQ(a_.windows().flag_on_host(0, layout.finished_offset(2)).value.load(), 5U);
}

TEST_F(TwoHosts, BytesArriveBeforeTheFlagsThatAnnounceThem) {
  const Parcel parcel{.member = 0, .round = 3, .bytes = 100, .readers = {1, 2}};
  EXPECT_FALSE(a_.mirror().is_ready(parcel));
  std::fill_n(a_.slot(0, 3), parcel.bytes, std::byte{9});
  backend::set_round(a_.ready_flag(2, 0, 3), 3);
  EXPECT_TRUE(a_.mirror().is_ready(parcel));
  MessageWriter writer;
  a_.mirror().add_parcel(writer, parcel, std::array<std::uint32_t, 1>{2});
  b_.mirror().deliver(a_.message(writer));
  const std::byte* const mirrored = b_.slot(0, 3);
  EXPECT_EQ(std::count(mirrored, mirrored + parcel.bytes, std::byte{9}), 100);
  EXPECT_EQ(b_.ready_flag(2, 0, 3).round.load(), 3U);
  EXPECT_EQ(b_.ready_flag(1, 0, 3).round.load(), 0U) << "not one of the readers";
}

TEST_F(TwoHosts, TheLastWordIsThatARankHasLeft) {
  a_.components().status().state = RankStatus::left;
  a_.components().abort.set(ErrorCode::timeout, "too late");
  EXPECT_FALSE(a_.mirror().has_sent_all());
  b_.mirror().deliver(a_.news());
  EXPECT_TRUE(a_.mirror().has_sent_all());
  EXPECT_EQ(b_.components().state.status(0).state.load(), RankStatus::left);
  EXPECT_TRUE(refuses([&] { b_.components().abort.require_running(); }, ErrorCode::timeout, {"too late"}));
}

TEST_F(TwoHosts, AMessageThatMakesNoSenseIsRefused) {
  const auto refuses_bytes = [&](std::vector<std::byte> bytes) {
    return refuses([&] { b_.mirror().deliver({.source = 0, .bytes = std::move(bytes)}); },
                   ErrorCode::internal, {"a message of rank 0 is malformed"});
  };
  EXPECT_TRUE(refuses_bytes(std::vector<std::byte>(4, std::byte{0xff})));
  static_cast<void>(a_.components().calls.post(sum, false));
  std::vector<std::byte> cut = a_.news().bytes;
  cut.pop_back();
  EXPECT_TRUE(refuses_bytes(cut));
}

}  // namespace
}  // namespace tutti::transport::team
