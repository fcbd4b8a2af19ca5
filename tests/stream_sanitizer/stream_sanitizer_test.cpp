// SPDX-License-Identifier: Apache-2.0
// Races that are planted, each found under its right names; and the same programs mended, which are silent.
// The sanitizer is on from the start (TUTTI_STREAM_SANITIZER), as it has to be.

#include "tutti/stream_sanitizer.hpp"

#include "device/runtime.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/stream_sanitizer_fixture.hpp"
#include "tutti/tutti.hpp"

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
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
using test::sanitized_bytes;
using test::sanitized_length;
using test::StreamSanitizer;
using test::words_of;

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

}  // namespace
}  // namespace tutti
