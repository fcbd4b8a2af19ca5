#include "tutti/graph.hpp"

#include "support/environment.hpp"
#include "support/errors.hpp"
#include "tutti/collectives.hpp"
#include "tutti/tensor.hpp"

#include <optional>
#include <stdexcept>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

class Graphs : public testing::Test {
 protected:
  void SetUp() override {
    if (test::on_virtual_devices()) GTEST_SKIP() << "virtual devices have no graphs";
  }

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

TEST(Graph, IsNotForVirtualDevices) {
  if (!test::on_virtual_devices()) GTEST_SKIP() << "there are GPUs";
  EXPECT_TRUE(test::refuses([] { static_cast<void>(Graph::capture(Stream(0), [] {})); },
                            ErrorCode::unsupported, {"Graph::capture", "virtual devices have no graphs"}));
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
