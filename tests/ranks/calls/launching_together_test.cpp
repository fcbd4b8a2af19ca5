// SPDX-License-Identifier: Apache-2.0
#include "support/environment.hpp"
#include "support/ranks.hpp"
#include "tutti/tutti.hpp"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

/// Two local members' kernels wait for one another, and are queued one after the other. What other threads
/// queue on the same streams meanwhile must not come in between.
namespace tutti::test {
namespace {

CommunicatorOptions two_members() {
  CommunicatorOptions options{.devices = {Device(0), Device(1)}, .timeout = std::chrono::seconds(20)};
  options.transport = TransportKind::p2p;
  return options;
}

/// The sum of both members' ones, again and again, into the same tensors.
class Sums {
 public:
  Sums(Exchange& exchange, const std::vector<Stream>& streams)
      : communicator_(exchange, two_members()), streams_(streams) {
    for (const Stream& stream : streams_) {
      const StreamGuard guard(stream);
      inputs_.push_back(ones({257}, {.device = Device(stream.device())}));
      outputs_.push_back(zeros({257}, {.device = Device(stream.device())}));
    }
  }

  void add(std::int64_t times) {
    for (std::int64_t i = 0; i < times; ++i) communicator_.all_reduce_add(inputs_, outputs_, streams_);
  }
  void expect_twos() const {
    for (std::size_t member = 0; member < outputs_.size(); ++member) {
      streams_[member].synchronize();
      const StreamGuard guard(streams_[member]);
      const Tensor sums = outputs_[member].to(Device::host());
      const std::span<const float> values(static_cast<const float*>(sums.data()), 257);
      EXPECT_TRUE(std::ranges::all_of(values, [](float value) { return value == 2.0F; }))
          << "member " << member;
    }
  }

 private:
  Communicator communicator_;
  std::vector<Stream> streams_;
  std::vector<Tensor> inputs_;
  std::vector<Tensor> outputs_;
};

TEST(LaunchingTogether, KernelsOfTwoCommunicatorsDoNotCross) {
  expect_all_right(1, [](Exchange& exchange) {
    const std::vector<Stream> streams{Stream(0), Stream(1)};
    Sums one(exchange, streams);
    Sums other(exchange, streams);
    std::thread thread([&other] { other.add(scaled(1000)); });
    one.add(scaled(1000));
    thread.join();
    one.expect_twos();
    other.expect_twos();
  });
}

TEST(LaunchingTogether, StreamsAreNotOrderedHalfWay) {
  expect_all_right(1, [](Exchange& exchange) {
    const std::vector<Stream> streams{Stream(0), Stream(1)};
    Sums sums(exchange, streams);
    std::atomic<bool> is_over = false;
    std::thread thread([&] {
      while (!is_over) {
        streams[1].wait_stream(streams[0]);
        streams[0].wait_stream(streams[1]);
      }
    });
    sums.add(scaled(1000));
    is_over = true;
    thread.join();
    sums.expect_twos();
  });
}

}  // namespace
}  // namespace tutti::test
