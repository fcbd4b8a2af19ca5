// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/clip_model.hpp"
#include "support/collectives/stream_order.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/data_parallel.hpp"
#include "tutti/graph.hpp"
#include "tutti/sharded_optimizer.hpp"

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Clipping by the global norm, in one process. (Between processes: ranks/training/clipping_ranks_test.cpp.)
namespace tutti::test {
namespace {

using Lists = std::vector<std::vector<Tensor>>;

constexpr double infinity = std::numeric_limits<double>::infinity();
constexpr double nan = std::numeric_limits<double>::quiet_NaN();

std::uint64_t bits(double value) {
  return std::bit_cast<std::uint64_t>(value);
}

/// Gradients that all members hold, as if they had been reduced already.
class ClippingTest : public testing::Test {
 protected:
  /// The same values on all devices; `placement` is that of all tensors.
  [[nodiscard]] Lists make(const std::vector<HostArray>& values,
                           Placement placement = Placement::contiguous) const {
    Lists lists;
    for (const Device device : communicator_.devices()) {
      lists.emplace_back();
      for (const HostArray& each : values)
        lists.back().push_back(TestTensor(each, device, placement).tensor());
    }
    return lists;
  }
  [[nodiscard]] static std::vector<HostArray> numbers(DType dtype, const std::vector<Sizes>& sizes) {
    std::vector<HostArray> values;
    for (const Sizes& each : sizes) values.push_back(random_numbers(dtype, each, values.size() + 1));
    return values;
  }
  [[nodiscard]] int members() const { return communicator_.member_count(); }
  void expect(const Lists& lists, const std::vector<HostArray>& expected) const {
    for (std::size_t local = 0; local < lists.size(); ++local) {
      for (std::size_t t = 0; t < expected.size(); ++t)
        EXPECT_TRUE(holds(lists[local][t], communicator_.devices()[local], expected[t])) << "tensor " << t;
    }
  }
  /// Clips to half the norm, and compares norm and gradients with the model.
  void expect_clipping(const std::vector<HostArray>& values, Placement placement = Placement::contiguous) {
    const Lists lists = make(values, placement);
    GradientBuckets buckets(communicator_, lists);
    const double norm = norm_of(values, members());
    const Tensor found = buckets.clip_norm({.max_norm = norm / 2});
    EXPECT_EQ(found.device(), communicator_.devices()[0]);
    EXPECT_EQ(found.dim(), 0);
    EXPECT_EQ(bits(found.item<double>()), bits(norm));
    std::vector<HostArray> expected;
    for (const HostArray& each : values) expected.push_back(clipped(each, norm, norm / 2));
    expect(lists, expected);
  }

