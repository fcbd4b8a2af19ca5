// SPDX-License-Identifier: Apache-2.0
// Random numbers that graphs draw: a launch gives those that the calls would give.

#include "support/errors.hpp"
#include "support/values/rng_state.hpp"
#include "tutti/cuda_graph.hpp"
#include "tutti/event.hpp"
#include "tutti/graph.hpp"
#include "tutti/rng.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using Numbers = std::vector<float>;

class GraphRandom : public testing::Test {
 protected:
  GraphRandom() { synchronize(0); }  // the tensors are filled on another stream than draws are made on

  /// Two fills, of which the first takes words to spare.
  void draw() const {
    uniform_(small_);
    normal_(large_, 1.0, 2.0);
  }
  [[nodiscard]] Graph drawing() {
    synchronize(0);
    return Graph::capture(stream_, [this] { draw(); });
  }
  /// What the last draw gave.
  [[nodiscard]] Numbers drawn() const {
    synchronize(0);
    Numbers numbers = small_.to_vector<float>();
    const Numbers more = large_.to_vector<float>();
    numbers.insert(numbers.end(), more.begin(), more.end());
    return numbers;
  }
  /// What `count` draws by calls give from here on; the generator is put back to where it is.
  [[nodiscard]] std::vector<Numbers> eager(int count) const {
    const RngState state = get_rng_state(0);
    const StreamGuard guard(stream_);
    std::vector<Numbers> draws;
    for (int i = 0; i < count; ++i) {
      draw();
      draws.push_back(drawn());
    }
    set_rng_state(state, 0);
    return draws;
  }

