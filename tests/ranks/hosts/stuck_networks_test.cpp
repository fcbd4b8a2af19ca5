// SPDX-License-Identifier: Apache-2.0
#include "ranks/late_and_lost/lost_ranks.hpp"
#include "support/errors.hpp"
#include "support/forwarding_exchange.hpp"
#include "support/ranks.hpp"
#include "support/timing.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/communicator.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

/// Ranks of several hosts of which some do not come back from their network: who is named then, and by whom.
namespace tutti::test::ranks {
namespace {

using namespace std::chrono_literals;

/// Of this process, calls of the network are not to return, and one has come that does not.
std::atomic<bool> is_to_stick = false;
std::atomic<bool> is_stuck = false;

class StickyNetwork final : public Network {
 public:
  explicit StickyNetwork(std::unique_ptr<Network> network) : network_(std::move(network)) {}

  [[nodiscard]] std::string name() const override { return "glue"; }
  void send(int target, std::vector<std::byte> bytes) override { network_->send(target, std::move(bytes)); }
  [[nodiscard]] std::optional<Message> receive() override {
    while (is_to_stick) {
      is_stuck = true;
      std::this_thread::sleep_for(1ms);
    }
    return network_->receive();
  }
  [[nodiscard]] bool is_delivered() override { return network_->is_delivered(); }
  [[nodiscard]] bool is_busy() override { return network_->is_busy(); }
  [[nodiscard]] std::unique_ptr<Network> part(std::span<const int> ranks, Exchange& exchange) override {
    return network_->part(ranks, exchange);
  }

 private:
  std::unique_ptr<Network> network_;
};

class StickyExchange final : public ForwardingExchange {
 public:
  using ForwardingExchange::ForwardingExchange;
  [[nodiscard]] std::unique_ptr<Network> network() override {
    return std::make_unique<StickyNetwork>(ForwardingExchange::network());
  }
};

/// What all ranks hear of a call where some networks are stuck before anybody makes it, and `happens` comes
/// over some ranks then.
template <class Happens>
std::string failure_after(Exchange& exchange, bool sticks, const Happens& happens) {
  StickyExchange sticky(exchange);
  std::string text;
  std::optional<Communicator> communicator = make_patient(sticky);
  const Tensor tensor = some_tensor();
  communicator->all_reduce_add({tensor}, {tensor});
  synchronize(0);
  std::this_thread::sleep_for(timeout / 4);  // the others have heard of it, and of one another
  is_to_stick = sticks;
  while (is_stuck != sticks) std::this_thread::sleep_for(1ms);
  transport::team::synchronize(exchange);
  happens();
  const Stopwatch watch;
  text = failure_of(0, [&] { communicator->all_reduce_add({tensor}, {tensor}); });
  EXPECT_LT(watch.elapsed(), 2 * timeout + slack);
  // Nor does anybody wait for ever for what is stuck.
  EXPECT_LT(time_of([&] { communicator.reset(); }), 2 * timeout + 2 * slack);
  return text;
}

/// None of the ranks is said to have, or have not, done something.
testing::AssertionResult blames_none_of(const std::vector<int>& ranks, const std::string& text) {
  for (const int rank : ranks) {
    if (text.find(fmt::format("rank {} has not made it", rank)) != std::string::npos ||
        text.find(fmt::format("rank {} has made it", rank)) != std::string::npos)
      return testing::AssertionFailure() << "rank " << rank << ": " << text;
  }
  return testing::AssertionSuccess();
}

TEST(StuckNetworks, TheRankWhoseNetworkIsStuckIsNamedByAllAndNobodyElse) {
  expect_all_right(4, [](Exchange& exchange) {
    pretend_host(exchange.rank() / 2);
    const std::string text = failure_after(exchange, exchange.rank() == 0, [] {});
    EXPECT_TRUE(mentions(
        text, {"all_reduce", within_timeout, "the network thread of rank 0", "has not come back from glue"}));
    EXPECT_TRUE(blames_none_of({0, 1, 2, 3}, text));
  });
}

TEST(StuckNetworks, ARankBehindOneIsJudgedByWhatItsNeighboursSay) {
  // Rank 0 should hear rank 2, of which rank 3 knows.
  Ranks ranks(4, [](Exchange& exchange) {
    pretend_host(exchange.rank() / 2);
    const std::string text = failure_after(exchange, exchange.rank() == 0, [&] {
      if (exchange.rank() == 2) std::raise(SIGSTOP);
    });
    if (exchange.rank() == 2) return;
    EXPECT_TRUE(mentions(text, {"rank 2 has not made it", "its process has done nothing for"}));
    EXPECT_TRUE(blames_none_of({0, 1, 3}, text));
  });
  ranks.resume_after_others(2 * timeout + slack, 2);
  expect_endings(ranks, {all_right, all_right, all_right, all_right});
}

TEST(StuckNetworks, ARankKilledBehindOneIsNamedByItsNeighbours) {
  Ranks ranks(4, [](Exchange& exchange) {
    pretend_host(exchange.rank() / 2);
    const std::string text = failure_after(exchange, exchange.rank() == 0, [&] {
      if (exchange.rank() == 2) std::raise(SIGKILL);
    });
    EXPECT_TRUE(mentions(text, {"rank 2", "is gone"}));
    EXPECT_TRUE(blames_none_of({0, 1, 3}, text));
  });
  expect_endings(ranks, {all_right, all_right, killed, all_right});
}

TEST(StuckNetworks, ARankOfWhichNobodyHearsIsNamedAsSuch) {
  // Rank 1 is alone on its host, and those who should hear it are stuck.
  Ranks ranks(3, [](Exchange& exchange) {
    pretend_host(exchange.rank() % 2);
    const std::string text = failure_after(exchange, exchange.rank() != 1, [&] {
      if (exchange.rank() == 1) std::raise(SIGKILL);
    });
    EXPECT_TRUE(mentions(text, {"the network thread of rank 0", "the network thread of rank 2",
                                "nothing is heard of rank 1, its last known call is all_reduce"}));
    EXPECT_TRUE(blames_none_of({0, 1, 2}, text));
  });
  expect_endings(ranks, {all_right, killed, all_right});
}

}  // namespace
}  // namespace tutti::test::ranks
