// SPDX-License-Identifier: Apache-2.0
#include "tutti/graph.hpp"

#include "device/runtime.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/stream_gate.hpp"
#include "tutti/collectives.hpp"
#include "tutti/memory.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

class Graphs : public testing::Test {
 protected:
  Stream stream_{0};
  Tensor number_ = zeros({1000}, {.dtype = DType::int32, .device = Device(0)});
  Tensor copy_ = zeros({1000}, {.dtype = DType::int32, .device = Device(0)});

  [[nodiscard]] Graph copying() {
    return Graph::capture(stream_, [this] { copy_.copy_(number_, Blocking::no); });
  }
  void expect_copied(std::int32_t number) {
    stream_.synchronize();
    EXPECT_EQ(copy_.to_vector<std::int32_t>(), std::vector<std::int32_t>(1000, number));
  }
};

TEST(Graph, IsOfSomeStream) {
  EXPECT_TRUE(test::refuses([] { static_cast<void>(Graph::capture(std::vector<Stream>{}, [] {})); },
                            ErrorCode::invalid_argument, {"Graph::capture", "streams is empty"}));
}

TEST_F(Graphs, RunWhenTheyAreLaunchedAndAgainEachTime) {
  synchronize(0);
  const Graph graph = copying();
  expect_copied(0);
  const StreamGuard guard(stream_);
  for (int number = 1; number < 5; ++number) {
    number_.fill_(number);
    graph.launch(stream_);
    expect_copied(number);
  }
}

TEST_F(Graphs, FollowTheStreamTheyAreLaunchedOn) {
  synchronize(0);
  const Graph graph = copying();
  const Stream other(0);
  const StreamGuard guard(other);
  number_.fill_(7);
  graph.launch(other);
  other.synchronize();
  expect_copied(7);
}

TEST_F(Graphs, HoldTheWorkOfSeveralStreams) {
  const Stream other(0);
  const Tensor sum = zeros({1000}, {.dtype = DType::int32, .device = Device(0)});
  synchronize(0);
  const std::vector<Stream> streams{stream_, other};
  const Graph graph = Graph::capture(streams, [&] {
    copy_.copy_(number_, Blocking::no);
    const StreamGuard guard(other);
    sum.fill_(5);
  });
  expect_copied(0);
  EXPECT_EQ(sum.to_vector<std::int32_t>(), std::vector<std::int32_t>(1000, 0));
  const StreamGuard guard(stream_);
  number_.fill_(6);
  graph.launch(stream_);
  expect_copied(6);
  EXPECT_EQ(sum.to_vector<std::int32_t>(), std::vector<std::int32_t>(1000, 5));
}

TEST_F(Graphs, HoldCopiesToOtherDevicesWhoseStreamsHaveJoined) {
  if (device_count() < 2) GTEST_SKIP() << "takes two devices";
  const Tensor there = zeros({1000}, {.dtype = DType::int32, .device = Device(1)});
  const auto copies = [&] { there.copy_(number_); };
  for (const int device : {0, 1}) synchronize(device);
  EXPECT_TRUE(test::refuses([&] { static_cast<void>(Graph::capture(stream_, copies)); },
                            ErrorCode::unsupported,
                            {"Tensor::copy_: ", "on device 1 is the default stream"}));
  const Stream other(1);
  const StreamGuard guard(other);
  const Graph graph = Graph::capture(stream_, [&] {
    EXPECT_TRUE(test::refuses(copies, ErrorCode::unsupported, {"Tensor::copy_: ", "device:1 is not"}));
    other.wait_stream(stream_);
    copies();
    copy_.copy_(there);
  });
  {
    const StreamGuard here(stream_);
    number_.fill_(9);
    graph.launch(stream_);
  }
  expect_copied(9);
}

TEST_F(Graphs, OfSeveralStreamsLeaveNothingCapturedWhenTheyFail) {
  const Stream other(0);
  synchronize(0);
  const std::vector<Stream> streams{stream_, other};
  EXPECT_THROW(static_cast<void>(Graph::capture(streams, [] { throw std::runtime_error("no"); })),
               std::runtime_error);
  const StreamGuard guard(other);
  copy_.fill_(4);
  other.synchronize();
  expect_copied(4);
}

TEST_F(Graphs, CanBeMovedAndOutliveTheirTensorsNames) {
  synchronize(0);
  std::optional<Graph> graph(copying());
  Graph moved = std::move(*graph);
  graph.reset();
  const StreamGuard guard(stream_);
  number_.fill_(3);
  moved.launch(stream_);
  expect_copied(3);
}

TEST_F(Graphs, HoldCollectives) {
  synchronize(0);
  std::vector<Tensor> inputs{number_, copy_};
  const Tensor sum = zeros({1000}, {.dtype = DType::int32, .device = Device(0)});
  synchronize(0);
  const Graph graph = Graph::capture(stream_, [&] { reduce_add(inputs, sum); });
  const StreamGuard guard(stream_);
  number_.fill_(20);
  copy_.fill_(1);
  graph.launch(stream_);
  stream_.synchronize();
  EXPECT_EQ(sum.to_vector<std::int32_t>(), std::vector<std::int32_t>(1000, 21));
}

