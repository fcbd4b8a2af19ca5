// SPDX-License-Identifier: Apache-2.0
#include "transport/team/hosts/link_mirror.hpp"

#include "backend/team_round.hpp"
#include "support/errors.hpp"
#include "support/machines/mirrored_rank.hpp"
#include "transport/team/hosts/host_proxy_messages.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

/// What the host of member 0 tells that of members 1 and 2 of their messages, and what that makes of it; both
/// hosts' memory is in this process.
namespace tutti::transport::team {
namespace {

using test::MirroredRank;
using test::refuses;
using LinkEnd = SharedState::LinkEnd;

struct LinkedHost {
  static constexpr std::uint32_t from = 0;
  static constexpr std::uint32_t to = 2;
  static constexpr std::uint32_t lane = 1;

  explicit LinkedHost(std::size_t number)
      : rank(number),
        mirror(rank.components().membership, rank.components().state, rank.windows(),
               rank.components().abort) {}

  /// The member's side of the link.
  void post(bool is_sent, std::uint64_t elements) {
    static_cast<void>(rank.components().links.post({{.member = is_sent ? from : to,
                                                     .peer = is_sent ? to : from,
                                                     .is_sent = is_sent,
                                                     .elements = elements}},
                                                   false));
  }
  [[nodiscard]] LinkLog& log(LinkEnd end) { return rank.components().state.link_log(from, to, end); }
  /// Where this host has a piece of the link, its label, and how many have been put and taken.
  [[nodiscard]] std::byte* piece(std::uint32_t before) const {
    return rank.windows().on_host(to) + layout().link_slot_offset(from, lane, before);
  }
  [[nodiscard]] std::byte* label(std::uint32_t before) const {
    return rank.windows().on_host(to) + layout().link_label_offset(from, lane, before);
  }
  [[nodiscard]] backend::SharedFlag& put() const {
    return rank.windows().flag_on_host(to, layout().link_ready_offset(from, lane));
  }
  [[nodiscard]] backend::SharedFlag& taken() const {
    return rank.windows().flag_on_host(from, layout().link_taken_offset(to, lane));
  }
  /// As the sender's device does it.
  void put_piece(std::uint32_t before, std::uint32_t bytes, std::byte content) const {
    const backend::LinkLabel written{
        .bytes = 2 * bytes, .dtype = static_cast<std::uint32_t>(DType::int8), .piece_bytes = bytes};
    std::fill_n(piece(before), bytes, content);
    std::memcpy(label(before), &written, sizeof(written));
    backend::set_flag(put(), before + 1);
  }
  [[nodiscard]] const backend::TeamWindowLayout& layout() const { return rank.windows().layout(); }
  [[nodiscard]] Network::Message news_for(
      std::size_t host, const std::function<void()>& may_send = [] {}) {
    MessageWriter news;
    mirror.add_news(news, host, may_send);
    return rank.message(news);
  }

  MirroredRank rank;
  LinkMirror mirror;
};

class LinkedHosts : public testing::Test {
 protected:
  static constexpr std::size_t host_of_b = 1;
  static constexpr std::uint32_t from = LinkedHost::from;
  static constexpr std::uint32_t to = LinkedHost::to;
  static constexpr std::uint32_t lane = LinkedHost::lane;

  /// b hears what is new of a, and the other way round.
  void tell_b() { b_.rank.mirror().deliver(a_.news_for(host_of_b)); }
  void tell_a() { a_.rank.mirror().deliver(b_.news_for(1 - host_of_b)); }

