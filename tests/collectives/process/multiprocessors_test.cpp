// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/collective_test.hpp"
#include "support/collectives/compiled_reduction.hpp"
#include "support/collectives/exercise.hpp"
#include "support/errors.hpp"
#include "tutti/communicator.hpp"

#include <cstdint>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Calls whose kernels may hold few of a device's multiprocessors, or none.
namespace tutti::test {
namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

class Multiprocessors : public testing::TestWithParam<CollectiveForm> {
 protected:
  void SetUp() override {
    if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  }
  [[nodiscard]] static bool sums() { return GetParam().collective == Collective::reduce; }
  static void expect_right(const CollectiveOptions& options) {
    for (const std::int64_t rows : {1, 30'000}) {
      const Exercise exercise = make_exercise(GetParam(), first_devices(), rows);
      const std::vector<HostArray> values = exercise.values(static_cast<std::uint64_t>(rows));
      const std::vector<Tensor> inputs = make_inputs(exercise, values);
      const std::vector<HostArray> expected = exercise.expect(values);
      EXPECT_TRUE(all_hold(exercise, exercise.make(inputs, options), expected)) << rows;
      const std::vector<TestTensor> outputs = make_poisoned_outputs(exercise);
      const std::vector<Tensor> out = tensors_of(outputs);
      exercise.write(inputs, out, options);
      EXPECT_TRUE(all_hold(outputs, expected)) << rows;
      PersistentCollective bound = exercise.bind(inputs, out, options);
      bound.launch();
      synchronize_all();
      EXPECT_TRUE(all_hold(outputs, expected)) << rows;
    }
  }
};
INSTANTIATE_TEST_SUITE_P(Collectives, Multiprocessors, testing::ValuesIn(all_collectives),
                         [](const auto& parameters) { return std::string(name_of(parameters.param)); });

TEST_P(Multiprocessors, MayBeFew) {
  for (const int most : {1, 3}) {
    expect_right(
        {.transport = most == 1 ? TransportKind::automatic : TransportKind::staged, .multiprocessors = most});
    const std::string text = explain(
        {.collective = GetParam().collective, .bytes = 1 << 16, .options = {.multiprocessors = most}});
    const std::string line = text.substr(text.find("multiprocessors: "));
    EXPECT_TRUE(has(line, "at most " + std::to_string(most)) || line.starts_with("multiprocessors: none"))
        << text;
  }
}

TEST_P(Multiprocessors, MayBeNoneWhereNothingIsAddedUp) {
  const CollectiveOptions options{.multiprocessors = 0};
  const auto explained = [&](TransportKind transport) {
    return explain({.collective = GetParam().collective,
                    .bytes = 1 << 16,
                    .options = {.transport = transport, .multiprocessors = 0}});
  };
  if (sums()) {
    const Exercise exercise = make_exercise(GetParam(), first_devices(2), 10);
    const std::vector<Tensor> inputs = make_inputs(exercise, exercise.values(1));
    EXPECT_TRUE(refuses([&] { static_cast<void>(exercise.make(inputs, options)); }, ErrorCode::unsupported,
                        {exercise.function, "options.multiprocessors is 0", "sums are made by kernels"}));
    return;
  }
  expect_right(options);
  for (const TransportKind transport : {TransportKind::automatic, TransportKind::staged}) {
    const std::string text = explained(transport);
    EXPECT_TRUE(has(text, "\nmultiprocessors: none between devices\n")) << text;
    EXPECT_FALSE(has(text, "kernel")) << text;
  }
}

TEST_P(Multiprocessors, AreNotBoundedByNcclNorFewerThanNone) {
  const Exercise exercise = make_exercise(GetParam(), first_devices(2), 10);
  const std::vector<Tensor> inputs = make_inputs(exercise, exercise.values(1));
  const auto calling = [&](const CollectiveOptions& options) {
    return [&] { static_cast<void>(exercise.make(inputs, options)); };
  };
  EXPECT_TRUE(refuses(calling({.multiprocessors = -1}), ErrorCode::invalid_argument,
                      {"options.multiprocessors is -1", "expected at least 0"}));
  EXPECT_TRUE(refuses(calling({.transport = TransportKind::nccl, .multiprocessors = 4}),
                      ErrorCode::unsupported, {"nccl", "its multiprocessors cannot be limited"}));
}

/// What is copied on within a device follows what has been copied there.
TEST(MultiprocessorsOfCopies, MayBeNoneWhereADeviceHasSeveralOutputs) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  const std::vector<Device> all = first_devices();
  const Device last = all.back();
  const Device before = all[all.size() - 2];
  const std::vector<Device> places{last, last, before};
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const HostArray values = random_bits(DType::float32, {100'000}, seed);
    for (const Device source : {Device::host(), all.front()}) {
      const TestTensor tensor(values, source, Placement::contiguous,
                              source.is_host() ? HostMemory::pinned : HostMemory::pageable);
      const std::vector<Tensor> results = broadcast(tensor.tensor(), places, {.multiprocessors = 0});
      for (std::size_t i = 0; i < places.size(); ++i)
        EXPECT_TRUE(holds(results[i], places[i], values)) << seed;
    }
  }
}

TEST(MultiprocessorsOfCompiledOperations, CannotBeBounded) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  const std::vector<Tensor> inputs{ones({5}, {.device = 0}), ones({5}, {.device = 1})};
  EXPECT_TRUE(
      refuses([&] { static_cast<void>(reduce(inputs, compiled_difference(), {}, {.multiprocessors = 4})); },
              ErrorCode::unsupported, {"options.multiprocessors is 4", "compiled"}));
  Communicator communicator({.devices = first_devices(2), .multiprocessors = 4});
  EXPECT_TRUE(refuses([&] { communicator.all_reduce(inputs, inputs, compiled_difference()); },
                      ErrorCode::unsupported, {"options.multiprocessors is 4", "compiled"}));
}

TEST(MultiprocessorsOfACommunicator, MayBeFew) {
  if (device_count() < 2) GTEST_SKIP() << "needs two devices";
  for (const int most : {1, 3}) {
    Communicator communicator({.devices = first_devices(2), .multiprocessors = most});
    for (const std::int64_t count : {1, 10'000, 1'000'000}) {
      const TensorOptions first{.dtype = DType::int32, .device = 0};
      const TensorOptions second{.dtype = DType::int32, .device = 1};
      const std::vector<Tensor> tensors{full({count}, 3, first), full({count}, 4, second)};
      communicator.all_reduce_add(tensors, tensors);
      EXPECT_TRUE(holds(tensors[0], 7) && holds(tensors[1], 7)) << count;
      const std::vector<Tensor> wholes{empty({2 * count}, first), empty({2 * count}, second)};
      communicator.all_gather(tensors, wholes);
      EXPECT_TRUE(holds(wholes[0], 7) && holds(wholes[1], 7)) << count;
    }
    const std::string text = communicator.explain({.collective = Collective::all_reduce, .bytes = 1 << 16});
    EXPECT_TRUE(has(text, "at most " + std::to_string(most))) << text;
    const std::optional<Communicator> part = communicator.split(0);
    EXPECT_TRUE(has(part->explain({.collective = Collective::all_gather, .bytes = 1 << 16}),
                    "at most " + std::to_string(most)));
  }
}

TEST(MultiprocessorsOfACommunicator, AreOneAtLeast) {
  EXPECT_TRUE(refuses([] { const Communicator communicator({.multiprocessors = 0}); },
                      ErrorCode::invalid_argument,
                      {"Communicator", "options.multiprocessors is 0", "expected at least 1"}));
}

}  // namespace
}  // namespace tutti::test