  Stream stream_{0};
  Tensor small_ = zeros({5}, {.device = Device(0)});
  Tensor large_ = zeros({10'001}, {.device = Device(0)});
};

TEST_F(GraphRandom, IsNewAtEachLaunchAndWhatTheCallsWouldGive) {
  manual_seed_all(42);
  const RngState state = get_rng_state(0);
  const Graph graph = drawing();
  EXPECT_EQ(get_rng_state(0), state) << "the capture draws nothing";
  const std::vector<Numbers> expected = eager(4);
  EXPECT_NE(expected[0], expected[1]);
  graph.launch(stream_);
  EXPECT_EQ(drawn(), expected[0]);
  graph.launch(stream_);
  EXPECT_EQ(drawn(), expected[1]);
  {
    const StreamGuard guard(stream_);
    draw();
  }
  EXPECT_EQ(drawn(), expected[2]) << "by calls, after launches";
  graph.launch(stream_);
  EXPECT_EQ(drawn(), expected[3]) << "by a launch, after calls";
}

TEST_F(GraphRandom, IsNewThoughTheGraphHasUsedAndGivenBackMemoryBeforeItDraws) {
  synchronize(0);
  const Tensor kept = zeros({4}, {.device = Device(0)});
  synchronize(0);
  const Graph graph = Graph::capture(stream_, [&] {
    {
      const Tensor temporary = full({4}, 3.0, {.device = Device(0)});
      kept.copy_(temporary);
    }
    draw();
  });
  const std::vector<Numbers> expected = eager(2);
  graph.launch(stream_);
  EXPECT_EQ(drawn(), expected[0]);
  graph.launch(stream_);
  EXPECT_EQ(drawn(), expected[1]);
}

TEST_F(GraphRandom, IsNewAtEachReplayOfACUDAGraph) {
  const std::vector<Numbers> expected = eager(3);
  synchronize(0);
  CUDAGraph graph;
  {
    const GraphGuard guard(graph, {.stream = stream_});
    draw();
  }
  for (const Numbers& numbers : expected) {
    const StreamGuard guard(stream_);
    graph.replay();
    EXPECT_EQ(drawn(), numbers);
  }
}

TEST_F(GraphRandom, FollowsTheSeedAndTheStateAtEachLaunch) {
  const Graph graph = drawing();
  manual_seed_all(7);
  const Numbers first = eager(1)[0];
  const RngState state = get_rng_state(0);
  graph.launch(stream_);
  EXPECT_EQ(drawn(), first);
  graph.launch(stream_);
  EXPECT_NE(drawn(), first);
  set_rng_state(state, 0);
  graph.launch(stream_);
  EXPECT_EQ(drawn(), first);
  manual_seed_all(8);
  const Numbers other = eager(1)[0];
  graph.launch(stream_);
  EXPECT_EQ(drawn(), other);
}

TEST_F(GraphRandom, HoldsForManyLaunchesInFlightOnSeveralStreams) {
  constexpr int launches = 40;
  manual_seed_all(3);
  const std::vector<Numbers> expected = eager(launches);
  const Tensor all = zeros({launches, 10'001}, {.device = Device(0)});
  const Graph graph = drawing();
  const Stream streams[] = {stream_, Stream(0), Stream(0)};
  Event copied;
  for (int i = 0; i < launches; ++i) {
    const Stream& stream = streams[i % 3];
    const StreamGuard guard(stream);
    stream.wait_event(copied);
    graph.launch(stream);
    all.narrow(0, i, 1).copy_(large_.view({1, 10'001}));
    copied.record(stream);
  }
  // Those that nothing but the graph itself orders.
  for (int i = 0; i < launches; ++i) graph.launch(streams[i % 3]);
  synchronize(0);
  const Numbers numbers = all.to_vector<float>();
  for (int i = 0; i < launches; ++i) {
    const auto row = numbers.begin() + i * 10'001;
    EXPECT_TRUE(std::equal(row, row + 10'001, expected[static_cast<std::size_t>(i)].begin() + 5))
        << "launch " << i;
  }
}

TEST_F(GraphRandom, SharesTheGeneratorWithOtherGraphs) {
  manual_seed_all(5);
  const std::vector<Numbers> expected = eager(3);
  const Graph first = drawing();
  const Graph second = drawing();
  second.launch(stream_);
  EXPECT_EQ(drawn(), expected[0]);
  first.launch(stream_);
  EXPECT_EQ(drawn(), expected[1]);
  second.launch(stream_);
  EXPECT_EQ(drawn(), expected[2]);
}

TEST_F(GraphRandom, HoldsForEveryElementType) {
  for (const DType dtype : {DType::float16, DType::bfloat16, DType::float32, DType::float64}) {
    const Tensor tensor = zeros({1003}, {.dtype = dtype, .device = Device(0)});
    synchronize(0);
    const Graph graph = Graph::capture(stream_, [&] {
      normal_(tensor);
      normal_(tensor);
    });
    manual_seed_all(11);
    for (int i = 0; i < 2; ++i) {
      const RngState state = get_rng_state(0);
      graph.launch(stream_);
      synchronize(0);
      const auto launched = tensor.to_bytes();
      const RngState after = get_rng_state(0);
      set_rng_state(state, 0);
      normal_(tensor);
      normal_(tensor);
      EXPECT_EQ(tensor.to_bytes(), launched) << name_of(dtype);
      EXPECT_EQ(get_rng_state(0), after);
    }
  }
}

TEST_F(GraphRandom, AdvancesTheGeneratorsOfAllItsDevices) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices, found " << device_count();
  const Stream there(1);
  const Tensor elsewhere = zeros({777}, {.device = Device(1)});
  synchronize(1);
  synchronize(0);
  const Graph graph = Graph::capture(std::vector<Stream>{stream_, there}, [&] {
    uniform_(small_);
    uniform_(elsewhere);
  });
  manual_seed_all(13);
  for (int i = 0; i < 3; ++i) {
    const std::vector<RngState> states = get_rng_state_all();
    graph.launch(stream_);
    stream_.synchronize();
    const Numbers numbers[] = {small_.to_vector<float>(), elsewhere.to_vector<float>()};
    const std::vector<RngState> after = get_rng_state_all();
    set_rng_state_all(states);
    uniform_(small_);
    uniform_(elsewhere);
    EXPECT_EQ(small_.to_vector<float>(), numbers[0]);
    EXPECT_EQ(elsewhere.to_vector<float>(), numbers[1]);
    EXPECT_EQ(get_rng_state_all(), after);
  }
}

}  // namespace
}  // namespace tutti