  Communicator communicator_{
      CommunicatorOptions{.devices = first_devices(3), .determinism = Determinism::bitwise}};
  PooledStreams pooled_;
};

class ClippedTypes : public ClippingTest, public testing::WithParamInterface<DType> {};

TEST_P(ClippedTypes, AreMeasuredAndScaledAsDefined) {
  expect_clipping(numbers(GetParam(), {{40000}, {7, 33}, {0, 4}, {1}, {}, {5, 13000}}));
}

TEST_P(ClippedTypes, MayBeAnywhereInMemory) {
  for (const Placement placement : {Placement::misaligned, Placement::gapped, Placement::transposed}) {
    SCOPED_TRACE(name_of(placement));
    expect_clipping(numbers(GetParam(), {{40, 700}, {7, 33}, {3, 2}}), placement);
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, ClippedTypes,
                         testing::Values(DType::float16, DType::bfloat16, DType::float32, DType::float64,
                                         DType::float8_e4m3, DType::float8_e5m2, DType::complex64,
                                         DType::complex128),
                         [](const auto& parameter) { return std::string(name_of(parameter.param)); });

TEST_F(ClippingTest, TakesManyGradientsOfSeveralTypes) {
  std::vector<HostArray> values;
  for (std::size_t i = 0; i < 700; ++i) {
    const DType dtype = i % 3 == 0 ? DType::bfloat16 : i % 3 == 1 ? DType::float32 : DType::complex64;
    values.push_back(random_numbers(dtype, {static_cast<std::int64_t>(i % 40)}, i));
  }
  expect_clipping(values);
}

TEST_F(ClippingTest, LeavesGradientsOfASmallNorm) {
  const std::vector<HostArray> values = numbers(DType::float32, {{50000}, {3}});
  const Lists lists = make(values);
  GradientBuckets buckets(communicator_, lists);
  const double norm = norm_of(values, members());
  for (const double max_norm : {norm * 1.001, infinity}) {
    EXPECT_EQ(bits(buckets.clip_norm({.max_norm = max_norm}).item<double>()), bits(norm));
    expect(lists, values);
  }
}

TEST_F(ClippingTest, FollowsTheIteration) {
  Lists lists;
  for (const Device device : communicator_.devices())
    lists.push_back({zeros({1000}, {.device = device}), zeros({24}, {.device = device})});
  GradientBuckets buckets(communicator_, lists, {.bucket_bytes = 64, .operation = ReduceOp::sum});
  for (std::size_t local = 0; local < lists.size(); ++local) {
    for (const int index : {1, 0}) {
      lists[local][static_cast<std::size_t>(index)].fill_(static_cast<double>(local + 1));
      buckets.ready(static_cast<int>(local), index);
    }
  }
  EXPECT_TRUE(refuses([&] { buckets.clip_norm({}); }, ErrorCode::invalid_argument,
                      {"GradientBuckets::clip_norm", "have been reported", "expected synchronize before"}));
  buckets.synchronize();
  const Tensor norm = buckets.clip_norm({.max_norm = 1});
  const int n = members();
  const double sum = n * (n + 1) / 2.0;
  EXPECT_DOUBLE_EQ(norm.item<double>(), 32 * sum);
  for (const std::vector<Tensor>& list : lists) EXPECT_NEAR(list[1].to_vector<float>()[23], 1.0 / 32, 1e-7);
}

TEST_F(ClippingTest, HandlesInfinityAndNanAsTorchDoes) {
  for (const double special : {infinity, nan}) {
    const auto make_lists = [&] {
      Lists lists;
      for (const Device device : communicator_.devices()) {
        lists.push_back({ones({20000}, {.device = device}), ones({5}, {.device = device})});
        lists.back()[1].narrow(0, 2, 1).fill_(special);
      }
      return lists;
    };
    const Lists lists = make_lists();
    GradientBuckets buckets(communicator_, lists);
    const std::string shown = std::isnan(special) ? "nan" : "inf";
    EXPECT_TRUE(refuses([&] { buckets.clip_norm({.error_if_nonfinite = true}); }, ErrorCode::invalid_argument,
                        {"GradientBuckets::clip_norm", "the norm of the gradients is " + shown}));
    EXPECT_EQ(lists[0][0].to_vector<float>(), std::vector<float>(20000, 1)) << "untouched";
    const double norm = buckets.clip_norm({}).item<double>();
    EXPECT_EQ(std::isnan(norm), std::isnan(special));
    EXPECT_TRUE(std::isnan(norm) || norm == infinity);
    for (const std::vector<Tensor>& list : lists) {
      const std::vector<float> found = list[1].to_vector<float>();
      EXPECT_TRUE(std::isnan(found[2]));
      EXPECT_EQ(std::isnan(found[0]), std::isnan(special)) << "finite elements become 0 if the norm is inf";
      EXPECT_TRUE(std::isnan(found[0]) || found[0] == 0);
    }
    EXPECT_FALSE(std::isfinite(buckets.clip_norm({.max_norm = infinity}).item<double>()));
  }
}

TEST_F(ClippingTest, CanBeCaptured) {
  const std::vector<HostArray> values = numbers(DType::float32, {{9000}, {70, 3}});
  const Lists lists = make(values, Placement::gapped);
  GradientBuckets buckets(communicator_, lists);
  buckets.clip_norm({.max_norm = infinity});  // the first time, kernels are loaded
  const double norm = norm_of(values, members());
  std::vector<Stream> streams;
  for (const Device device : communicator_.devices()) streams.push_back(current_stream(device));
  synchronize_all();
  Tensor found;
  const Graph graph = Graph::capture(streams, [&] {
    found = buckets.clip_norm({.max_norm = norm / 4});
    EXPECT_TRUE(refuses([&] { buckets.clip_norm({.error_if_nonfinite = true}); }, ErrorCode::unsupported,
                        {"GradientBuckets::clip_norm", "is being captured"}));
  });
  expect(lists, values);
  graph.launch(streams[0]);
  streams[0].synchronize();
  EXPECT_EQ(bits(found.item<double>()), bits(norm));
  expect(lists, {clipped(values[0], norm, norm / 4), clipped(values[1], norm, norm / 4)});
}

TEST_F(ClippingTest, RefusesWhatDoesNotFit) {
  GradientBuckets buckets(communicator_, make(numbers(DType::float32, {{5}})));
  std::vector<HostArray> mixed = numbers(DType::float32, {{5}, {6}});
  mixed.push_back(random_numbers(DType::int64, {2}, 3));
  GradientBuckets with_integers(communicator_, make(mixed));
  ShardedOptimizer optimizer(communicator_, make(numbers(DType::float32, {{5}})));
  const auto before = operations_enqueued();
  for (const double wrong : {-1.0, nan}) {
    EXPECT_TRUE(refuses([&] { buckets.clip_norm({.max_norm = wrong}); }, ErrorCode::invalid_argument,
                        {"GradientBuckets::clip_norm: clip.max_norm is ", "expected 0 or more"}));
    EXPECT_TRUE(refuses([&] { optimizer.step([](const ParameterShard&) {}, {.max_norm = wrong}); },
                        ErrorCode::invalid_argument, {"ShardedOptimizer::step: clip.max_norm is "}));
  }
  EXPECT_TRUE(refuses([&] { with_integers.clip_norm({}); }, ErrorCode::invalid_argument,
                      {"gradients[0][2] has element type int64, expected a floating-point or complex type"}));
  {
    const NoSyncGuard guard = buckets.no_sync();
    EXPECT_TRUE(refuses([&] { buckets.clip_norm({}); }, ErrorCode::invalid_argument, {"a no_sync is open"}));
  }
  EXPECT_EQ(operations_enqueued(), before);
}

TEST_F(ClippingTest, OfShardedGradientsComesBeforeTheUpdate) {
  const std::vector<HostArray> values = numbers(DType::float32, {{30000}, {17}});
  ShardedOptimizer optimizer(communicator_, make(values), {.operation = ReduceOp::max});
  const auto write = [&] {
    for (std::size_t local = 0; local < communicator_.devices().size(); ++local) {
      for (std::size_t t = 0; t < values.size(); ++t)
        optimizer.gradients(static_cast<int>(local))[t].copy_(
            make_tensor(values[t], communicator_.devices()[local]));
    }
  };
  write();
  std::vector<HostArray> parts;
  const std::int64_t length = optimizer.shards()[0].gradients.numel();
  for (int member = 0; member < members(); ++member)
    parts.push_back(slice(read(optimizer.flat_gradients(0)), 0, member * length, length));
  const double norm = norm_of_parts(parts);
  int updates = 0;
  const auto take_gradients = [&](const ParameterShard& shard) {
    shard.parameters.copy_(shard.gradients);
    ++updates;
  };
  const Tensor found = optimizer.step(take_gradients, {.max_norm = norm / 3});
  EXPECT_EQ(bits(found.item<double>()), bits(norm));
  EXPECT_EQ(updates, static_cast<int>(communicator_.devices().size()));
  for (std::size_t local = 0; local < communicator_.devices().size(); ++local) {
    for (std::size_t t = 0; t < values.size(); ++t) {
      EXPECT_TRUE(holds(optimizer.parameters(static_cast<int>(local))[t], communicator_.devices()[local],
                        clipped(values[t], norm, norm / 3)));
    }
  }
}

TEST_F(ClippingTest, OfShardedGradientsMayBeRefusedAndGoOn) {
  const std::vector<HostArray> values = numbers(DType::float32, {{40}});
  ShardedOptimizer optimizer(communicator_, make(values));
  const auto write = [&](double value) {
    for (int local = 0; local < static_cast<int>(communicator_.devices().size()); ++local)
      optimizer.gradients(local)[0].fill_(value);
  };
  const auto update = [](const ParameterShard& shard) { shard.parameters.copy_(shard.gradients); };
  write(infinity);
  EXPECT_TRUE(refuses([&] { optimizer.step(update, {.error_if_nonfinite = true}); },
                      ErrorCode::invalid_argument, {"ShardedOptimizer::step: the norm", "inf"}));
  EXPECT_TRUE(holds(optimizer.parameters(0)[0], communicator_.devices()[0], values[0])) << "no update";
  write(2);
  const double norm = optimizer.step(update, {.max_norm = 100, .error_if_nonfinite = true}).item<double>();
  EXPECT_NEAR(norm, std::sqrt(160), 1e-12);
  EXPECT_EQ(optimizer.parameters(0)[0].to_vector<float>(), std::vector<float>(40, 2));
}

TEST(ClippingOfOneMember, MakesNoCallOfTheCommunicator) {
  Communicator communicator({.devices = {Device(0)}});
  const std::vector<Tensor> gradients{full({4}, 3, {.device = 0}), full({1}, 8, {.device = 0})};
  GradientBuckets buckets(communicator, gradients);
  EXPECT_EQ(buckets.clip_norm({.max_norm = 5}).item<double>(), 10);
  EXPECT_NEAR(gradients[0].to_vector<float>()[3], 1.5F, 1e-6);
  EXPECT_NEAR(gradients[1].to_vector<float>()[0], 4.0F, 1e-5);
}

}  // namespace
}  // namespace tutti::test
