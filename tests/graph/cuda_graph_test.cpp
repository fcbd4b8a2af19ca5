// SPDX-License-Identifier: Apache-2.0
#include "tutti/cuda_graph.hpp"

#include "support/environment.hpp"
#include "support/errors.hpp"
#include "tutti/memory.hpp"
#include "tutti/rng.hpp"
#include "tutti/tensor.hpp"
#include "tutti/virtual_devices.hpp"

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace tutti {
namespace {

using test::refuses;

constexpr std::int64_t length = 1000;

Tensor graph_numbers(std::int32_t value, int device = 0) {
  return full({length}, value, {.dtype = DType::int32, .device = Device(device)});
}

testing::AssertionResult all_are(const Tensor& tensor, std::int32_t value) {
  const auto values = tensor.to_vector<std::int32_t>();
  if (values == std::vector<std::int32_t>(values.size(), value)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "holds " << values.front() << ", expected " << value;
}

class CUDAGraphs : public testing::Test {
 protected:
  CUDAGraphs() { synchronize(0); }

  /// Captures a copy of `source_` to `target_`.
  void capture_copy(const CaptureOptions& options = {}) {
    const StreamGuard guard(stream_);
    graph_.capture_begin(options);
    target_.copy_(source_, Blocking::no);
    graph_.capture_end();
  }
  void replay() {
    const StreamGuard guard(stream_);
    graph_.replay();
    stream_.synchronize();
  }

  Stream stream_{0};
  Tensor source_ = graph_numbers(1);
  Tensor target_ = graph_numbers(0);
  CUDAGraph graph_;
};

TEST_F(CUDAGraphs, AreReplayedOnTheCurrentStream) {
  capture_copy();
  EXPECT_TRUE(all_are(target_, 0));
  for (const std::int32_t value : {1, 2, 3}) {
    source_.fill_(value);
    synchronize(0);
    replay();
    EXPECT_TRUE(all_are(target_, value));
  }
}

TEST_F(CUDAGraphs, SayWhetherTheCurrentStreamIsBeingCaptured) {
  EXPECT_FALSE(is_current_stream_capturing());
  const StreamGuard guard(stream_);
  EXPECT_FALSE(is_current_stream_capturing());
  graph_.capture_begin();
  EXPECT_TRUE(is_current_stream_capturing());
  {
    const StreamGuard other{Stream(0)};
    EXPECT_FALSE(is_current_stream_capturing());
  }
  target_.fill_(1);
  graph_.capture_end();
  EXPECT_FALSE(is_current_stream_capturing());
}

TEST_F(CUDAGraphs, AreCapturedAnewAfterAReset) {
  const StreamGuard guard(stream_);
  capture_copy();
  EXPECT_TRUE(refuses([&] { graph_.capture_begin(); }, ErrorCode::invalid_argument,
                      {"CUDAGraph::capture_begin", "holds a capture", "reset"}));
  graph_.reset();
  EXPECT_TRUE(refuses([&] { graph_.replay(); }, ErrorCode::invalid_argument, {"replay", "holds nothing"}));
  EXPECT_TRUE(refuses([&] { (void)graph_.pool(); }, ErrorCode::invalid_argument, {"pool", "holds nothing"}));
  graph_.capture_begin();
  target_.fill_(5);
  graph_.capture_end();
  replay();
  EXPECT_TRUE(all_are(target_, 5));
}

TEST_F(CUDAGraphs, RefuseCallsOutOfTurn) {
  EXPECT_TRUE(refuses([&] { graph_.capture_end(); }, ErrorCode::invalid_argument,
                      {"CUDAGraph::capture_end", "not being captured"}));
  EXPECT_TRUE(refuses([&] { graph_.capture_begin(); }, ErrorCode::invalid_argument,
                      {"CUDAGraph::capture_begin", "default stream of device 0"}));
  const StreamGuard guard(stream_);
  graph_.capture_begin();
  EXPECT_TRUE(refuses([&] { graph_.capture_begin(); }, ErrorCode::invalid_argument, {"already"}));
  EXPECT_TRUE(refuses([&] { graph_.reset(); }, ErrorCode::invalid_argument, {"reset", "being captured"}));
  std::thread([&] {
    EXPECT_TRUE(refuses([&] { graph_.capture_end(); }, ErrorCode::unsupported, {"another thread"}));
  }).join();
  target_.fill_(2);
  graph_.capture_end();
  replay();
  EXPECT_TRUE(all_are(target_, 2));
}

TEST_F(CUDAGraphs, RefuseWorkThatWaitsAndGoOnAfterwards) {
  const StreamGuard guard(stream_);
  graph_.capture_begin();
  EXPECT_TRUE(refuses([&] { stream_.synchronize(); }, ErrorCode::unsupported, {"captur"}));
  EXPECT_TRUE(refuses([&] { graph_.capture_end(); }, ErrorCode::unsupported, {}));
  EXPECT_FALSE(is_current_stream_capturing());
  capture_copy();
  replay();
  EXPECT_TRUE(all_are(target_, 1));
}

TEST_F(CUDAGraphs, AreGivenUpWhenTheyAreDestroyedMeanwhile) {
  const StreamGuard guard(stream_);
  {
    CUDAGraph short_lived;
    short_lived.capture_begin();
    target_.fill_(9);
  }
  EXPECT_FALSE(is_current_stream_capturing());
  stream_.synchronize();
  EXPECT_TRUE(all_are(target_, 0));
}

TEST_F(CUDAGraphs, HaveErrorModes) {
  for (const CaptureErrorMode mode :
       {CaptureErrorMode::global, CaptureErrorMode::thread, CaptureErrorMode::relaxed}) {
    const StreamGuard guard(stream_);
    graph_.reset();
    graph_.capture_begin({.error_mode = mode});
    std::thread([] {  // the library's own calls disturb nobody
      const Tensor made = graph_numbers(3);
      const Stream other(0);
      const StreamGuard on_other(other);
      graph_numbers(4).fill_(5);
    })
        .join();
    target_.copy_(source_, Blocking::no);
    graph_.capture_end();
    replay();
    EXPECT_TRUE(all_are(target_, 1));
  }
}

TEST_F(CUDAGraphs, ShareAPoolByItsHandle) {
  const GraphPoolHandle pool = graph_pool_handle();
  EXPECT_NE(pool.id(), 0U);
  EXPECT_FALSE(GraphPoolHandle().defined());
  EXPECT_EQ(GraphPoolHandle().id(), 0U);
  empty_cache();
  const std::size_t reserved = memory_reserved(0);
  const StreamGuard guard(stream_);
  std::vector<const void*> addresses;
  CUDAGraph graphs[3];
  for (CUDAGraph& graph : graphs) {
    graph.capture_begin({.pool = pool});
    EXPECT_EQ(graph.pool(), pool);
    const Tensor made = graph_numbers(7);
    target_.copy_(made, Blocking::no);
    addresses.push_back(made.data());
    graph.capture_end();
    EXPECT_EQ(graph.pool(), pool);
  }
  EXPECT_EQ(addresses, std::vector<const void*>(3, addresses.front())) << "what one let go of, the next uses";
  EXPECT_EQ(memory_reserved(0), reserved + (std::size_t{2} << 20));
  capture_copy();
  EXPECT_NE(graph_.pool(), pool);
  EXPECT_NE(graph_.pool().id(), pool.id());
  for (CUDAGraph& graph : graphs) {
    target_.fill_(0);
    graph.replay();
    stream_.synchronize();
    EXPECT_TRUE(all_are(target_, 7));
  }
}

TEST_F(CUDAGraphs, ShareAPoolAlsoWhereNobodySaysWhichStream) {
  constexpr std::int64_t floats = std::int64_t{8} << 20;
  CUDAGraph first;
  CUDAGraph second;
  const auto capture = [&](CUDAGraph& graph, const GraphPoolHandle& pool) {
    const GraphGuard guard(graph, {.pool = pool});
    full({floats}, 1, {.device = 0}).fill_(2);
  };
  capture(first, {});
  const std::size_t reserved = memory_reserved(0);
  capture(second, first.pool());
  EXPECT_EQ(second.pool(), first.pool());
  EXPECT_EQ(memory_reserved(0), reserved) << "what one let go of, the next uses";
}

TEST_F(CUDAGraphs, KeepASharedPoolAsLongAsOneOfThemLives) {
  const StreamGuard guard(stream_);
  CUDAGraph first;
  first.capture_begin();
  target_.copy_(graph_numbers(7), Blocking::no);
  first.capture_end();
  const std::uint64_t id = first.pool().id();
  graph_.capture_begin({.pool = first.pool()});
  target_.copy_(graph_numbers(8), Blocking::no);
  graph_.capture_end();
  const auto segments = [id] {
    return std::ranges::count_if(memory_snapshot(), [id](const auto& s) { return s.graph_pool == id; });
  };
  first.reset();
  synchronize(0);
  EXPECT_GT(segments(), 0);
  const Tensor victim = graph_numbers(1);
  replay();
  EXPECT_TRUE(all_are(victim, 1));
  EXPECT_TRUE(all_are(target_, 8));
  graph_.reset();
  synchronize(0);
  EXPECT_EQ(segments(), 0);
}

TEST_F(CUDAGraphs, TakeTensorsOfOneAnotherWhateverTheirPools) {
  const StreamGuard guard(stream_);
  CUDAGraph first;
  first.capture_begin();
  Tensor made = graph_numbers(7);
  first.capture_end();
  const void* const address = made.data();
  graph_.capture_begin();
  target_.copy_(made, Blocking::no);
  made = Tensor();  // the graph keeps it
  graph_.capture_end();
  EXPECT_NE(graph_.pool(), first.pool());
  for (int round = 0; round < 2; ++round) {
    target_.fill_(0);
    first.replay();
    graph_.replay();
    stream_.synchronize();
    EXPECT_TRUE(all_are(target_, 7));
  }
  // Also from who captures with the first one's pool.
  CUDAGraph third;
  third.capture_begin({.pool = first.pool()});
  EXPECT_NE(graph_numbers(8).data(), address);
  third.capture_end();
}

TEST_F(CUDAGraphs, RefuseAPoolThatAnotherCaptureUses) {
  const GraphPoolHandle pool = graph_pool_handle();
  const StreamGuard guard(stream_);
  graph_.capture_begin({.pool = pool});
  {
    const StreamGuard other{Stream(0)};
    CUDAGraph second;
    EXPECT_TRUE(refuses([&] { second.capture_begin({.pool = pool}); }, ErrorCode::invalid_argument,
                        {"CUDAGraph::capture_begin", "pool", "another capture"}));
  }
  target_.fill_(1);
  graph_.capture_end();
}

TEST(CUDAGraphPools, AreRefusedOnceTheirDevicesAreGone) {
  if (!test::on_virtual_devices()) GTEST_SKIP() << "GPUs are not replaced";
  const GraphPoolHandle pool = graph_pool_handle();
  virtual_devices::start(virtual_devices::VirtualMachine::from_environment());
  const StreamGuard guard{Stream(0)};
  CUDAGraph graph;
  EXPECT_TRUE(refuses([&] { graph.capture_begin({.pool = pool}); }, ErrorCode::invalid_argument,
                      {"CUDAGraph::capture_begin", "replaced"}));
}

TEST_F(CUDAGraphs, DrawNewNumbersAtEachReplay) {
  const Tensor random = empty({length}, {.device = Device(0)});
  const StreamGuard guard(stream_);
  graph_.capture_begin();
  uniform_(random);
  graph_.capture_end();
  manual_seed_all(5);
  replay();
  const auto first = random.to_vector<float>();
  replay();
  EXPECT_NE(random.to_vector<float>(), first);
  manual_seed_all(5);
  uniform_(random);
  EXPECT_EQ(random.to_vector<float>(), first);
}

TEST_F(CUDAGraphs, AreDescribedInAFile) {
  const std::string path =
      (std::filesystem::temp_directory_path() / ("tutti-graph-" + std::to_string(getpid()) + ".dot"))
          .string();
  EXPECT_TRUE(refuses([&] { graph_.debug_dump(path); }, ErrorCode::invalid_argument, {"holds nothing"}));
  capture_copy();
  EXPECT_TRUE(refuses([&] { graph_.debug_dump(path); }, ErrorCode::invalid_argument, {"enable_debug_mode"}));
  graph_.reset();
  graph_.enable_debug_mode();
  capture_copy();
  EXPECT_TRUE(refuses([&] { graph_.debug_dump("/nowhere/at/all"); }, ErrorCode::invalid_argument,
                      {"/nowhere/at/all"}));
  const std::string link = path + ".link";
  std::filesystem::create_symlink(path, link);
  graph_.debug_dump(link);
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  std::filesystem::remove(link);
  std::filesystem::remove(path);
  EXPECT_EQ(text.str().find("digraph"), 0U) << text.str();
}

TEST_F(CUDAGraphs, AreCapturedByAGuard) {
  const Stream before = current_stream(0);
  {
    const GraphGuard guard(graph_);
    EXPECT_TRUE(is_current_stream_capturing());
    EXPECT_NE(current_stream(0), before);
    target_.copy_(source_, Blocking::no);
  }
  EXPECT_EQ(current_stream(0), before);
  EXPECT_TRUE(all_are(target_, 0));
  replay();
  EXPECT_TRUE(all_are(target_, 1));

  graph_.reset();
  {
    GraphGuard guard(graph_, {.pool = graph_pool_handle(), .stream = stream_});
    EXPECT_EQ(current_stream(0), stream_);
    target_.fill_(6);
    guard.end();
    EXPECT_FALSE(is_current_stream_capturing());
  }
  replay();
  EXPECT_TRUE(all_are(target_, 6));
}

/// Who waits for a device makes all captures there invalid.
TEST_F(CUDAGraphs, AreNotDisturbedByGuardsAndEmptiedCachesOfOtherThreads) {
  static_cast<void>(empty({1 << 22}, {.device = 0}));  // cached afterwards
  {
    const GraphGuard guard(graph_, {.stream = stream_});
    target_.copy_(source_, Blocking::no);
    std::thread other([&] {
      empty_cache();
      CUDAGraph another;
      const Tensor made = empty({length}, {.dtype = DType::int32, .device = 0});
      {
        const GraphGuard its_guard(another);
        made.fill_(8);
      }
      another.replay();
      empty_cache();
    });
    other.join();
  }
  replay();
  EXPECT_TRUE(all_are(target_, 1));
}

TEST_F(CUDAGraphs, SayInTheEndWhyAGuardCouldNotCaptureThem) {
  {
    const GraphGuard guard(graph_, {.stream = stream_});
    EXPECT_TRUE(refuses([&] { stream_.synchronize(); }, ErrorCode::unsupported, {}));
  }
  EXPECT_TRUE(
      refuses([&] { graph_.replay(); }, ErrorCode::invalid_argument, {"replay", "the capture has failed"}));
  {
    GraphGuard guard(graph_, {.stream = stream_});
    EXPECT_TRUE(refuses([&] { stream_.synchronize(); }, ErrorCode::unsupported, {}));
    EXPECT_TRUE(refuses([&] { guard.end(); }, ErrorCode::unsupported, {}));
  }
  EXPECT_THROW(
      {
        const GraphGuard guard(graph_, {.stream = stream_});
        target_.fill_(3);
        throw std::runtime_error("no");
      },
      std::runtime_error);
  EXPECT_TRUE(refuses([&] { graph_.replay(); }, ErrorCode::invalid_argument, {"replay", "holds nothing"}));
  EXPECT_TRUE(all_are(target_, 0));
  capture_copy();
  replay();
  EXPECT_TRUE(all_are(target_, 1));
}

}  // namespace
}  // namespace tutti