  LinkedHost a_{0};
  LinkedHost b_{1};
};

TEST_F(LinkedHosts, WhatASideHasAnnouncedIsToldOnceAndToTheOtherSidesHostAlone) {
  a_.post(true, 10);
  a_.post(true, 20);
  EXPECT_TRUE(a_.news_for(1 - host_of_b).bytes.empty());
  tell_b();
  const LinkLog& log = b_.log(LinkEnd::sender);
  EXPECT_EQ(log.made(), 2U);
  ASSERT_EQ(log.posted(), 2U);
  EXPECT_EQ(log.message(1).elements, 10U);
  EXPECT_EQ(log.message(2).elements, 20U);
  EXPECT_EQ(b_.log(LinkEnd::receiver).posted(), 0U);
  EXPECT_TRUE(a_.news_for(host_of_b).bytes.empty());
}

TEST_F(LinkedHosts, NothingIsToldOfLinksThatHaveNotBeenUsed) {
  a_.put_piece(0, 100, std::byte{9});
  EXPECT_TRUE(a_.news_for(host_of_b).bytes.empty());
}

TEST_F(LinkedHosts, PiecesArriveWithTheirLabelsAndMayBeSentOneByOne) {
  a_.post(true, 300);
  a_.put_piece(0, 100, std::byte{8});
  a_.put_piece(1, 200, std::byte{9});
  int sends = 0;
  b_.rank.mirror().deliver(a_.news_for(host_of_b, [&] { ++sends; }));
  EXPECT_EQ(sends, 2);
  EXPECT_EQ(b_.put().value.load(), 2U);
  EXPECT_EQ(std::count(b_.piece(0), b_.piece(0) + 100, std::byte{8}), 100);
  EXPECT_EQ(std::count(b_.piece(1), b_.piece(1) + 200, std::byte{9}), 200);
  for (const std::uint32_t before : {0U, 1U})
    EXPECT_EQ(std::memcmp(b_.label(before), a_.label(before), sizeof(backend::LinkLabel)), 0) << before;
  EXPECT_TRUE(a_.news_for(host_of_b).bytes.empty());
}

TEST_F(LinkedHosts, TheSenderHearsHowManyPiecesHaveBeenTakenAndWhatHasBeenReceived) {
  b_.post(false, 10);
  backend::set_flag(b_.taken(), 3);
  b_.log(LinkEnd::receiver).set_received(1);
  tell_a();
  EXPECT_EQ(a_.taken().value.load(), 3U);
  EXPECT_EQ(a_.log(LinkEnd::receiver).received(), 1U);
  EXPECT_TRUE(b_.news_for(1 - host_of_b).bytes.empty());
}

TEST_F(LinkedHosts, SidesThatDifferEndTheTeamWhereTheyMeet) {
  a_.post(true, 10);
  b_.post(false, 20);
  tell_b();
  EXPECT_FALSE(a_.rank.components().abort.is_set());
  EXPECT_TRUE(refuses([&] { b_.rank.components().abort.require_running(); }, ErrorCode::invalid_argument,
                      {"rank 1 receives 20 float32, rank 0 sends 10 float32"}));
}

TEST_F(LinkedHosts, PiecesOfATeamThatHasEndedAreLeftOut) {
  a_.post(true, 10);
  a_.put_piece(0, 40, std::byte{9});
  b_.rank.components().abort.set(ErrorCode::aborted, "enough");
  tell_b();
  EXPECT_EQ(b_.put().value.load(), 0U);
  EXPECT_EQ(*b_.piece(0), std::byte{});
}

TEST_F(LinkedHosts, RecordsThatMakeNoSenseAreRefused) {
  using Deliver = void (LinkMirror::*)(MessageReader&);
  const auto refuses_record = [&](Deliver deliver, const std::vector<std::uint32_t>& numbers) {
    MessageWriter writer;
    for (const std::uint32_t number : numbers) writer.add(number);
    const Network::Message message = a_.rank.message(writer);
    return refuses(
        [&] {
          MessageReader reader(message);
          (b_.mirror.*deliver)(reader);
        },
        ErrorCode::internal, {"a message of rank 0 is malformed"});
  };
  constexpr std::uint32_t members = 3;
  EXPECT_TRUE(refuses_record(&LinkMirror::deliver_log, {members, to, 0}));
  EXPECT_TRUE(refuses_record(&LinkMirror::deliver_log, {from, members, 0}));
  EXPECT_TRUE(refuses_record(&LinkMirror::deliver_log, {from, to, 2})) << "a link has two ends";
  EXPECT_TRUE(refuses_record(&LinkMirror::deliver_log, {from, to, 0, 1, 0, 1, 0, LinkLog::history + 1}));
  EXPECT_TRUE(refuses_record(&LinkMirror::deliver_log, {from, to, 0, 1, 0, 1, 0, 1})) << "it is cut short";
  EXPECT_TRUE(refuses_record(&LinkMirror::deliver_piece, {from, to, b_.layout().link_lanes, 0}));
  EXPECT_TRUE(refuses_record(&LinkMirror::deliver_taken, {from, members, lane, 1}));
  EXPECT_TRUE(refuses_record(&LinkMirror::deliver_taken, {from, to, lane}));
  const auto too_long = static_cast<std::uint32_t>(b_.layout().link_slot_bytes + 1);
  EXPECT_TRUE(refuses_record(&LinkMirror::deliver_piece, {from, to, lane, 0, too_long, 0, 0, too_long}));
  EXPECT_EQ(b_.put().value.load(), 0U);
}

}  // namespace
}  // namespace tutti::transport::team
