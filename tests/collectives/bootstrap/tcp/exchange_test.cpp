// SPDX-License-Identifier: Apache-2.0
#include "collectives/bootstrap/tcp/local_rendezvous.hpp"
#include "support/errors.hpp"
#include "tutti/device.hpp"
#include "tutti/error.hpp"
#include "tutti/tcp.hpp"
#include "tutti/tensor.hpp"

#include <chrono>
#include <cstddef>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using namespace std::chrono_literals;
using test::as_rank;
using test::local_rendezvous;
using test::on_ranks;
using test::on_threads;
using test::refuses;

constexpr auto invalid = ErrorCode::invalid_argument;

/// Of one byte.
void meet(tcp::Exchange& exchange) {
  const std::byte mine{};
  std::vector<std::byte> all(static_cast<std::size_t>(exchange.size()));
  exchange.all_gather({&mine, 1}, all);
}

TEST(TcpExchange, GathersInOrderOfRanks) {
  for (const int size : {1, 2, 5}) {
    on_ranks(local_rendezvous(size), [&](const tcp::Rendezvous& rendezvous) {
      tcp::Exchange exchange(rendezvous);
      EXPECT_EQ(exchange.rank(), rendezvous.rank);
      EXPECT_EQ(exchange.size(), size);
      for (const std::size_t bytes : {0U, 1U, 1000U, 5'000'000U}) {
        const std::vector<std::byte> mine(bytes, std::byte(rendezvous.rank + 1));
        std::vector<std::byte> all(bytes * static_cast<std::size_t>(size));
        exchange.all_gather(mine, all);
        for (std::size_t i = 0; i < all.size(); i += 997) ASSERT_EQ(all[i], std::byte(i / bytes + 1)) << i;
      }
    });
  }
}

TEST(TcpExchange, MakesACommunicator) {
  on_ranks(local_rendezvous(3), [](const tcp::Rendezvous& rendezvous) {
    Communicator communicator = tcp::make_communicator(rendezvous);
    EXPECT_EQ(communicator.devices().front().index(), rendezvous.rank % device_count());
    const Tensor sum = full({100}, rendezvous.rank + 1.0, {.device = communicator.devices().front()});
    communicator.all_reduce_add({sum}, {sum});
    EXPECT_EQ(sum.to_vector<float>(), std::vector<float>(100, 6.0F));
    // The ranks are threads of this process.
    EXPECT_NE(communicator.explain().find("rounds: p2p"), std::string::npos) << communicator.explain();
  });
}

TEST(TcpExchange, RefusesWhatIsNoRendezvous) {
  const tcp::Rendezvous good = local_rendezvous(2);
  const auto refuses_one = [&](auto&& change, const std::vector<std::string>& about) {
    tcp::Rendezvous rendezvous = good;
    change(rendezvous);
    return refuses([&] { tcp::Exchange{rendezvous}; }, invalid, about);
  };
  EXPECT_TRUE(refuses_one([](auto& bad) { bad.size = 0; }, {"size is 0"}));
  EXPECT_TRUE(refuses_one([](auto& bad) { bad.rank = 2; }, {"rank is 2, expected 0 to 1"}));
  EXPECT_TRUE(refuses_one([](auto& bad) { bad.port = 0; }, {"port is 0"}));
  EXPECT_TRUE(refuses_one([](auto& bad) { bad.timeout = 0s; }, {"timeout is 0 ms"}));
  EXPECT_TRUE(refuses_one([](auto& bad) { bad.address = "no such host."; }, {"address is 'no such host.'"}));
  EXPECT_TRUE(refuses_one([](auto& bad) { bad.secret = "short"; }, {"TUTTI_SECRET has 5 byte(s)"}));
  EXPECT_TRUE(refuses_one(
      [](auto& bad) {
        bad.secret.clear();
        bad.address = "192.0.2.1";
        bad.address_name = "MASTER_ADDR";
      },
      {"TUTTI_SECRET is not set", "MASTER_ADDR is '192.0.2.1'"}));
  // A block for documentation, which no host has.
  EXPECT_TRUE(
      refuses_one([](auto& bad) { bad.address = "192.0.2.1"; }, {"'192.0.2.1'", "no address of this host"}));
}

TEST(TcpExchange, NeedsNoSecretOnTheLoopbackAddress) {
  tcp::Rendezvous open = local_rendezvous(2);
  open.secret.clear();
  on_ranks(open, [](const tcp::Rendezvous& rendezvous) {
    tcp::Exchange exchange(rendezvous);
    meet(exchange);
  });
}

TEST(TcpExchange, APortThatIsTakenIsNamed) {
  const test::Listener other;
  tcp::Rendezvous rendezvous = local_rendezvous(2);
  rendezvous.port = other.port();
  rendezvous.port_name = "MASTER_PORT";
  EXPECT_TRUE(refuses([&] { tcp::Exchange{rendezvous}; }, ErrorCode::transport_failure,
                      {"MASTER_PORT is " + std::to_string(other.port()), "another program"}));
}

