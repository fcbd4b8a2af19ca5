// SPDX-License-Identifier: Apache-2.0
#include "tutti/graphed_callables.hpp"

#include "support/errors.hpp"
#include "tutti/collectives.hpp"
#include "tutti/cuda_graph.hpp"
#include "tutti/memory.hpp"
#include "tutti/tensor.hpp"

#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::refuses;

Tensor sample(std::int32_t value, int device = 0) {
  return full({1000}, value, {.dtype = DType::int32, .device = Device(device)});
}

testing::AssertionResult consists_of(const Tensor& tensor, std::int32_t value) {
  const auto values = tensor.to_vector<std::int32_t>();
  if (values == std::vector<std::int32_t>(values.size(), value)) return testing::AssertionSuccess();
  return testing::AssertionFailure() << "holds " << values.front() << ", expected " << value;
}

class GraphedCallables : public testing::Test {
 protected:
  /// The sum of its inputs, and something of it made in between.
  static std::vector<Tensor> add(const std::vector<Tensor>& inputs) {
    const Tensor sum = reduce_add(inputs);
    Tensor copy = empty_like(sum);
    copy.copy_(sum);
    return {copy};
  }
};

TEST_F(GraphedCallables, ComputeWhatTheCallableDoes) {
  int calls = 0;
  const GraphedCallable graphed = make_graphed_callables(
      [&calls](const std::vector<Tensor>& inputs) {
        ++calls;
        return add(inputs);
      },
      {sample(1), sample(2)});
  EXPECT_EQ(calls, 4) << "three to warm up, and the capture";
  for (const std::int32_t value : {5, 6}) {
    const std::vector<Tensor> results = graphed({sample(value), sample(10)});
    ASSERT_EQ(results.size(), 1U);
    EXPECT_TRUE(consists_of(results[0], value + 10));
    EXPECT_EQ(results[0].data(), graphed.static_outputs()[0].data());
  }
  EXPECT_EQ(calls, 4);
  graphed.static_inputs()[0].fill_(100);
  EXPECT_TRUE(consists_of(graphed(graphed.static_inputs())[0], 110));
}

TEST_F(GraphedCallables, ShareAPoolAndRunOneAfterAnother) {
  const std::vector<Tensor> two{sample(1), sample(2)};
  const std::vector<GraphedCallable> layers = make_graphed_callables({add, add, add}, {two, two, two});
  ASSERT_EQ(layers.size(), 3U);
  EXPECT_EQ(layers[0].pool(), layers[2].pool());
  Tensor value = sample(1);
  const Tensor one = sample(1);
  for (const GraphedCallable& layer : layers) value = layer({value, one})[0];
  EXPECT_TRUE(consists_of(value, 4));
}

TEST_F(GraphedCallables, UseTheSameMemoryForWhatEachDrops) {
  const TensorFunction with_scratch = [](const std::vector<Tensor>& inputs) {
    full({4 << 20}, 3, {.device = 0}).fill_(4);
    return add(inputs);
  };
  const std::vector<Tensor> two{sample(1), sample(2)};
  const std::vector<GraphedCallable> graphed =
      make_graphed_callables({with_scratch, with_scratch, with_scratch}, {two, two, two});
  std::size_t large = 0;
  for (const MemorySegment& segment : memory_snapshot()) {
    if (segment.graph_pool == graphed[0].pool().id() && segment.pool == MemoryPool::large_pool)
      large += segment.bytes;
  }
  EXPECT_EQ(large, std::size_t{16} << 20);

  const std::size_t reserved = memory_reserved(0);
  const GraphedCallable later =
      make_graphed_callables(with_scratch, two, {.warmup_iterations = 0, .pool = graphed[0].pool()});
  EXPECT_LT(memory_reserved(0), reserved + (std::size_t{16} << 20)) << "and so do those that come later";
  EXPECT_TRUE(consists_of(later(two)[0], 3));
}

TEST_F(GraphedCallables, RefuseAPoolThatIsBeingUsed) {
  const std::vector<Tensor> two{sample(1), sample(2)};
  const GraphPoolHandle pool = graph_pool_handle();
  CUDAGraph other;
  const GraphGuard guard(other, {.pool = pool});
  int calls = 0;
  const TensorFunction counted = [&](const std::vector<Tensor>& inputs) {
    ++calls;
    return add(inputs);
  };
  EXPECT_TRUE(refuses([&] { static_cast<void>(make_graphed_callables(counted, two, {.pool = pool})); },
                      ErrorCode::invalid_argument, {"make_graphed_callables: pool", "another capture"}));
  EXPECT_EQ(calls, 0);
}

TEST_F(GraphedCallables, WorkOnSeveralDevices) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices, found " << device_count();
  const GraphedCallable graphed = make_graphed_callables(
      [](const std::vector<Tensor>& inputs) { return std::vector<Tensor>{reduce_add(inputs, Device(1))}; },
      {sample(1, 0), sample(2, 1)});
  for (const std::int32_t value : {3, 4})
    EXPECT_TRUE(consists_of(graphed({sample(value, 0), sample(10, 1)})[0], value + 10));
}

TEST_F(GraphedCallables, RefuseWhatIsUnlikeTheirSamples) {
  const GraphedCallable graphed = make_graphed_callables(add, {sample(1), sample(2)});
  const Tensor one = sample(1);
  EXPECT_TRUE(refuses([&] { graphed({one}); }, ErrorCode::invalid_argument, {"1 inputs", "expected 2"}));
  EXPECT_TRUE(refuses(
      [&] {
        graphed({one, one.narrow(0, 0, 5)});
      },
      ErrorCode::invalid_argument, {"inputs[1]", "[5]", "expected int32 of sizes [1000]"}));
  EXPECT_TRUE(refuses(
      [&] {
        graphed({one.to(DType::float32), one});
      },
      ErrorCode::invalid_argument, {"inputs[0]", "float32"}));
  EXPECT_TRUE(refuses([&] { graphed({one, Tensor()}); }, ErrorCode::invalid_argument, {"inputs[1]"}));
}

TEST_F(GraphedCallables, RefuseSamplesThatCannotBeCaptured) {
  using Samples = std::vector<std::vector<Tensor>>;
  const Tensor one = sample(1);
  EXPECT_TRUE(refuses(
      [&] {
        (void)make_graphed_callables(add, {one, Tensor()});
      },
      ErrorCode::invalid_argument, {"make_graphed_callables", "samples[0][1]"}));
  EXPECT_TRUE(refuses([&] { (void)make_graphed_callables(add, {one.to(Device::host())}); },
                      ErrorCode::invalid_argument, {"samples[0][0]", "host"}));
  EXPECT_TRUE(refuses([&] { (void)make_graphed_callables(add, std::vector<Tensor>{}); },
                      ErrorCode::invalid_argument, {"samples[0] is empty"}));
  EXPECT_TRUE(refuses(
      [&] {
        (void)make_graphed_callables({add}, Samples{{one}, {one}});
      },
      ErrorCode::invalid_argument, {"samples has 2 entries", "1 callables"}));
  EXPECT_TRUE(refuses([&] { (void)make_graphed_callables(TensorFunction(), {one}); },
                      ErrorCode::invalid_argument, {"callables[0] is empty"}));
  EXPECT_TRUE(refuses([&] { (void)make_graphed_callables(add, {one}, {.warmup_iterations = -1}); },
                      ErrorCode::invalid_argument, {"warmup_iterations is -1"}));
}

}  // namespace
}  // namespace tutti
