// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/collective_test.hpp"
#include "support/collectives/compiled_reduction.hpp"
#include "support/errors.hpp"
#include "support/values/number_formats.hpp"
#include "support/values/reference_sum.hpp"
#include "tutti/persistent.hpp"
#include "tutti/reduce_types.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>

namespace tutti::test {
namespace {

class Reduce : public CollectiveTest {
 protected:
  static std::vector<HostArray> random_inputs(DType dtype, const Sizes& sizes, std::size_t count) {
    std::vector<HostArray> arrays;
    for (std::size_t i = 0; i < count; ++i) arrays.push_back(random_numbers(dtype, sizes, test_seed() + i));
    return arrays;
  }

  /// Reduces `arrays`, of which number i is on devices[i], to `root` both ways and compares bit for bit.
  void check(const std::vector<HostArray>& arrays, const ReduceOp& op, const std::vector<Device>& devices,
             Device root) {
    SCOPED_TRACE(testing::Message() << name_of(op.kind()) << " of " << name_of(arrays.front().dtype));
    const HostArray expected = reference_reduction(arrays, op);
    std::vector<TestTensor> inputs;
    for (std::size_t i = 0; i < arrays.size(); ++i)
      inputs.emplace_back(arrays[i], devices[i % devices.size()], Placement::contiguous);
    const std::vector<Tensor> tensors = tensors_of(inputs);

    Tensor result;
    carry([&](const CollectiveOptions& options) { result = reduce(tensors, op, root, options); }, bitwise);
    EXPECT_TRUE(holds(result, root, expected));

    const TestTensor out = TestTensor::poisoned(expected.dtype, expected.sizes, root, Placement::contiguous);
    carry([&](const CollectiveOptions& options) { reduce(tensors, out, op, options); }, bitwise);
    EXPECT_TRUE(out.holds(expected));
    for (const TestTensor& input : inputs) EXPECT_TRUE(input.untouched());
  }

  static constexpr CollectiveOptions bitwise{.determinism = Determinism::bitwise};
};
TUTTI_FOR_EVERY_TRANSPORT(Reduce);

TEST_P(Reduce, DoesEveryOperationOfEveryElementType) {
  const std::vector<Device> devices = first_devices();
  for (const DType dtype : all_dtypes) {
    for (const ReduceOp& op : operations_of(dtype, devices.size())) {
      for (const Sizes& sizes : {Sizes{7, 33}, Sizes{0}, Sizes{1}, Sizes{13}, Sizes{1009}})
        check(random_inputs(dtype, sizes, devices.size()), op, devices, devices.back());
    }
    if (HasFailure()) return;
  }
}

TEST_P(Reduce, GoesThroughAnyNumberOfInputsInOrder) {
  const std::vector<Device> devices = first_devices();
  for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{9}, std::size_t{37}}) {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::int16}) {
      for (const ReduceOp& op : operations_of(dtype, count))
        check(random_inputs(dtype, {515}, count), op, devices, devices.front());
    }
  }
}

TEST_P(Reduce, DoesEverySize) {
  const std::vector<Device> devices = first_devices();
  for (const std::int64_t bytes : telling_sizes()) {
    SCOPED_TRACE(bytes);
    check(random_inputs(DType::float16, {bytes / 2}, devices.size()), ReduceOp::avg, devices,
          devices.front());
    if (bytes < 1 << 20)
      check(random_inputs(DType::int32, {bytes / 4}, devices.size()), ReduceOp::min, devices, devices.back());
    if (HasFailure()) return;
  }
}

