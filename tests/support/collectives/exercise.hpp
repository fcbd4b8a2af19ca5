// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "support/collectives/collective_test.hpp"
#include "support/values/host_array.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/collectives.hpp"
#include "tutti/persistent.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <tuple>
#include <vector>

namespace tutti::test {

inline constexpr CollectiveForm all_collectives[] = {
    Collective::broadcast, coalesced(Collective::broadcast),
    Collective::reduce,    coalesced(Collective::reduce),
    Collective::scatter,   Collective::gather,
};

struct Slot {
  Sizes sizes;
  Device device;
};
using Tensors = std::span<const Tensor>;

/// One collective with fixed shapes and devices, seen uniformly: flat lists of inputs and outputs, every
/// output a copy (none is the input itself, or a view of it), and a model of the outputs' values. Properties
/// that all collectives share (stream order, faults, persistence, threads) are tested once, with this class.
struct Exercise {
  CollectiveForm form = Collective::broadcast;
  std::string function;  ///< that `write` and `make` call
  DType dtype = DType::float32;
  std::vector<Slot> inputs;
  std::vector<Slot> outputs;
  /// Calls the form with given outputs.
  std::function<void(Tensors inputs, Tensors outputs, const CollectiveOptions&)> write;
  /// Calls the form that makes its outputs.
  std::function<std::vector<Tensor>(Tensors inputs, const CollectiveOptions&)> make;
  /// Makes the persistent form.
  std::function<PersistentCollective(Tensors inputs, Tensors outputs, const CollectiveOptions&)> bind;
  std::function<std::vector<HostArray>(std::span<const HostArray> inputs)> expect;

  /// Returns inputs for one run.
  [[nodiscard]] std::vector<HostArray> values(std::uint64_t seed) const;
};

/// Makes an exercise on `devices`, at least two: the first is the root. Tensors have `rows` rows of three.
/// Without an operation, `reduce_add` and `reduce_add_coalesced` make the reductions.
[[nodiscard]] Exercise make_exercise(CollectiveForm form, const std::vector<Device>& devices,
                                     std::int64_t rows, DType dtype = DType::float32,
                                     const std::optional<ReduceOp>& op = std::nullopt);

/// Makes contiguous tensors that hold `values` in the inputs' places.
[[nodiscard]] std::vector<Tensor> make_inputs(const Exercise& exercise, std::span<const HostArray> values);
[[nodiscard]] std::vector<TestTensor> make_poisoned_outputs(const Exercise& exercise);
/// Checks that every output is where it belongs and holds what it should.
[[nodiscard]] testing::AssertionResult all_hold(const Exercise& exercise, Tensors outputs,
                                                std::span<const HostArray> expected);
[[nodiscard]] testing::AssertionResult all_hold(const std::vector<TestTensor>& outputs,
                                                std::span<const HostArray> expected);

/// Tests the promises that all collectives share: one suite, once for each collective and transport.
class EveryCollective : public testing::TestWithParam<std::tuple<CollectiveForm, TransportKind>> {
 protected:
  void SetUp() override;
  /// Checks that all devices are idle and no queued work has failed.
  void TearDown() override;

  [[nodiscard]] static CollectiveForm collective() { return std::get<0>(GetParam()); }
  [[nodiscard]] static TransportKind transport() { return std::get<1>(GetParam()); }
  [[nodiscard]] static std::vector<Tensor> make(const Exercise& exercise, Tensors inputs);
  static void write(const Exercise& exercise, Tensors inputs, Tensors outputs);
};

struct CollectiveAndTransportName {
  std::string operator()(
      const testing::TestParamInfo<std::tuple<CollectiveForm, TransportKind>>& parameters) const;
};

/// Instantiates a suite derived from EveryCollective.
#define TUTTI_FOR_EVERY_COLLECTIVE(suite)                                                               \
  INSTANTIATE_TEST_SUITE_P(Collectives, suite,                                                          \
                           testing::Combine(testing::ValuesIn(::tutti::test::all_collectives),          \
                                            testing::ValuesIn(::tutti::test::transports_under_test())), \
                           ::tutti::test::CollectiveAndTransportName{})

}  // namespace tutti::test
