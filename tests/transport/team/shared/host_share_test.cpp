// SPDX-License-Identifier: Apache-2.0
#include "transport/team/shared/host_share.hpp"

#include "support/errors.hpp"

#include <algorithm>
#include <array>
#include <barrier>
#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <stdexcept>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// Memory that two ranks share; both are in this process.
namespace tutti::transport::team {
namespace {

using test::refuses;

constexpr std::size_t share_bytes = 5000;

class ThreadsExchange final : public Exchange {
 public:
  struct Meeting {
    std::barrier<> all_are_there{2};
    std::vector<std::byte> gathered;
  };
  ThreadsExchange(int rank, Meeting& meeting) : rank_(rank), meeting_(meeting) {}
  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return 2; }
  void all_gather(std::span<const std::byte> mine, std::span<std::byte> all) override {
    if (rank_ == 0) meeting_.gathered.resize(all.size());
    meeting_.all_are_there.arrive_and_wait();
    std::ranges::copy(mine, meeting_.gathered.begin() + static_cast<std::ptrdiff_t>(mine.size()) * rank_);
    meeting_.all_are_there.arrive_and_wait();
    std::ranges::copy(meeting_.gathered, all.begin());
    meeting_.all_are_there.arrive_and_wait();
  }

 private:
  int rank_;
  Meeting& meeting_;
};

/// Rank 1 makes the memory.
class SharingRanks : public testing::Test {
 protected:
  using Fill = std::function<void(std::byte*)>;

  void share(const Fill& fill) {
    ThreadsExchange::Meeting meeting;
    const auto join = [&](int rank) {
      ThreadsExchange exchange(rank, meeting);
      try {
        shares_[static_cast<std::size_t>(rank)] =
            std::make_unique<HostShare>(Runtime::get(), exchange, share_bytes, 1, fill);
      } catch (const Error& error) {
        failures_[static_cast<std::size_t>(rank)] = error;
      }
    };
    std::thread other([&] { join(1); });
    join(0);
    other.join();
  }

  std::array<std::unique_ptr<HostShare>, 2> shares_;
  std::array<std::optional<Error>, 2> failures_;
};

TEST_F(SharingRanks, SeeWhatOneHasFilledInAndWhatEachWrites) {
  share([](std::byte* data) { data[7] = std::byte{7}; });
  ASSERT_TRUE(shares_[0] && shares_[1]);
  std::byte* const zero = shares_[0]->data();
  std::byte* const one = shares_[1]->data();
  EXPECT_NE(zero, one) << "each maps it for itself";
  EXPECT_EQ(zero[7], std::byte{7});
  EXPECT_EQ(std::count(zero, zero + share_bytes, std::byte{}), std::ptrdiff_t{share_bytes} - 1);
  one[8] = std::byte{8};
  EXPECT_EQ(zero[8], std::byte{8});
}

TEST_F(SharingRanks, FailTogether) {
  share([](std::byte*) { throw std::runtime_error("no ink"); });
  for (const auto& failure : failures_) {
    ASSERT_TRUE(failure.has_value());
    EXPECT_TRUE(refuses([&] { throw Error(*failure); }, ErrorCode::peer_unavailable, {"rank 1: no ink"}));
  }
}

TEST_F(SharingRanks, KeepTheMemoryThatHasBeenHandedOver) {
  share([](std::byte* data) { data[7] = std::byte{7}; });
  ASSERT_TRUE(shares_[0] && shares_[1]);
  std::byte* const data = shares_[0]->data();
  const SharedMemory memory = shares_[0]->release();
  shares_ = {};
  EXPECT_EQ(memory.data(), data);
  EXPECT_EQ(data[7], std::byte{7});
}

}  // namespace
}  // namespace tutti::transport::team