TEST_P(Reduce, MinimumAndMaximumKeepNansAndTellZerosApart) {
  constexpr float nan = std::numeric_limits<float>::quiet_NaN();
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const std::vector<std::array<float, 2>> columns{{nan, 1.0F},      {1.0F, nan},   {nan, -nan},
                                                  {0.0F, -0.0F},    {-0.0F, 0.0F}, {-infinity, nan},
                                                  {infinity, 3.0F}, {-2.0F, -3.0F}};
  const auto arrays_of = [&]<class Real>(DType dtype, Real /*of*/) {
    std::vector<HostArray> arrays;
    for (std::size_t input = 0; input < 2; ++input) {
      HostArray array{dtype, {static_cast<std::int64_t>(columns.size())}, {}};
      array.bytes.resize(columns.size() * sizeof(Real));
      for (std::size_t c = 0; c < columns.size(); ++c) {
        const auto value = static_cast<Real>(columns[c][input]);
        std::memcpy(array.bytes.data() + c * sizeof(Real), &value, sizeof(Real));
      }
      arrays.push_back(array);
    }
    return arrays;
  };
  const std::vector<HostArray> arrays = arrays_of(DType::float32, 0.0F);
  const std::vector<Device> devices = first_devices();
  for (const ReduceKind kind : {ReduceKind::min, ReduceKind::max}) {
    check(arrays, kind, devices, devices.back());
    check(arrays_of(DType::float64, 0.0), kind, devices, devices.back());
    // Of so few bits all come, in all pairs that matter.
    for (const DType dtype : {DType::float8_e4m3, DType::float8_e5m2, DType::float16, DType::bfloat16}) {
      std::vector<HostArray> bits;
      for (std::uint64_t seed = 1; seed < 4; ++seed) bits.push_back(random_bits(dtype, {70'001}, seed));
      check(bits, kind, devices, devices.back());
    }
  }
  const Tensor least =
      reduce({make_tensor(arrays[0], devices.front()), make_tensor(arrays[1], devices.back())}, ReduceOp::min,
             devices.front());
  const auto values = least.to_vector<float>();
  EXPECT_EQ(std::bit_cast<std::uint32_t>(values[0]), 0x7fffffffU);
  EXPECT_TRUE(std::signbit(values[3]) && std::signbit(values[4]));
}

TEST_P(Reduce, NumbersAtTheEdgesGoByTheRules) {
  const std::vector<Device> devices = first_devices();
  for (const DType dtype : all_dtypes) {
    if (!format_of(dtype).is_floating()) continue;
    for (const ReduceOp& op : operations_of(dtype, devices.size())) {
      for (const std::int64_t count : {301, 5'003}) {
        std::vector<HostArray> arrays;
        for (std::size_t i = 0; i < devices.size(); ++i)
          arrays.push_back(special_numbers(dtype, {count}, test_seed() + i));
        check(arrays, op, devices, devices.back());
      }
    }
    if (HasFailure()) return;
  }
}

TEST_P(Reduce, ListsGoAsOneCallInPlaceToo) {
  const std::vector<Device> devices = first_devices();
  const std::vector<std::pair<DType, Sizes>> shapes{
      {DType::float32, {3, 4}}, {DType::float64, {0}}, {DType::int8, {999}}, {DType::bfloat16, {70'001}}};
  for (const ReduceOp& op : {ReduceOp(ReduceOp::max), ReduceOp(ReduceOp::avg), ReduceOp::premul_sum(2.0)}) {
    std::vector<std::vector<HostArray>> arrays;
    std::vector<std::vector<TestTensor>> rows(devices.size());
    std::vector<std::vector<Tensor>> lists(devices.size());
    for (const auto& [dtype, sizes] : shapes) {
      arrays.push_back(random_inputs(dtype, sizes, devices.size()));
      for (std::size_t d = 0; d < devices.size(); ++d) {
        rows[d].emplace_back(arrays.back()[d], devices[d], Placement::contiguous);
        lists[d].push_back(rows[d].back().tensor());
      }
    }
    std::vector<Tensor> results;
    carry(
        [&](const CollectiveOptions& options) {
          results = reduce_coalesced(lists, op, devices.back(), default_buffer_size, options);
        },
        bitwise);
    carry(
        [&](const CollectiveOptions& options) {
          reduce_coalesced(lists, lists.front(), op, default_buffer_size, options);
        },
        bitwise);
    for (std::size_t t = 0; t < shapes.size(); ++t) {
      const HostArray expected = reference_reduction(arrays[t], op);
      EXPECT_TRUE(holds(results[t], devices.back(), expected)) << t;
      EXPECT_TRUE(rows.front()[t].holds(expected)) << t;
    }
  }
}

TEST_P(Reduce, PersistentFormsDoWhatCallsDo) {
  const std::vector<Device> devices = first_devices();
  const std::vector<HostArray> arrays = random_inputs(DType::float32, {10'007}, devices.size());
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < devices.size(); ++i) inputs.push_back(make_tensor(arrays[i], devices[i]));
  const TestTensor out =
      TestTensor::poisoned(DType::float32, {10'007}, devices.front(), Placement::contiguous);
  for (std::size_t i = 0; i < devices.size(); ++i) current_stream(devices[i].index()).synchronize();
  for (const ReduceOp& op : operations_of(DType::float32, devices.size())) {
    std::optional<PersistentCollective> bound;
    carry(
        [&](const CollectiveOptions& options) { bound.emplace(persistent_reduce(inputs, out, op, options)); },
        bitwise);
    bound->launch();
    bound->launch();
    EXPECT_TRUE(out.holds(reference_reduction(arrays, op))) << name_of(op.kind());
  }
}

TEST_P(Reduce, ByACompiledOperationGoesThroughInputsInOrder) {
  if (!can_compile()) GTEST_SKIP() << "nothing can be compiled here";
  const ReduceOp& op = compiled_difference();
  const std::vector<Device> devices = first_devices();
  for (const DType dtype : all_dtypes) {
    if (has_operation(dtype, ReduceKind::compiled))
      check(random_inputs(dtype, {7, 33}, devices.size()), op, devices, devices.back());
    if (HasFailure()) return;
  }
  for (const std::size_t count : {std::size_t{1}, std::size_t{9}, std::size_t{70}})
    check(random_inputs(DType::int32, {515}, count), op, devices, devices.front());
  for (const std::int64_t bytes : telling_sizes()) {
    if (bytes > std::int64_t{4} << 20) continue;  // split and in chunks before that
    SCOPED_TRACE(bytes);
    check(random_inputs(DType::bfloat16, {bytes / 2}, devices.size()), op, devices, devices.front());
    if (HasFailure()) return;
  }
}

TEST_P(Reduce, ByACompiledOperationTakesListsInPlaceAndCanBeBound) {
  if (!can_compile()) GTEST_SKIP() << "nothing can be compiled here";
  const ReduceOp& op = compiled_difference();
  const std::vector<Device> devices = first_devices();
  const std::vector<HostArray> floats = random_inputs(DType::float32, {70'001}, devices.size());
  const std::vector<HostArray> integers = random_inputs(DType::int8, {3, 5}, devices.size());
  std::vector<std::vector<Tensor>> lists;
  for (std::size_t d = 0; d < devices.size(); ++d)
    lists.push_back({make_tensor(floats[d], devices[d]), make_tensor(integers[d], devices[d])});
  std::vector<Tensor> results;
  carry(
      [&](const CollectiveOptions& options) {
        results = reduce_coalesced(lists, op, devices.back(), default_buffer_size, options);
      },
      bitwise);
  EXPECT_TRUE(holds(results[0], devices.back(), reference_reduction(floats, op)));
  EXPECT_TRUE(holds(results[1], devices.back(), reference_reduction(integers, op)));

  for (const Device device : devices) current_stream(device.index()).synchronize();
  std::optional<PersistentCollective> bound;
  carry(
      [&](const CollectiveOptions& options) {
        bound.emplace(persistent_reduce_coalesced(lists, lists.front(), op, default_buffer_size, options));
      },
      bitwise);
  bound->launch();
  current_stream(bound->home_device()).synchronize();
  EXPECT_TRUE(holds(lists[0][0], devices.front(), reference_reduction(floats, op)));
  EXPECT_TRUE(holds(lists[0][1], devices.front(), reference_reduction(integers, op)));
}

TEST_P(Reduce, ByACompiledOperationRoundsOnceForAKernel) {
  if (!can_compile()) GTEST_SKIP() << "nothing can be compiled here";
  // Each input after the first is half of what can be told from 1 in bfloat16.
  const std::vector<Device> devices = first_devices();
  std::vector<Tensor> inputs{full({3}, 1.0, {.dtype = DType::bfloat16, .device = devices.front()})};
  const Tensor half_step = full({3}, 0.00390625, {.dtype = DType::bfloat16, .device = devices.back()});
  inputs.resize(64, half_step);
  const ReduceOp plus = ReduceOp::compiled("template <class T> T plus(T a, T b) { return a + b; }");
  carry(
      [&](const CollectiveOptions& options) {
        const Tensor result = reduce(inputs, plus, devices.front(), options);
        EXPECT_EQ(result.to(DType::float32).to_vector<float>(), std::vector<float>(3, 1.25F));  // 1.24609375
      },
      bitwise);
}

class BadReduceOp : public CollectiveTest {};
TUTTI_FOR_EVERY_TRANSPORT(BadReduceOp);

TEST_P(BadReduceOp, IsRefusedWithNothingEnqueued) {
  struct Line {
    DType dtype;
    ReduceOp op;
    std::vector<std::string> words;
  };
  const std::vector<Line> lines{
      {DType::float32, ReduceOp::band, {"reduce: op is band", "float32"}},
      {DType::float16, ReduceOp::bxor, {"op is bxor", "float16"}},
      {DType::complex64, ReduceOp::min, {"op is min", "complex64"}},
      {DType::complex128, ReduceOp::bor, {"op is bor", "complex128"}},
      {DType::boolean, ReduceOp::avg, {"op is avg", "bool"}},
      {DType::boolean, ReduceOp::premul_sum(1.0), {"op is premul_sum", "bool"}},
      {DType::float32, ReduceKind::premul_sum, {"op has 0 factors", "expected 1, or 2"}},
      {DType::float32, ReduceOp::premul_sum({1.0, 2.0, 3.0}), {"op has 3 factors", "expected 1, or 2"}},
      {DType::int32, ReduceOp::premul_sum({1.0, 0.5}), {"factor 0.5 at 1", "whole number", "int32"}},
      {DType::int64, ReduceOp::premul_sum(1e300), {"factor 1e+300", "whole number"}},
      {DType::float32, static_cast<ReduceKind>(77), {"op is 77"}},
      {DType::complex64, compiled_difference(), {"op is compiled", "complex64"}},
      {DType::float8_e4m3, compiled_difference(), {"op is compiled", "float8_e4m3"}},
      {DType::float32, ReduceKind::compiled, {"op is compiled, but has no source text", "expected ReduceOp"}},
  };
  const std::vector<Device> devices = first_devices();
  for (const Line& line : lines) {
    const std::vector<Tensor> inputs{zeros({5}, {.dtype = line.dtype, .device = devices.front()}),
                                     zeros({5}, {.dtype = line.dtype, .device = devices.back()})};
    const TestTensor out = TestTensor::poisoned(line.dtype, {5}, devices.front(), Placement::contiguous);
    EXPECT_TRUE(refuses([&] { reduce(inputs, out, line.op); }, ErrorCode::invalid_argument, line.words));
    EXPECT_TRUE(refuses([&] { static_cast<void>(reduce(inputs, line.op)); }, ErrorCode::invalid_argument,
                        line.words));
    EXPECT_TRUE(out.untouched());
  }
  const std::vector<std::vector<Tensor>> none(2);
  const std::vector<std::string> words{"op is compiled, but has no source text"};
  EXPECT_TRUE(refuses([&] { static_cast<void>(reduce_coalesced(none, ReduceKind::compiled)); },
                      ErrorCode::invalid_argument, words));
  EXPECT_TRUE(refuses([&] { reduce_coalesced(none, std::vector<Tensor>(), ReduceKind::compiled); },
                      ErrorCode::invalid_argument, words));
}

TEST_P(BadReduceOp, ThatDoesNotCompileSaysWhyWithNothingEnqueued) {
  if (!can_compile()) GTEST_SKIP() << "nothing can be compiled here";
  const std::vector<Device> devices = first_devices();
  const ReduceOp wrong =
      ReduceOp::compiled("template <class T> T wrong(T a, T b) { return a + unknown(b); }");
  const std::vector<Tensor> inputs{zeros({5}, {.device = devices.front()}),
                                   zeros({5}, {.device = devices.back()})};
  const TestTensor out = TestTensor::poisoned(DType::float32, {5}, devices.front(), Placement::contiguous);
  EXPECT_TRUE(refuses([&] { reduce(inputs, out, wrong); }, ErrorCode::invalid_argument,
                      {"does not compile", "unknown"}));
  EXPECT_TRUE(refuses(
      [&] {
        static_cast<void>(reduce_coalesced({{inputs[0]}, {inputs[1]}}, wrong));
      },
      ErrorCode::invalid_argument, {"does not compile", "unknown"}));
  EXPECT_TRUE(out.untouched());
}

TEST_P(BadReduceOp, ThatIsCompiledTakesNoOutputThatALaterKernelReads) {
  const Device device = first_devices().front();
  std::vector<Tensor> inputs(70, zeros({5}, {.device = device}));
  const Tensor out = zeros({5}, {.device = device});
  inputs[66] = out;
  EXPECT_TRUE(refuses([&] { reduce(inputs, out, compiled_difference()); }, ErrorCode::invalid_argument,
                      {"out is inputs[66]", "one of the first 64 inputs"}));
}

TEST(ReduceOps, ThatAreCompiledAreTheirTexts) {
  const std::string text = "template <class T> T first(T a, T) { return a; }";
  EXPECT_EQ(ReduceOp::compiled(text), ReduceOp::compiled(text));
  EXPECT_NE(ReduceOp::compiled(text), compiled_difference());
  EXPECT_NE(ReduceOp::compiled(text), ReduceOp(ReduceOp::sum));
  EXPECT_EQ(ReduceOp::compiled(text).source(), text);
  EXPECT_EQ(ReduceOp(ReduceOp::max).source(), "");
  EXPECT_TRUE(refuses(
      [] { static_cast<void>(ReduceOp::compiled("int f(int a, int b);")); }, ErrorCode::invalid_argument,
      {"ReduceOp::compiled: source has no function template", "expected a function template"}));
}

TEST(ReduceKinds, HaveNamesThatAreReadBack) {
  for (const ReduceKind kind : all_reduce_kinds) EXPECT_EQ(parse_reduce_kind(name_of(kind)), kind);
  EXPECT_TRUE(refuses([] { static_cast<void>(parse_reduce_kind("mean")); }, ErrorCode::invalid_argument,
                      {"text is \"mean\"", "bxor"}));
}

}  // namespace
}  // namespace tutti::test
