// SPDX-License-Identifier: Apache-2.0
#include "transport/team/joining/bootstrap_exchange.hpp"

#include "support/errors.hpp"

#include <array>
#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <stdexcept>

#include <gtest/gtest.h>

/// What becomes of errors of an exchange while ranks make a team by it.
namespace tutti::transport::team {
namespace {

using namespace std::chrono_literals;
using test::refuses;

/// Rank 1 of three, whose exchanges do what the test says.
class ScriptedExchange final : public Exchange {
 public:
  [[nodiscard]] int rank() const override { return 1; }
  [[nodiscard]] int size() const override { return 3; }
  void all_gather(std::span<const std::byte> /*mine*/, std::span<std::byte> /*all*/) override { act(); }
  void limit_waits(std::chrono::milliseconds timeout) override { limit = timeout; }
  [[nodiscard]] std::unique_ptr<Network> network() override {
    act();
    return nullptr;
  }

  std::function<void()> act = [] {};
  std::chrono::milliseconds limit{};
};

class BootstrappedRank : public testing::Test {
 protected:
  void gather() {
    const std::byte mine{};
    std::array<std::byte, 3> all{};
    bootstrap_.all_gather(std::span(&mine, 1), all);
  }
  void let_throw(ErrorCode code, const char* message) {
    exchange_.act = [=] { throw Error(code, message, 7); };
  }

  ScriptedExchange exchange_;
  BootstrapExchange bootstrap_{exchange_, 4321ms};
};

TEST_F(BootstrappedRank, IsAsTheExchangeAndBoundsItsWaits) {
  EXPECT_EQ(bootstrap_.rank(), 1);
  EXPECT_EQ(bootstrap_.size(), 3);
  EXPECT_EQ(exchange_.limit, 4321ms);
  int gathers = 0;
  exchange_.act = [&] { ++gathers; };
  gather();
  EXPECT_EQ(gathers, 1);
}

TEST_F(BootstrappedRank, SaysWhatRanksThatDoNotComeHaveNotDone) {
  let_throw(ErrorCode::timeout, "Communicator: rank 2 does not come");
  EXPECT_TRUE(refuses([&] { gather(); }, ErrorCode::timeout,
                      {"Communicator: while the ranks come together: rank 2 does not come"}));
  bootstrap_.begin("share memory");
  let_throw(ErrorCode::peer_unavailable, "rank 2 is gone");
  const auto expected = {std::string("Communicator: while the ranks share memory: rank 2 is gone")};
  EXPECT_TRUE(refuses([&] { gather(); }, ErrorCode::peer_unavailable, expected));
  EXPECT_TRUE(
      refuses([&] { static_cast<void>(bootstrap_.network()); }, ErrorCode::peer_unavailable, expected));
  try {
    gather();
  } catch (const Error& error) {
    EXPECT_EQ(error.native_code(), 7);
  }
}

TEST_F(BootstrappedRank, HandsOnOtherErrorsAsTheyAre) {
  let_throw(ErrorCode::transport_failure, "the wire is cut");
  try {
    gather();
    FAIL() << "nothing was thrown";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::transport_failure);
    EXPECT_STREQ(error.what(), "the wire is cut");
  }
  exchange_.act = [] { throw std::runtime_error("another library's"); };
  EXPECT_THROW(gather(), std::runtime_error);
}

}  // namespace
}  // namespace tutti::transport::team
