// SPDX-License-Identifier: Apache-2.0
#include "transport/team/hosts/host_proxy.hpp"

#include "backend/team_round.hpp"
#include "support/errors.hpp"
#include "support/machines/mirrored_rank.hpp"
#include "support/timing.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

/// HostProxies of two hosts, both in this process, bring each what the other's rank has to say.
namespace tutti::transport::team {
namespace {

using test::becomes_true;
using test::MirroredRank;
using test::refuses;

/// What two networks carry.
struct Wire {
  std::mutex mutex;
  std::array<std::deque<Network::Message>, 2> to;  ///< by rank
  std::atomic<bool> is_cut = false;
};

class WiredNetwork final : public Network {
 public:
  WiredNetwork(std::size_t rank, Wire& wire) : rank_(rank), wire_(wire) {}
  [[nodiscard]] std::string name() const override { return "a wire"; }
  void send(int target, std::vector<std::byte> bytes) override {
    require_wire();
    const std::lock_guard lock(wire_.mutex);
    wire_.to[static_cast<std::size_t>(target)].push_back({static_cast<int>(rank_), std::move(bytes)});
  }
  [[nodiscard]] std::optional<Message> receive() override {
    require_wire();
    const std::lock_guard lock(wire_.mutex);
    std::deque<Message>& messages = wire_.to[rank_];
    if (messages.empty()) return std::nullopt;
    Message message = std::move(messages.front());
    messages.pop_front();
    return message;
  }
  [[nodiscard]] bool is_delivered() override {
    const std::lock_guard lock(wire_.mutex);
    return wire_.to[1 - rank_].empty();
  }
  [[nodiscard]] bool is_busy() override { return false; }
  [[nodiscard]] std::unique_ptr<Network> part(std::span<const int>, Exchange&) override { return nullptr; }

 private:
  void require_wire() const {
    if (wire_.is_cut) throw Error(ErrorCode::transport_failure, "the wire is cut");
  }

  std::size_t rank_;
  Wire& wire_;
};

class TwoHostProxies : public testing::Test {
 protected:
  static constexpr Signature sum{.collective = Collective::all_reduce, .elements = 10};

  /// A rank, and who carries its news.
  struct Host {
    Host(std::size_t number, Wire& wire)
        : rank(number),
          host_proxy(rank.components().membership, rank.components().state, rank.mirror(),
                     rank.components().progress, rank.components().abort, rank.components().news,
                     std::make_unique<WiredNetwork>(number, wire)) {
      host_proxy.start();
    }
    MirroredRank rank;
    HostProxy host_proxy;
  };

  Wire wire_;
  Host a_{0, wire_};
  Host b_{1, wire_};
};

TEST_F(TwoHostProxies, CarryCallsBothWays) {
  static_cast<void>(a_.rank.components().calls.post(sum, false));
  static_cast<void>(b_.rank.components().calls.post(sum, false));
  const auto hears_of = [](Host& host, std::size_t rank) {
    return becomes_true([&] { return host.rank.components().state.status(rank).last_sequence.load() == 1; });
  };
  EXPECT_TRUE(hears_of(a_, 1));
  EXPECT_TRUE(hears_of(b_, 0));
  EXPECT_FALSE(a_.rank.components().abort.is_set());
}

TEST_F(TwoHostProxies, CarryBytesOnceTheyHaveBeenPut) {
  a_.host_proxy.expect(0, 1, 100, std::array<std::uint32_t, 2>{0, 2});
  std::fill_n(a_.rank.slot(0, 1), 100, std::byte{9});
  EXPECT_EQ(b_.rank.ready_flag(2, 0, 1).round.load(), 0U);
  backend::set_round(a_.rank.ready_flag(2, 0, 1), 1);
  EXPECT_TRUE(becomes_true([&] { return b_.rank.ready_flag(2, 0, 1).round.load() == 1; }));
  EXPECT_EQ(std::count(b_.rank.slot(0, 1), b_.rank.slot(0, 1) + 100, std::byte{9}), 100);
  EXPECT_EQ(b_.rank.ready_flag(1, 0, 1).round.load(), 0U) << "not one of the readers";
}

TEST_F(TwoHostProxies, HaveDeliveredWhenTheLastWordHasBeenReceived) {
  EXPECT_FALSE(a_.host_proxy.has_delivered());
  a_.rank.components().status().state = RankStatus::left;
  a_.rank.components().news.announce();
  EXPECT_TRUE(becomes_true([&] { return a_.host_proxy.has_delivered(); }));
  EXPECT_TRUE(
      becomes_true([&] { return b_.rank.components().state.status(0).state.load() == RankStatus::left; }));
  EXPECT_FALSE(b_.host_proxy.has_delivered());
  EXPECT_TRUE(a_.host_proxy.stop());
}

TEST_F(TwoHostProxies, EndTheTeamWhenTheirNetworkFails) {
  wire_.is_cut = true;
  for (Host* const host : {&a_, &b_}) {
    EXPECT_TRUE(becomes_true([&] { return host->host_proxy.is_broken(); }));
    EXPECT_TRUE(host->host_proxy.has_delivered()) << "nobody is to wait for it";
    EXPECT_TRUE(refuses([&] { host->rank.components().abort.require_running(); },
                        ErrorCode::transport_failure,
                        {"has lost its connection to other hosts", "the wire is cut"}));
  }
}

}  // namespace
}  // namespace tutti::transport::team