/// Tensors that have got whatever memory a capture let go of.
class Others {
 public:
  Others(std::int64_t length, std::int32_t value) : value_(value) {
    for (int i = 0; i < 200; ++i)
      tensors_.push_back(full({length}, value, {.dtype = DType::int32, .device = Device(0)}));
  }
  void expect_untouched() const {
    for (const Tensor& tensor : tensors_) {
      const auto values = tensor.to_vector<std::int32_t>();
      EXPECT_EQ(values, std::vector<std::int32_t>(values.size(), value_));
    }
  }

 private:
  std::int32_t value_;
  std::vector<Tensor> tensors_;
};

TEST_F(Graphs, KeepWhatFillsOfPartsNeed) {
  const StreamGuard guard(stream_);
  const Tensor matrix = zeros({100, 10}, {.dtype = DType::int32, .device = Device(0)});
  synchronize(0);
  const Graph graph = Graph::capture(stream_, [&] { matrix.narrow(1, 3, 1).fill_(7); });
  const Others others(1, -1);
  graph.launch(stream_);
  stream_.synchronize();
  others.expect_untouched();
  const auto values = matrix.to_vector<std::int32_t>();
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_EQ(values[i], i % 10 == 3 ? 7 : 0) << "at " << i;
}

TEST_F(Graphs, KeepWhatCopiesOfPartsNeed) {
  const StreamGuard guard(stream_);
  const Tensor matrix = full({100, 10}, 2, {.dtype = DType::int32, .device = Device(0)});
  const Tensor column = empty({100, 1}, {.dtype = DType::int32, .host_memory = HostMemory::pinned});
  synchronize(0);
  const Graph graph = Graph::capture(stream_, [&] { column.copy_(matrix.narrow(1, 3, 1), Blocking::no); });
  const Others others(100, -1);
  matrix.narrow(1, 3, 1).fill_(9);
  graph.launch(stream_);
  stream_.synchronize();
  others.expect_untouched();
  EXPECT_EQ(column.to_vector<std::int32_t>(), std::vector<std::int32_t>(100, 9));
}

