// SPDX-License-Identifier: Apache-2.0
#include "support/stream_sanitizer_fixture.hpp"
#include "tutti/stream_sanitizer.hpp"
#include "tutti/tutti.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Races with what collectives do, of one process and between ranks.
namespace tutti {
namespace {

using stream_sanitizer::RaceKind;
using test::StreamSanitizer;
using test::words_of;

class StreamSanitizerOfCollectives : public StreamSanitizer {
 protected:
  void SetUp() override {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  }
  const Stream on_second_{Device(std::min(1, device_count() - 1))};
};

TEST_F(StreamSanitizerOfCollectives, NamesTheCallThatAnOperationIsPartOf) {
  const Tensor root = made_on(default_stream(0));
  const std::vector<Tensor> copies = broadcast(root, std::vector<Device>{Device(0), Device(1)});
  fill_on(on_second_, copies[1]);
  ASSERT_EQ(reports_.size(), 1U);
  report_ = reports_.front();
  EXPECT_EQ(report_.kind, RaceKind::write_after_write);
  EXPECT_NE(report_.first.part_of.find("broadcast by "), std::string::npos) << report_.text;
  EXPECT_EQ(report_.second.part_of, "");
  EXPECT_EQ(report_.second.stream, words_of(on_second_));
}

TEST_F(StreamSanitizerOfCollectives, IsSilentAboutResultsOnTheirOwnStreams) {
  const Tensor root = made_on(default_stream(0));
  const std::vector<Tensor> copies = broadcast(root, std::vector<Device>{Device(0), Device(1)});
  for (const Tensor& copy : copies) fill_on(default_stream(copy.device()), copy);
  const Tensor sum = reduce_add(copies, Device(1));
  fill_on(default_stream(1), sum);
  fill_on(default_stream(0), copies[0]);
  EXPECT_TRUE(is_silent());
}

/// A communicator of two devices of this process, and a tensor on each.
class StreamSanitizerOfMembers : public StreamSanitizerOfCollectives {
 protected:
  void SetUp() override {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
    communicator_.emplace(
        CommunicatorOptions{.devices = {Device(0), Device(1)}, .timeout = std::chrono::seconds(60)});
    for (const Stream& stream : streams_) tensors_.push_back(made_on(stream));
    results_ = {made_on(streams_[0]), made_on(streams_[1])};
    for (const Stream& stream : streams_) stream.synchronize();
  }
  void TearDown() override { communicator_.reset(); }

  const std::vector<Stream> streams_{a_, on_second_};
  std::optional<Communicator> communicator_;
  std::vector<Tensor> tensors_;
  std::vector<Tensor> results_;
};

TEST_F(StreamSanitizerOfMembers, FindsUsesOfAResultOnAnotherMembersStream) {
  communicator_->all_reduce_add(tensors_, results_, streams_);
  stream_sanitizer::access(streams_[1], results_[0].view(), stream_sanitizer::Use::read, "kernel of mine");
  ASSERT_EQ(reports_.size(), 1U);
  report_ = reports_.front();
  EXPECT_EQ(report_.kind, RaceKind::read_after_write);
  EXPECT_NE(report_.first.part_of.find("all_reduce of a communicator"), std::string::npos) << report_.text;
  EXPECT_EQ(report_.first.stream, words_of(streams_[0]));
  EXPECT_EQ(report_.second.stream, words_of(streams_[1]));
}

TEST_F(StreamSanitizerOfMembers, FindsOperandsThatAnotherStreamMayStillWrite) {
  fill_on(b_, tensors_[0]);
  communicator_->all_reduce_add(tensors_, results_, streams_);
  ASSERT_FALSE(reports_.empty());
  EXPECT_EQ(reports_.front().kind, RaceKind::read_after_write);
  EXPECT_EQ(reports_.front().first.stream, words_of(b_));
  EXPECT_EQ(reports_.front().second.stream, words_of(streams_[0]));
}

TEST_F(StreamSanitizerOfMembers, FollowsTheOrdersThatCallsMake) {
  const auto use = [&](std::size_t member, const Tensor& tensor) {
    stream_sanitizer::access(streams_[member], tensor.view(), stream_sanitizer::Use::read_write,
                             "kernel of mine");
  };
  use(0, tensors_[0]);
  use(1, tensors_[1]);
  communicator_->all_reduce_add(tensors_, results_, streams_);
  for (std::size_t member = 0; member < 2; ++member) {
    use(member, tensors_[member]);
    use(member, results_[member]);
  }
  communicator_->barrier(streams_);
  use(1, results_[0]);
  use(0, tensors_[1]);
  communicator_->broadcast(results_, 1, streams_);
  use(0, results_[0]);
  use(0, results_[0]);
  EXPECT_TRUE(is_silent());
}

TEST_F(StreamSanitizerOfMembers, KnowsThatBothHalvesOfWhatIsExchangedInPlaceAreWritten) {
  // Parts that are read where they lie, and parts that are written. Each member swaps one half of a pair.
  for (const std::int64_t count : {std::int64_t{1} << 18U, std::int64_t{5} << 18U}) {
    for (std::size_t member = 0; member < 2; ++member) {
      for (const std::int64_t half : {0, 1}) {
        std::vector<Tensor> exchanged;
        for (const Stream& stream : streams_) {
          const StreamGuard guard(stream);
          exchanged.push_back(zeros({2 * count}, {.device = Device(stream.device())}));
        }
        for (const Stream& stream : streams_) stream.synchronize();
        reports_.clear();
        communicator_->all_to_all(exchanged, exchanged, streams_);
        const Tensor& own = exchanged[member];
        stream_sanitizer::access(streams_[member], own.view(), stream_sanitizer::Use::read_write, "mine");
        EXPECT_TRUE(is_silent());
        communicator_->all_to_all(exchanged, exchanged, streams_);
        const Stream other{Device(static_cast<int>(member))};
        const auto part = static_cast<std::int64_t>(1 - member) * count + half * (count / 2);
        stream_sanitizer::access(other, own.narrow(0, part, count / 2).view(), stream_sanitizer::Use::read,
                                 "kernel of mine");
        EXPECT_TRUE(told(RaceKind::read_after_write, words_of(streams_[member]), words_of(other)));
        for (const Stream& stream : streams_) stream.synchronize();
      }
    }
  }
}

TEST_F(StreamSanitizerOfMembers, KnowsThatABroadcastOrdersOneWay) {
  stream_sanitizer::access(streams_[0], tensors_[0].view(), stream_sanitizer::Use::write, "of the other");
  communicator_->broadcast(results_, 1, streams_);
  // What the root gets next need not follow the others' earlier work.
  stream_sanitizer::access(streams_[1], tensors_[0].view(), stream_sanitizer::Use::write, "of the root");
  EXPECT_TRUE(told(RaceKind::write_after_write, words_of(streams_[0]), words_of(streams_[1])));
}

}  // namespace
}  // namespace tutti
