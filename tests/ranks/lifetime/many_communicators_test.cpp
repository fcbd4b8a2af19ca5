// SPDX-License-Identifier: Apache-2.0
#include "support/environment.hpp"
#include "support/ranks.hpp"
#include "support/values/test_tensor.hpp"
#include "transport/team/shared/agreement.hpp"
#include "tutti/tutti.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <vector>

#include <gtest/gtest.h>

/// Calls of many communicators wait on the same device at once.
namespace tutti::test {
namespace {

/// Kernels of large calls would fill a GPU if all of them were as large as they may be.
TEST(ManyCommunicators, TheirCallsMayWaitForOneAnotherInAnyOrder) {
  expect_all_right(2, [](Exchange& exchange) {
    if (device_count() < 2) return;
    constexpr int count = 6;
    constexpr std::int64_t elements = 1 << 20;
    const int rank = exchange.rank();
    std::vector<Communicator> communicators;
    std::vector<Stream> streams;
    std::vector<Tensor> mine;
    std::vector<Tensor> all;
    for (int i = 0; i < count; ++i) {
      communicators.emplace_back(exchange, CommunicatorOptions{.devices = {Device(rank)},
                                                               .timeout = std::chrono::seconds(20),
                                                               .transport = TransportKind::p2p});
      streams.emplace_back(rank);
      mine.push_back(full({elements}, 2 * i + rank, {.dtype = DType::int32, .device = rank}));
      all.push_back(zeros({2 * elements}, {.dtype = DType::int32, .device = rank}));
    }
    const auto call = [&](int i) {
      const auto at = static_cast<std::size_t>(i);
      communicators[at].all_gather({mine[at]}, {all[at]}, {streams[at]});
    };
    synchronize(rank);  // they have been filled on another stream
    // The first ones load kernels and have memory opened.
    for (int i = 0; i < count; ++i) call(i);
    synchronize(rank);
    for (const Tensor& tensor : all) tensor.fill_(-1);
    synchronize(rank);
    transport::team::synchronize(exchange);
    for (int i = 0; i < count; ++i) call(rank == 0 ? i : count - 1 - i);
    for (const Stream& stream : streams) stream.synchronize();
    for (int i = 0; i < count; ++i) {
      const Tensor& gathered = all[static_cast<std::size_t>(i)];
      EXPECT_TRUE(holds(gathered.narrow(0, 0, elements), 2 * i));
      EXPECT_TRUE(holds(gathered.narrow(0, elements, elements), 2 * i + 1));
    }
  });
}

/// A communicator of two ranks whose calls add, in place, what both have: the first 1 and 2, the next ones 3
/// and 3, and so on. Calls are of the first elements only, of as many as `lengths` say.
class Doubling {
 public:
  Doubling(Exchange& exchange, std::uint64_t seed)
      : device_(exchange.rank() % device_count()),
        communicator_(exchange,
                      {.devices = {device_}, .timeout = hang_limit(), .transport = TransportKind::p2p}),
        stream_(device_),
        sizes_(seed),
        value_(exchange.rank() + 1),
        tensor_(zeros({lengths_.back()}, {.dtype = DType::int32, .device = device_})) {
    synchronize(device_);  // it has been filled on another stream
    for (std::size_t length = 0; length < lengths_.size(); ++length) add(length);
    begin_anew();
  }

  /// Captures a call to be replayed as `replay`.
  void capture(std::size_t length) {
    captured_ = length;
    graph_ = Graph::capture(stream_, [&] { add(length); });
  }
  void call() {
    const std::size_t length = std::max({sizes_() % 4, sizes_() % 4, sizes_() % 4});  // mostly the longest
    add(length);
    ++calls_[length];
  }
  void replay() {
    graph_->launch(stream_);
    ++calls_[captured_];
  }

  /// Waits, and checks each element by the number of calls in which it has been.
  void expect_right() const {
    stream_.synchronize();
    std::int64_t from = 0;
    for (std::size_t length = 0; length < lengths_.size(); ++length) {
      int calls = 0;
      for (std::size_t longer = length; longer < lengths_.size(); ++longer) calls += calls_[longer];
      const std::int32_t expected = calls == 0 ? value_ : 3 << (calls - 1);
      EXPECT_TRUE(holds(tensor_.narrow(0, from, lengths_[length] - from), expected))
          << calls << " calls of the elements from " << from;
      from = lengths_[length];
    }
  }
  void begin_anew() {
    stream_.synchronize();
    tensor_.fill_(value_);
    synchronize(device_);
    calls_.fill(0);
  }

 private:
  void add(std::size_t length) {
    const Tensor part = tensor_.narrow(0, 0, lengths_[length]);
    communicator_.all_reduce_add({part}, {part}, {stream_});
  }

  const std::array<std::int64_t, 4> lengths_ = {30, 3000, 3000 + scaled(100'000), 3000 + scaled(1'000'000)};
  Device device_;
  Communicator communicator_;
  Stream stream_;
  std::mt19937_64 sizes_;  ///< the same on all ranks
  std::int32_t value_;
  Tensor tensor_;
  std::size_t captured_ = 0;
  std::optional<Graph> graph_;
  std::array<int, 4> calls_{};
};

/// Two ranks queue the calls of eight communicators, each rank in an order of its own, sometimes many of one
/// and none of others. So kernels of all sizes wait on a GPU for others that have not begun, and there must
/// be room for these.
TEST(ManyCommunicators, CallsOfAllSizesFindRoomBesideThoseThatWait) {
  expect_all_right(2, [](Exchange& exchange) {
    constexpr std::size_t count = 8;
    constexpr int calls_of_each = 24;
    std::vector<std::unique_ptr<Doubling>> communicators;
    for (std::size_t i = 0; i < count; ++i)
      communicators.push_back(std::make_unique<Doubling>(exchange, test_seed() + i));
    communicators[0]->capture(3);
    communicators[1]->capture(1);
    std::mt19937_64 orders(test_seed() + 100 * static_cast<std::uint64_t>(exchange.rank()));
    for (std::int64_t burst = 0; burst < scaled(10); ++burst) {
      std::array<int, count> left{};
      left.fill(calls_of_each);
      for (std::size_t busy = count; busy != 0;) {
        const std::size_t at = orders() % count;
        for (std::uint64_t calls = 1 + orders() % 8; calls != 0 && left[at] != 0; --calls) {
          if (at < 2 && left[at] % 3 == 0) {
            communicators[at]->replay();
          } else {
            communicators[at]->call();
          }
          if (--left[at] == 0) --busy;
        }
      }
      for (const auto& communicator : communicators) communicator->expect_right();
      for (const auto& communicator : communicators) communicator->begin_anew();
    }
  });
}

}  // namespace
}  // namespace tutti::test
