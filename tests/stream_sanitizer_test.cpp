// SPDX-License-Identifier: Apache-2.0
// Races that are planted, each found under its right names; and the same programs mended, which are silent.
// The sanitizer is on from the start (TUTTI_STREAM_SANITIZER), as it has to be.

#include "tutti/stream_sanitizer.hpp"

#include "runtime.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "tutti/tutti.hpp"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ss = tutti::stream_sanitizer;

/// Exported, so that reports know its name.
extern "C" [[gnu::noinline, gnu::visibility("default")]] void tutti_test_fill(const tutti::Tensor& tensor) {
  tensor.fill_(2);
  asm volatile("");  // no tail call: it stays on the stack
}

namespace tutti {
namespace {

using ss::RaceKind;

constexpr std::int64_t sanitized_length = 1024;
constexpr std::size_t sanitized_bytes = 4 * sanitized_length;

std::string words_of(const Stream& stream) {
  const std::string words = to_string(stream);
  return words.substr(0, words.find(','));
}

class StreamSanitizer : public testing::Test {
 protected:
  StreamSanitizer() {
    for (int device = 0; device < device_count(); ++device) synchronize(device);
    ss::enable(ss::Mode::warn);
    ss::set_callback([this](const ss::Report& report) {
      const std::lock_guard lock(mutex_);
      reports_.push_back(report);
    });
  }
  ~StreamSanitizer() override {
    ss::set_callback({});
    ss::enable(ss::Mode::off);
    for (int device = 0; device < device_count(); ++device) synchronize(device);
  }

  static Tensor made_on(const Stream& stream) {
    const StreamGuard guard(stream);
    return zeros({sanitized_length}, {.device = Device(stream.device())});
  }
  static void fill_on(const Stream& stream, const Tensor& tensor) {
    const StreamGuard guard(stream);
    tensor.fill_(1);
  }
  static void copy_on(const Stream& stream, const Tensor& target, const Tensor& source) {
    const StreamGuard guard(stream);
    target.copy_(source, Blocking::no);
  }
  /// Two tensors that everybody may use.
  void settle() const {
    a_.synchronize();
    b_.synchronize();
  }

  [[nodiscard]] testing::AssertionResult is_silent() const {
    if (reports_.empty()) return testing::AssertionSuccess();
    return testing::AssertionFailure() << reports_.front().text;
  }
  /// One report, of this kind, whose sides are on these streams.
  [[nodiscard]] testing::AssertionResult told(RaceKind kind, const std::string& first,
                                              const std::string& second) {
    if (reports_.size() != 1)
      return testing::AssertionFailure() << reports_.size() << " reports" << (is_silent().message());
    report_ = reports_.front();
    if (report_.kind == kind && report_.first.stream == first && report_.second.stream == second)
      return testing::AssertionSuccess();
    return testing::AssertionFailure() << report_.text;
  }
  [[nodiscard]] testing::AssertionResult told(RaceKind kind) {
    return told(kind, words_of(a_), words_of(b_));
  }
  [[nodiscard]] testing::AssertionResult misses(std::string_view words) const {
    if (report_.missing.find(words) != std::string::npos) return testing::AssertionSuccess();
    return testing::AssertionFailure() << report_.missing << " does not hold " << words;
  }