TEST(TcpExchange, AWrongAddressForANetworkIsRefusedOnAllRanks) {
  on_ranks(local_rendezvous(2), [](const tcp::Rendezvous& rendezvous) {
    tcp::Exchange exchange(rendezvous);
    const auto make_at = [&](const std::string& address) {
      tcp::NetworkOptions options;
      options.address = exchange.rank() == 1 ? address : "127.0.0.1";
      return tcp::make_network(exchange, options);
    };
    const auto with_address = [&](const std::string& address) {
      return [&, address] { static_cast<void>(make_at(address)); };
    };
    const bool is_mine = rendezvous.rank == 1;
    EXPECT_TRUE(refuses(with_address("no address"), invalid,
                        {is_mine ? "options.address is 'no address', expected" : "rank 1 was given a name"}));
    // Is for documents, and nobody's.
    EXPECT_TRUE(refuses(with_address("192.0.2.1"), ErrorCode::transport_failure, {"rank 1 cannot listen"}));
    EXPECT_EQ(make_at("127.0.0.1")->name(), "TCP");
  });
}

TEST(TcpExchange, NamesRanksThatDoNotCome) {
  tcp::Rendezvous rendezvous = local_rendezvous(4);
  rendezvous.timeout = 500ms;
  const auto join = [&](int rank) {
    return [=] {
      EXPECT_TRUE(refuses([&] { tcp::Exchange{as_rank(rendezvous, rank)}; }, ErrorCode::timeout,
                          {"0.5 s", "ranks 2 and 3 have not come"}));
    };
  };
  on_threads({join(0), join(1)});
  EXPECT_TRUE(refuses([&] { tcp::Exchange{as_rank(rendezvous, 2)}; }, ErrorCode::timeout,
                      {"0.5 s", "rank 0 does not listen at 127.0.0.1:"}));
}

TEST(TcpExchange, NamesRanksThatAreLateForACall) {
  on_ranks(local_rendezvous(3), [](const tcp::Rendezvous& rendezvous) {
    tcp::Exchange exchange(rendezvous);
    meet(exchange);
    exchange.limit_waits(300ms);
    if (rendezvous.rank == 2) return std::this_thread::sleep_for(1s);
    EXPECT_TRUE(refuses([&] { meet(exchange); }, ErrorCode::timeout,
                        {" s, rank 2 has joined, but has not made this call"}));
    EXPECT_TRUE(refuses([&] { meet(exchange); }, invalid, {"an earlier call has failed"}));
  });
}

TEST(TcpExchange, WhoWaitsForLessTimeThanRank0IsToldWhoIsLate) {
  on_ranks(local_rendezvous(3), [](const tcp::Rendezvous& rendezvous) {
    tcp::Exchange exchange(rendezvous);
    meet(exchange);
    if (rendezvous.rank == 1) {
      exchange.limit_waits(1s);
      EXPECT_TRUE(refuses([&] { meet(exchange); }, ErrorCode::timeout,
                          {"after 1 s, rank 2 has joined, but has not made this call"}));
    } else if (rendezvous.rank == 0) {
      EXPECT_TRUE(refuses([&] { meet(exchange); }, ErrorCode::timeout,
                          {"rank 2 has joined, but has not made this call, and rank 1 waits no longer"}));
    } else {
      const auto end = std::chrono::steady_clock::now() + 1500ms;
      while (std::chrono::steady_clock::now() < end) std::this_thread::sleep_for(10ms);
    }
  });
}

TEST(TcpExchange, NamesARankThatHasLeft) {
  on_ranks(local_rendezvous(3), [](const tcp::Rendezvous& rendezvous) {
    std::optional<tcp::Exchange> exchange(rendezvous);
    meet(*exchange);
    if (rendezvous.rank == 1) return exchange.reset();
    EXPECT_TRUE(refuses([&] { meet(*exchange); }, ErrorCode::peer_unavailable, {"rank 1 has left"}));
  });
}

TEST(TcpExchange, LengthsThatDifferEndItOnAllRanks) {
  on_ranks(local_rendezvous(3), [](const tcp::Rendezvous& rendezvous) {
    tcp::Exchange exchange(rendezvous);
    const std::vector<std::byte> mine(rendezvous.rank == 1 ? 5 : 4);
    std::vector<std::byte> all(mine.size() * 3);
    EXPECT_TRUE(
        refuses([&] { exchange.all_gather(mine, all); }, invalid, {"rank 1 gives 5 bytes, rank 0 4"}));
  });
  tcp::Exchange alone(local_rendezvous(1));
  std::vector<std::byte> all(3);
  EXPECT_TRUE(refuses([&] { alone.all_gather(std::span(all).first(2), all); }, invalid,
                      {"all has 3 bytes, expected 2"}));
}

TEST(TcpExchange, WhatTheWatchThrowsEndsAWait) {
  tcp::Rendezvous rendezvous = local_rendezvous(2);
  int looks = 0;
  const auto watch = [&] {
    if (++looks == 3) throw std::runtime_error("seen enough");
  };
  EXPECT_THROW(tcp::Exchange(rendezvous, watch), std::runtime_error);
}

}  // namespace
}  // namespace tutti
