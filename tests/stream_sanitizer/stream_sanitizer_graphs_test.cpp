// SPDX-License-Identifier: Apache-2.0
#include "support/stream_sanitizer_fixture.hpp"
#include "tutti/stream_sanitizer.hpp"
#include "tutti/tutti.hpp"

#include <functional>
#include <string>

#include <gtest/gtest.h>

/// Races of what graphs do.
namespace tutti {
namespace {

using stream_sanitizer::RaceKind;
using test::sanitized_length;
using test::StreamSanitizer;
using test::words_of;

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

}  // namespace
}  // namespace tutti