  const Stream a_{0};
  const Stream b_{0};
  std::mutex mutex_;
  std::vector<ss::Report> reports_;
  ss::Report report_;
};

TEST_F(StreamSanitizer, FindsReadsOfWhatAnotherStreamMayStillWrite) {
  const Tensor target = made_on(b_);
  const Tensor source = made_on(a_);
  copy_on(b_, target, source);
  ASSERT_TRUE(told(RaceKind::read_after_write));
  EXPECT_EQ(report_.first.operation, "fill");
  EXPECT_EQ(report_.second.operation, "copy");
  EXPECT_TRUE(report_.first.writes);
  EXPECT_FALSE(report_.second.writes);
  EXPECT_EQ(report_.address, source.data());
  EXPECT_EQ(report_.bytes, sanitized_bytes);
  EXPECT_TRUE(misses("a wait of " + words_of(b_) + " for an event recorded on " + words_of(a_)));
  for (const std::string& part : {report_.first.issued_at, report_.second.issued_at, report_.missing})
    EXPECT_NE(report_.text.find(part), std::string::npos);
}

TEST_F(StreamSanitizer, IsSilentAboutReadsThatWait) {
  const Tensor target = made_on(b_);
  const Tensor source = made_on(a_);
  b_.wait_stream(a_);
  copy_on(b_, target, source);
  EXPECT_TRUE(is_silent());
}

TEST_F(StreamSanitizer, FindsWritesOfWhatAnotherStreamMayStillRead) {
  const Tensor source = made_on(a_);
  const Tensor target = made_on(a_);
  settle();
  copy_on(a_, target, source);
  fill_on(b_, source);
  ASSERT_TRUE(told(RaceKind::write_after_read));
  EXPECT_EQ(report_.first.operation, "copy");
  EXPECT_EQ(report_.second.operation, "fill");
}

TEST_F(StreamSanitizer, FindsWritesOfWhatAnotherStreamMayStillWrite) {
  const Tensor tensor = made_on(a_);
  settle();
  fill_on(a_, tensor);
  fill_on(b_, tensor);
  EXPECT_TRUE(told(RaceKind::write_after_write));
}

TEST_F(StreamSanitizer, IsSilentAboutReadsOnTwoStreams) {
  const Tensor source = made_on(a_);
  const Tensor to_a = made_on(a_);
  const Tensor to_b = made_on(b_);
  settle();
  copy_on(a_, to_a, source);
  copy_on(b_, to_b, source);
  EXPECT_TRUE(is_silent());
}

TEST_F(StreamSanitizer, FindsRacesWhateverTheTiming) {
  const Tensor tensor = made_on(a_);
  settle();
  fill_on(a_, tensor);
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // by now it is done, which nobody has asked
  fill_on(b_, tensor);
  EXPECT_TRUE(told(RaceKind::write_after_write));
}

TEST_F(StreamSanitizer, KnowsDisjointPartsApart) {
  const Tensor tensor = made_on(a_);
  settle();
  fill_on(a_, tensor.narrow(0, 0, 500));
  fill_on(b_, tensor.narrow(0, 500, 524));
  EXPECT_TRUE(is_silent());
  fill_on(b_, tensor.narrow(0, 499, 3));
  ASSERT_TRUE(told(RaceKind::write_after_write));
  EXPECT_EQ(report_.bytes, 4U);
}

TEST_F(StreamSanitizer, KnowsInterleavedColumnsApart) {
  const Tensor tensor = made_on(a_).view({32, 32});
  settle();
  fill_on(a_, tensor.narrow(1, 0, 16));
  fill_on(b_, tensor.narrow(1, 16, 16));
  EXPECT_TRUE(is_silent());
  fill_on(b_, tensor.narrow(1, 15, 1));
  EXPECT_TRUE(told(RaceKind::write_after_write));
}

TEST_F(StreamSanitizer, SaysThatAnEventWasRecordedTooEarly) {
  const Tensor tensor = made_on(a_);
  settle();
  const Event event = a_.record_event();
  fill_on(a_, tensor);
  b_.wait_event(event);
  fill_on(b_, tensor);
  ASSERT_TRUE(told(RaceKind::write_after_write));
  EXPECT_TRUE(misses("was recorded on " + words_of(a_) + " before the first access"));
}

TEST_F(StreamSanitizer, SaysThatAnEventWasRecordedOnAnotherStream) {
  const Stream other(0);
  const Tensor tensor = made_on(a_);
  settle();
  fill_on(a_, tensor);
  b_.wait_event(other.record_event());
  fill_on(b_, tensor);
  ASSERT_TRUE(told(RaceKind::write_after_write));
  EXPECT_TRUE(misses("was recorded on " + words_of(other) + ", not on " + words_of(a_)));
}

TEST_F(StreamSanitizer, FollowsOrdersThroughOtherStreamsAndTheHost) {
  const Stream other(0);
  const Tensor tensor = made_on(a_);
  other.wait_stream(a_);
  b_.wait_stream(other);
  fill_on(b_, tensor);
  const Event event = b_.record_event();
  event.synchronize();
  fill_on(a_, tensor);
  a_.synchronize();
  fill_on(other, tensor);
  while (!other.query()) {
  }
  fill_on(b_, tensor);
  synchronize(0);
  fill_on(a_, tensor);
  EXPECT_TRUE(is_silent());
}

TEST_F(StreamSanitizer, TakesAWaitOfOneThreadForOneOfAll) {
  const Tensor tensor = made_on(a_);
  std::thread([this] { a_.synchronize(); }).join();
  fill_on(b_, tensor);
  EXPECT_TRUE(is_silent());
}

TEST_F(StreamSanitizer, FindsAMissingRecordStream) {
  const Tensor target = made_on(b_);
  std::optional<Tensor> source = made_on(a_);
  const void* const address = source->data();
  b_.wait_stream(a_);
  {
    // Past what would record it: as a kernel of the program's would use it.
    ss::access(b_, TensorView(source->data(), DType::float32, {sanitized_length}, Device(0)), ss::Use::read,
               "kernel of mine");
  }
  source.reset();
  const Tensor next = made_on(a_);
  ASSERT_EQ(next.data(), address);
  ASSERT_TRUE(told(RaceKind::freed_and_reused, words_of(b_), words_of(a_)));
  EXPECT_EQ(report_.first.operation, "kernel of mine");
  EXPECT_TRUE(misses("record_stream(" + words_of(b_) + ")"));
}

TEST_F(StreamSanitizer, IsSilentAboutMemoryThatRecordsItsStreams) {
  std::optional<Tensor> source = made_on(a_);
  b_.wait_stream(a_);
  ss::access(b_, source->view(), ss::Use::read, "kernel of mine");
  source->record_stream(b_);
  source.reset();
  const Tensor next = made_on(a_);
  b_.synchronize();
  const Tensor after = made_on(a_);
  EXPECT_TRUE(is_silent());
}

TEST_F(StreamSanitizer, FindsUsesOfMemoryThatIsNobodys) {
  std::optional<Tensor> tensor = made_on(a_);
  const TensorView view = tensor->view();
  const void* const address = view.data();
  tensor.reset();
  fill_on(a_, Tensor(view));
  ASSERT_TRUE(told(RaceKind::use_after_free, "the host", words_of(a_)));
  EXPECT_EQ(report_.address, address);
  EXPECT_EQ(report_.second.operation, "fill");
}

TEST_F(StreamSanitizer, KnowsWhatTheHostDoesWithPinnedMemoryIfTold) {
  const Tensor tensor = made_on(a_);
  const Tensor pinned = zeros({sanitized_length}, {.host_memory = HostMemory::pinned});
  copy_on(a_, pinned, tensor);
  ss::host_access(pinned.data(), pinned.nbytes(), ss::Use::read, "sum on the host");
  ASSERT_TRUE(told(RaceKind::read_after_write, words_of(a_), "the host"));
  EXPECT_EQ(report_.second.operation, "sum on the host");
  EXPECT_TRUE(misses("a wait of the host"));
  reports_.clear();
  a_.synchronize();
  ss::host_access(pinned.data(), pinned.nbytes(), ss::Use::read_write, "sum on the host");
  copy_on(a_, pinned, tensor);
  EXPECT_TRUE(is_silent());
}

TEST_F(StreamSanitizer, GoesByOrdersThatAreDeclared) {
  const Tensor tensor = made_on(a_);
  ss::declare_order(a_, b_);
  ss::access(b_, tensor.view(), ss::Use::read_write, "kernel");
  ss::declare_wait(b_);
  ss::access(a_, tensor.view(), ss::Use::write, "kernel");
  EXPECT_TRUE(is_silent());
  ss::access(b_, tensor.view(), ss::Use::write, "another");
  EXPECT_TRUE(told(RaceKind::write_after_write));
}

TEST_F(StreamSanitizer, NamesThreadsAndTheFunctionsThatIssuedBoth) {
  const Tensor tensor = made_on(a_);
  settle();
  long other = 0;
  std::thread([&] {
    other = ::syscall(SYS_gettid);
    const StreamGuard guard(a_);
    tutti_test_fill(tensor);
  }).join();
  fill_on(b_, tensor);
  ASSERT_TRUE(told(RaceKind::write_after_write));
  EXPECT_EQ(report_.first.thread, static_cast<std::uint64_t>(other));
  EXPECT_EQ(report_.second.thread, static_cast<std::uint64_t>(::syscall(SYS_gettid)));
  EXPECT_NE(report_.first.issued_at.find("tutti_test_fill"), std::string::npos) << report_.first.issued_at;
  EXPECT_EQ(report_.second.issued_at.find("tutti_test_fill"), std::string::npos);
}

TEST_F(StreamSanitizer, TellsOfOnePairOfPlacesOnce) {
  const Tensor tensor = made_on(a_);
  settle();
  const std::uint64_t before = ss::report_count();
  for (int i = 0; i < 5; ++i) {
    fill_on(a_, tensor);
    settle();
    fill_on(a_, tensor);
    fill_on(b_, tensor);
    settle();
  }
  EXPECT_EQ(ss::report_count(), before + 1);
}

TEST_F(StreamSanitizer, ThrowsInsteadOfQueuingAnErrorIfAsked) {
  const Tensor tensor = made_on(a_);
  settle();
  fill_on(a_, tensor);
  ss::enable(ss::Mode::error);
  fill_on(a_, tensor);
  EXPECT_TRUE(test::refuses([&] { tutti_test_fill(tensor); }, ErrorCode::invalid_argument,
                            {"stream sanitizer", "write after write", "record"}));
  synchronize(0);
  EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(sanitized_length, 1.0F));
  tutti_test_fill(tensor);
  EXPECT_EQ(tensor.to_vector<float>(), std::vector<float>(sanitized_length, 2.0F));
}

TEST_F(StreamSanitizer, ForgetsWhatWasQueuedWhileItIsOff) {
  const Tensor tensor = made_on(a_);
  settle();
  fill_on(a_, tensor);
  ss::disable();
  EXPECT_EQ(ss::mode(), ss::Mode::off);
  fill_on(b_, tensor);
  ss::enable();
  EXPECT_EQ(ss::mode(), ss::Mode::warn);
  fill_on(a_, tensor);
  EXPECT_TRUE(is_silent());
}

class StreamSanitizerOfGraphs : public StreamSanitizer {
 protected:
  Graph capture(const std::function<void()>& work) const {
    const StreamGuard guard(a_);
    return Graph::capture(a_, work);
  }
};

TEST_F(StreamSanitizerOfGraphs, FindsRacesBetweenBranches) {
  const Tensor tensor = made_on(a_);
  settle();
  const Graph graph = capture([&] {
    b_.wait_stream(a_);
    fill_on(a_, tensor);
    fill_on(b_, tensor);
    a_.wait_stream(b_);
  });
  EXPECT_TRUE(told(RaceKind::write_after_write));
}

TEST_F(StreamSanitizerOfGraphs, FindsRacesOfLaunchesWithOtherWork) {
  const Tensor tensor = made_on(a_);
  settle();
  const Graph graph = capture([&] {
    b_.wait_stream(a_);
    fill_on(b_, tensor);
    a_.wait_stream(b_);
  });
  fill_on(a_, tensor);
  graph.launch(a_);
  EXPECT_TRUE(is_silent());
  fill_on(b_, tensor);
  ASSERT_TRUE(told(RaceKind::write_after_write));
  EXPECT_EQ(report_.first.operation, "fill, in a graph, by launch of a graph");
  EXPECT_NE(report_.first.issued_at.find("captured at"), std::string::npos);
}

TEST_F(StreamSanitizerOfGraphs, IsSilentAboutMemoryOfTheGraphsOwn) {
  const Tensor result = made_on(a_);
  settle();
  const Graph graph = capture([&] {
    const Tensor inner = zeros({sanitized_length}, {.device = Device(0)});
    result.copy_(inner, Blocking::no);
  });
  for (int i = 0; i < 3; ++i) graph.launch(a_);
  const Tensor other = made_on(a_);
  EXPECT_TRUE(is_silent());
}

TEST_F(StreamSanitizerOfGraphs, FollowsTheLaunchBefore) {
  const Tensor tensor = made_on(a_);
  settle();
  const Graph graph = capture([&] { fill_on(a_, tensor); });
  graph.launch(a_);
  graph.launch(b_);
  fill_on(b_, tensor);
  EXPECT_TRUE(is_silent());
  fill_on(a_, tensor);
  EXPECT_TRUE(told(RaceKind::write_after_write, words_of(b_), words_of(a_)));
}

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
  ss::access(streams_[1], results_[0].view(), ss::Use::read, "kernel of mine");
  ASSERT_EQ(reports_.size(), 1U);
  report_ = reports_.front();
  EXPECT_EQ(report_.kind, RaceKind::read_after_write);
  EXPECT_NE(report_.first.part_of.find("all_reduce_add of a communicator"), std::string::npos)
      << report_.text;
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
    ss::access(streams_[member], tensor.view(), ss::Use::read_write, "kernel of mine");
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

TEST_F(StreamSanitizerOfMembers, KnowsThatABroadcastOrdersOneWay) {
  ss::access(streams_[0], tensors_[0].view(), ss::Use::write, "of the other");
  communicator_->broadcast(results_, 1, streams_);
  // What the root gets next need not follow the others' earlier work.
  ss::access(streams_[1], tensors_[0].view(), ss::Use::write, "of the root");
  EXPECT_TRUE(told(RaceKind::write_after_write, words_of(streams_[0]), words_of(streams_[1])));
}

}  // namespace
}  // namespace tutti
