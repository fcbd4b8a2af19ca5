// SPDX-License-Identifier: Apache-2.0
#include "backend/backend.hpp"
#include "backend/cuda/captured_arguments.hpp"
#include "backend/cuda/handles.hpp"
#include "backend/cuda/kernels/kernels.hpp"
#include "backend/team_exercise.hpp"
#include "tutti/cuda_interop.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Which kernels of rounds overlap in graphs.
namespace tutti::backend {
namespace {

/// What the edge between two nodes of a graph is; nothing if there is none.
std::string edge_between(cudaGraph_t graph, cudaGraphNode_t from, cudaGraphNode_t to) {
  std::size_t count = 0;
#if CUDART_VERSION >= 13000
  const auto get = &cudaGraphGetEdges;
#else
  const auto get = &cudaGraphGetEdges_v2;
#endif
  EXPECT_EQ(get(graph, nullptr, nullptr, nullptr, &count), cudaSuccess);
  std::vector<cudaGraphNode_t> origins(count);
  std::vector<cudaGraphNode_t> ends(count);
  std::vector<cudaGraphEdgeData> edges(count);
  EXPECT_EQ(get(graph, origins.data(), ends.data(), edges.data(), &count), cudaSuccess);
  for (std::size_t i = 0; i < count; ++i) {
    if (origins[i] == from && ends[i] == to)
      return edges[i].type == cudaGraphDependencyTypeProgrammatic ? "dependent" : "full";
  }
  return "";
}

class CapturedRounds : public testing::Test {
 protected:
  static constexpr std::uint64_t small = 100;
  static constexpr std::uint64_t large = 800'000;

  void SetUp() override {
    std::string reason;
    machine_ = make_cuda_backend(reason);
    if (machine_ == nullptr) GTEST_SKIP() << reason;
    int driver = 0;
    EXPECT_EQ(cudaDriverGetVersion(&driver), cudaSuccess);
    if (machine_->properties(0).major < 9 || driver < cuda::dependent_graphs_driver)
      GTEST_SKIP() << "kernels are launched dependently from Hopper, and in graphs from CUDA 12.3 on";
    team_ = std::make_unique<TeamExercise>(*machine_, devices_, WindowMemory::device);
    team_->fill_outputs();
    machine_->begin_capture(stream(), CaptureErrorMode::thread);
  }
  void TearDown() override {
    if (team_ != nullptr) machine_->destroy_graph(machine_->end_capture(stream(), nullptr));
  }

  Backend& machine() { return *machine_; }
  TeamExercise& team() { return *team_; }
  StreamRef stream() { return team_->stream(0); }

  /// The node that what was captured last has become.
  cudaGraphNode_t latest() {
    cudaStreamCaptureStatus status{};
    const cudaGraphNode_t* before = nullptr;
    std::size_t count = 0;
#if CUDART_VERSION >= 13000
    const cudaGraphEdgeData* edges = nullptr;
    EXPECT_EQ(
        cudaStreamGetCaptureInfo(cuda::native(stream()), &status, nullptr, &graph_, &before, &edges, &count),
        cudaSuccess);
#else
    EXPECT_EQ(cudaStreamGetCaptureInfo_v2(cuda::native(stream()), &status, nullptr, &graph_, &before, &count),
              cudaSuccess);
#endif
    EXPECT_EQ(count, 1U);
    return count == 1 ? before[0] : nullptr;
  }
  /// Member 0 sends member 1 so many bytes.
  cudaGraphNode_t capture_round(std::uint64_t bytes, Way way = Way::low_latency) {
    TeamCall call(2, 1);
    call.tells_host = call.counts_done = false;
    team().add_message(call, 1, 0, {1}, std::vector<Rectangle>{{1, bytes}}, way);
    team().enqueue(call, 0);
    return latest();
  }
  cudaGraphNode_t capture_fill() {
    machine().fill(stream(), {.target = team().input(0), .count = 4});
    return latest();
  }
  std::string edge(cudaGraphNode_t from, cudaGraphNode_t to) { return edge_between(graph_, from, to); }

 private:
  std::array<int, 2> devices_{0, 0};
  std::unique_ptr<Backend> machine_;
  std::unique_ptr<TeamExercise> team_;
  cudaGraph_t graph_ = nullptr;
};

TEST_F(CapturedRounds, OverlapIfBothAreSmall) {
  const cudaGraphNode_t first = capture_round(small);
  const cudaGraphNode_t second = capture_round(small);
  const cudaGraphNode_t third = capture_round(small, Way::slots);
  EXPECT_EQ(edge(first, second), "dependent");
  EXPECT_EQ(edge(second, third), "dependent");
  EXPECT_TRUE(test::lets_next_in(first));
  EXPECT_TRUE(test::lets_next_in(second));
  EXPECT_FALSE(test::lets_next_in(third));
}

TEST_F(CapturedRounds, FollowOneAnotherIfOneIsLarge) {
  const cudaGraphNode_t first = capture_round(small);
  const cudaGraphNode_t second = capture_round(large);
  const cudaGraphNode_t third = capture_round(small);
  EXPECT_EQ(edge(first, second), "dependent");
  EXPECT_EQ(edge(second, third), "dependent");
  EXPECT_FALSE(test::lets_next_in(first));
  EXPECT_FALSE(test::lets_next_in(second));
}

TEST_F(CapturedRounds, LetNobodyElseIn) {
  const cudaGraphNode_t first = capture_round(small);
  const cudaGraphNode_t fill = capture_fill();
  const cudaGraphNode_t second = capture_round(small);
  EXPECT_EQ(edge(first, fill), "full");
  EXPECT_EQ(edge(fill, second), "full");
  EXPECT_FALSE(test::lets_next_in(first));
  EXPECT_FALSE(test::lets_next_in(second)) << "nothing follows it";
}

}  // namespace
}  // namespace tutti::backend