/// Holds `value` in every element.
testing::AssertionResult holds(const Tensor& tensor, std::int32_t value) {
  const auto values = tensor.to_vector<std::int32_t>();
  if (values == std::vector<std::int32_t>(values.size(), value)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "holds " << values.front() << ", expected " << value;
}

Tensor numbers(std::int64_t count, std::int32_t value, Device device = Device(0)) {
  return full({count}, value, {.dtype = DType::int32, .device = device});
}

TEST_F(Graphs, OverwriteNoTensorWithWhatTheyMakeAndDrop) {
  for (const std::int64_t count : {std::int64_t{10}, std::int64_t{1} << 20, std::int64_t{5} << 20}) {
    const StreamGuard guard(stream_);
    const Tensor out = numbers(count, 0);
    synchronize(0);
    const Graph graph = Graph::capture(stream_, [&] {
      for (int i = 0; i < 3; ++i) out.copy_(numbers(count, 7));
    });
    const Others others(count < 1000 ? count : 1000, -1);
    std::vector<Tensor> victims;
    for (int i = 0; i < 3; ++i) victims.push_back(numbers(count, 1));
    empty_cache();
    for (int i = 0; i < 3; ++i) victims.push_back(numbers(count, 1));
    graph.launch(stream_);
    graph.launch(stream_);
    stream_.synchronize();
    for (const Tensor& victim : victims) EXPECT_TRUE(holds(victim, 1));
    others.expect_untouched();
    EXPECT_TRUE(holds(out, 7));
  }
}

TEST_F(Graphs, OverwriteNoTensorWithWhatStreamsThatJoinedMakeAndDrop) {
  const Stream other(0);
  const Tensor out = numbers(1000, 0);
  const Tensor copy = numbers(1000, 0);
  synchronize(0);
  const Graph graph = Graph::capture(std::vector<Stream>{stream_, other}, [&] {
    out.copy_(numbers(1000, 7));
    const StreamGuard guard(other);
    const Tensor made = numbers(1000, 8);
    copy.copy_(made);
    made.record_stream(stream_);
  });
  std::vector<Tensor> victims;
  for (const Stream& stream : {stream_, other}) {
    const StreamGuard guard(stream);
    for (int i = 0; i < 100; ++i) victims.push_back(numbers(1000, 1));
    stream.synchronize();
  }
  graph.launch(stream_);
  stream_.synchronize();
  for (const Tensor& victim : victims) EXPECT_TRUE(holds(victim, 1));
  EXPECT_TRUE(holds(out, 7));
  EXPECT_TRUE(holds(copy, 8));
}

TEST_F(Graphs, KeepTensorsThatTheirWorkLetsGoOf) {
  const StreamGuard guard(stream_);
  Tensor replaced = numbers(1000, 3);
  const Tensor out = numbers(1000, 0);
  synchronize(0);
  const Graph graph = Graph::capture(stream_, [&] {
    replaced.fill_(4);
    out.copy_(replaced);
    replaced = Tensor();
  });
  std::vector<Tensor> victims;
  for (int i = 0; i < 100; ++i) victims.push_back(numbers(1000, 1));
  graph.launch(stream_);
  stream_.synchronize();
  for (const Tensor& victim : victims) EXPECT_TRUE(holds(victim, 1));
  EXPECT_TRUE(holds(out, 4));
}

TEST_F(Graphs, KeepPinnedMemoryThatTheirWorkMakesAndUses) {
  const StreamGuard guard(stream_);
  const Tensor out = numbers(1000, 5);
  const Tensor back = numbers(1000, 0);
  synchronize(0);
  const Graph graph = Graph::capture(stream_, [&] {
    const Tensor there = empty({1000}, {.dtype = DType::int32, .host_memory = HostMemory::pinned});
    there.copy_(out, Blocking::no);
    back.copy_(there, Blocking::no);
  });
  std::vector<Tensor> victims;
  for (int i = 0; i < 100; ++i) {
    victims.push_back(full({1000}, 1, {.dtype = DType::int32, .host_memory = HostMemory::pinned}));
  }
  graph.launch(stream_);
  stream_.synchronize();
  for (const Tensor& victim : victims) EXPECT_TRUE(holds(victim, 1));
  EXPECT_TRUE(holds(back, 5));
}

TEST_F(Graphs, GiveTheirMemoryToOthersWhenTheyAreGone) {
  const StreamGuard guard(stream_);
  synchronize(0);
  empty_cache();
  const std::size_t reserved = memory_reserved(0);
  Tensor outlives;
  {
    const Graph graph = Graph::capture(stream_, [&] {
      numbers(5 << 20, 7).fill_(8);
      outlives = numbers(1000, 9);
    });
    EXPECT_EQ(memory_reserved(0), reserved + (std::size_t{22} << 20));
    EXPECT_EQ(std::ranges::count_if(memory_snapshot(), [](const auto& s) { return s.graph_pool != 0; }), 2);
    empty_cache();
    EXPECT_EQ(memory_reserved(0), reserved + (std::size_t{22} << 20));
    graph.launch(stream_);
  }
  synchronize(0);
  EXPECT_EQ(std::ranges::count_if(memory_snapshot(), [](const auto& s) { return s.graph_pool != 0; }), 0);
  EXPECT_TRUE(holds(outlives, 9));
  empty_cache();
  EXPECT_EQ(memory_reserved(0), reserved + (std::size_t{2} << 20)) << "the segment of what is alive";
  const Tensor next = numbers(100, 1);
  EXPECT_TRUE(holds(outlives, 9));
  outlives = Tensor();
}

TEST_F(Graphs, AreNotOverwrittenWhileTheirLastLaunchRuns) {
  const StreamGuard guard(stream_);
  const backend::StreamRef made = Runtime::get().backend().create_stream(0, 0);  // never destroyed
  const auto launch_on = [&](const Stream& launched) {
    const Tensor out = numbers(5 << 20, 0);
    synchronize(0);
    test::StreamGate gate(launched);
    gate.open_soon();
    {
      const Graph graph = Graph::capture(stream_, [&] {
        const Tensor from = numbers(5 << 20, 7);
        out.copy_(from);
      });
      graph.launch(launched);
    }
    std::vector<Tensor> victims;
    for (int i = 0; i < 4; ++i) victims.push_back(numbers(5 << 20, 1));
    stream_.synchronize();
    launched.synchronize();
    for (const Tensor& victim : victims) EXPECT_TRUE(holds(victim, 1));
    EXPECT_TRUE(holds(out, 7));
  };
  launch_on(Stream(0));
  launch_on(ExternalStream(made.handle, 0));
  launch_on(PermanentStream(made.handle, 0));
}

TEST_F(Graphs, ThatFailToBeCapturedLeaveTheirMemoryToOthers) {
  synchronize(0);
  empty_cache();
  const std::size_t reserved = memory_reserved(0);
  EXPECT_THROW(static_cast<void>(Graph::capture(stream_,
                                                [&] {
                                                  numbers(5 << 20, 7).fill_(8);
                                                  throw std::runtime_error("no");
                                                })),
               std::runtime_error);
  empty_cache();
  EXPECT_EQ(memory_reserved(0), reserved);
}

TEST_F(Graphs, PassOnWhatTheWorkThrowsAndRecordNothing) {
  synchronize(0);
  EXPECT_THROW(static_cast<void>(Graph::capture(stream_,
                                                [&] {
                                                  copy_.fill_(9);
                                                  throw std::runtime_error("no");
                                                })),
               std::runtime_error);
  expect_copied(0);
  const StreamGuard guard(stream_);
  number_.fill_(5);
  copying().launch(stream_);
  expect_copied(5);
}

TEST_F(Graphs, RefuseStreamsOfOtherDevices) {
  if (device_count() < 2) GTEST_SKIP() << "there is one device";
  synchronize(0);
  const Graph graph = copying();
  EXPECT_TRUE(test::refuses([&] { graph.launch(Stream(1)); }, ErrorCode::invalid_argument,
                            {"Graph::launch", "stream is one of device 1", "expected device 0"}));
}

}  // namespace
}  // namespace tutti
