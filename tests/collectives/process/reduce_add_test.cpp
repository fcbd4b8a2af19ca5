// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/collective_test.hpp"
#include "support/values/number_formats.hpp"
#include "support/values/reference_sum.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

namespace tutti::test {
namespace {

class ReduceAdd : public CollectiveTest {
 protected:
  static std::vector<HostArray> random_inputs(DType dtype, const Sizes& sizes, std::size_t count) {
    std::vector<HostArray> arrays;
    for (std::size_t i = 0; i < count; ++i) arrays.push_back(random_numbers(dtype, sizes, test_seed() + i));
    return arrays;
  }

  /// Sums `arrays`, of which number i is on devices[i], to `root` both ways and compares bit for bit.
  void check(const std::vector<HostArray>& arrays, const std::vector<Device>& devices, Device root,
             Placement from = Placement::contiguous, Placement to = Placement::contiguous) {
    const HostArray expected = reference_sum(arrays);
    std::vector<TestTensor> inputs;
    for (std::size_t i = 0; i < arrays.size(); ++i)
      inputs.emplace_back(arrays[i], devices[i % devices.size()], from);
    const std::vector<Tensor> tensors = tensors_of(inputs);

    Tensor result;
    carry([&](const CollectiveOptions& options) { result = reduce_add(tensors, root, options); }, bitwise);
    EXPECT_TRUE(holds(result, root, expected)) << name_of(expected.dtype);

    const TestTensor out = TestTensor::poisoned(expected.dtype, expected.sizes, root, to);
    carry([&](const CollectiveOptions& options) { reduce_add(tensors, out, options); }, bitwise);
    EXPECT_TRUE(out.holds(expected)) << name_of(expected.dtype);
    for (const TestTensor& input : inputs) EXPECT_TRUE(input.untouched());
  }

  /// Sums where each input repeats one bit pattern.
  void check_bits(DType dtype, const std::vector<std::vector<std::uint64_t>>& columns) {
    std::vector<HostArray> arrays;
    for (std::size_t input = 0; input < columns.front().size(); ++input) {
      HostArray array{dtype, {static_cast<std::int64_t>(columns.size())}, {}};
      array.bytes.resize(columns.size() * size_of(dtype));
      for (std::size_t c = 0; c < columns.size(); ++c) {
        std::memcpy(array.bytes.data() + c * size_of(dtype), &columns[c][input], size_of(dtype));
      }
      arrays.push_back(array);
    }
    check(arrays, first_devices(), first_devices().back());
  }

  static constexpr CollectiveOptions bitwise{.determinism = Determinism::bitwise};
};
TUTTI_FOR_EVERY_TRANSPORT(ReduceAdd);

TEST_P(ReduceAdd, SumsEveryElementTypeToEveryDevice) {
  const std::vector<Device> devices = first_devices();
  for (const DType dtype : all_dtypes) {
    for (const Device root : devices) check(random_inputs(dtype, {7, 33}, devices.size()), devices, root);
    if (HasFailure()) return;
  }
}

TEST_P(ReduceAdd, SumsEverySize) {
  const std::vector<Device> devices = shuffled(first_devices());
  for (const std::int64_t bytes : telling_sizes()) {
    SCOPED_TRACE(bytes);
    check(random_inputs(DType::float16, {bytes / 2}, devices.size()), devices, devices.front());
    if (bytes < 1 << 16) check(random_inputs(DType::int8, {bytes}, devices.size()), devices, devices.back());
    if (HasFailure()) return;
  }
}

TEST_P(ReduceAdd, SumsStridedInputsIntoStridedOutputs) {
  const std::vector<Device> devices = first_devices(3);
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::complex64, DType::int64}) {
    for (const Placement from : {Placement::contiguous, Placement::misaligned, Placement::gapped,
                                 Placement::transposed, Placement::channels_last}) {
      for (const Placement to :
           {Placement::contiguous, Placement::misaligned, Placement::gapped, Placement::channels_last}) {
        SCOPED_TRACE(testing::Message() << "from " << name_of(from) << " to " << name_of(to));
        check(random_inputs(dtype, {2, 3, 5, 4}, devices.size()), devices, devices.back(), from, to);
      }
    }
  }
}

TEST_P(ReduceAdd, SumsInputsOfDifferentPlacements) {
  const std::vector<Device> devices = first_devices(3);
  const std::vector<HostArray> arrays = random_inputs(DType::float32, {2, 3, 4, 5}, 5);
  const std::vector<Placement> placements{Placement::contiguous, Placement::channels_last, Placement::gapped,
                                          Placement::transposed, Placement::misaligned};
  std::vector<TestTensor> inputs;
  for (std::size_t i = 0; i < arrays.size(); ++i) {
    inputs.emplace_back(arrays[i], devices[i % devices.size()], placements[i]);
  }
  Tensor result;
  carry(
      [&](const CollectiveOptions& options) {
        result = reduce_add(tensors_of(inputs), devices.front(), options);
      },
      bitwise);
  EXPECT_TRUE(holds(result, devices.front(), reference_sum(arrays)));
}

TEST_P(ReduceAdd, SumsIntoADeviceWithoutInput) {
  const std::vector<Device> devices = first_devices();
  if (devices.size() < 2) GTEST_SKIP() << "needs two devices";
  const std::vector<Device> others(devices.begin(), devices.end() - 1);
  check(random_inputs(DType::float32, {1001}, others.size()), others, devices.back());
}

TEST_P(ReduceAdd, SumsMoreInputsThanDevices) {
  const std::vector<Device> devices = first_devices();
  for (const std::size_t count : {std::size_t{1}, std::size_t{2}, std::size_t{9}, std::size_t{37}}) {
    SCOPED_TRACE(count);
    for (const DType dtype : {DType::float32, DType::float8_e5m2}) {
      check(random_inputs(dtype, {515}, count), devices, devices.front());
    }
  }
}

TEST_P(ReduceAdd, SumsInputsOfOneDevice) {
  check(random_inputs(DType::float64, {1000}, 4), {first_devices().back()}, first_devices().front());
  check(random_inputs(DType::float64, {1000}, 4), {0}, 0);
}

TEST_P(ReduceAdd, GoesToTheCurrentDeviceUnlessToldOtherwise) {
  const std::vector<Device> devices = first_devices();
  const DeviceGuard guard(devices.back());
  const std::vector<HostArray> arrays = random_inputs(DType::float32, {12}, devices.size());
  std::vector<Tensor> inputs;
  for (std::size_t i = 0; i < devices.size(); ++i) inputs.push_back(make_tensor(arrays[i], devices[i]));
  Tensor result;
  carry([&](const CollectiveOptions& options) { result = reduce_add(inputs, std::nullopt, options); },
        bitwise);
  EXPECT_TRUE(holds(result, devices.back(), reference_sum(arrays)));
}

TEST_P(ReduceAdd, SumsInPlace) {
  const std::vector<Device> devices = first_devices();
  for (const DType dtype : {DType::float16, DType::float32, DType::int16, DType::boolean}) {
    for (const std::int64_t count : {std::int64_t{1}, std::int64_t{1025}, scaled(700'001)}) {
      const std::vector<HostArray> arrays = random_inputs(dtype, {count}, devices.size());
      for (const std::size_t target : {std::size_t{0}, devices.size() - 1}) {
        std::vector<TestTensor> inputs;
        for (std::size_t i = 0; i < arrays.size(); ++i)
          inputs.emplace_back(arrays[i], devices[i], Placement::misaligned);
        carry(
            [&](const CollectiveOptions& options) {
              reduce_add(tensors_of(inputs), inputs[target].tensor(), options);
            },
            bitwise);
        EXPECT_TRUE(inputs[target].holds(reference_sum(arrays))) << name_of(dtype) << ' ' << count;
        for (std::size_t i = 0; i < inputs.size(); ++i) {
          EXPECT_TRUE(i == target || inputs[i].untouched());
        }
      }
    }
  }
}

TEST_P(ReduceAdd, MayNameOneInputTwice) {
  const std::vector<Device> devices = first_devices(2);
  const HostArray values = random_numbers(DType::float32, {100}, 1);
  const Tensor input = make_tensor(values, devices.front());
  Tensor result;
  carry(
      [&](const CollectiveOptions& options) {
        result = reduce_add({input, input, input}, devices.back(), options);
      },
      bitwise);
  EXPECT_TRUE(holds(result, devices.back(), reference_sum(std::vector<HostArray>(3, values))));
}

TEST_P(ReduceAdd, WrapsIntegersAround) {
  check_bits(DType::int8, {{0x7f, 0x01}, {0x80, 0x80}, {0x80, 0xff}});
  check_bits(DType::uint8, {{0xff, 0x01}, {0xff, 0xff}});
  check_bits(DType::int16, {{0x7fff, 0x0001}, {0x8000, 0xffff}});
  check_bits(DType::int32, {{0x7fffffff, 0x1}, {0x80000000, 0x80000000}});
  check_bits(DType::int64, {{0x7fffffffffffffff, 0x1}, {0x8000000000000000, 0xffffffffffffffff}});
}

TEST_P(ReduceAdd, TakesTheLogicalOrOfBooleans) {
  check_bits(DType::boolean, {{0, 0, 0}, {1, 0, 0}, {0, 0, 1}, {1, 1, 1}, {2, 0, 0}, {0x80, 0x80, 0}});
}

TEST_P(ReduceAdd, MakesEveryNanTheCanonicalOne) {
  // Signalling, negative and payload-carrying NaNs; infinities that cancel.
  check_bits(DType::float32,
             {{0x7fc00001, 0x3f800000}, {0xffc00000, 0}, {0x7f800001, 0}, {0x7f800000, 0xff800000}});
  check_bits(DType::float64,
             {{0x7ff8000000000001, 0}, {0xfff8000000000000, 0}, {0x7ff0000000000000, 0xfff0000000000000}});
  check_bits(DType::float16, {{0x7e01, 0}, {0xfe00, 0}, {0x7c00, 0xfc00}});
  check_bits(DType::bfloat16, {{0x7fc1, 0}, {0xffc0, 0}, {0x7f80, 0xff80}});
  check_bits(DType::float8_e4m3, {{0x7f, 0}, {0xff, 0}, {0x7e, 0x7e}, {0xfe, 0xfe}});
  check_bits(DType::float8_e5m2, {{0x7d, 0}, {0xfe, 0}, {0x7c, 0xfc}});
}

TEST_P(ReduceAdd, MakesTheNanOfASingleInputCanonicalToo) {
  check_bits(DType::float32, {{0xffc12345}, {0x3f800000}});
  check_bits(DType::boolean, {{7}, {0}});
}

TEST_P(ReduceAdd, KeepsSignedZerosInfinitiesAndSubnormals) {
  check_bits(DType::float32,
             {{0x80000000, 0x80000000}, {0x80000000, 0}, {0x7f800000, 1}, {1, 1}, {0x807fffff, 1}});
  check_bits(DType::float16, {{0x8000, 0x8000}, {0x0001, 0x0001}, {0x7bff, 0x7bff}, {0xfbff, 0xfbff}});
  check_bits(DType::bfloat16, {{0x8000, 0x8000}, {0x0001, 0x0001}, {0x7f7f, 0x7f7f}});
  check_bits(DType::float8_e5m2, {{0x80, 0x80}, {0x01, 0x01}, {0x7b, 0x7b}});
}

TEST_P(ReduceAdd, RoundsSmallFloatsOnceAtTheEnd) {
  // 2048 + 1 + 1 is 2050 in float16, but 2048 if rounded after each addition; bfloat16 likewise at 256.
  check_bits(DType::float16, {{0x6800, 0x3c00, 0x3c00}});
  check_bits(DType::bfloat16, {{0x4380, 0x3f80, 0x3f80}});
  // The overflow of a partial sum is no overflow of the sum.
  check_bits(DType::float16, {{0x7bff, 0x7bff, 0xfbff}});
  check_bits(DType::float8_e4m3, {{0x7e, 0x7e, 0xfe}});
}

TEST_P(ReduceAdd, AddsInAscendingInputOrder) {
  // 1e8 + 1 - 1e8 is 0 in float32 in this order, and 1 in others.
  check_bits(DType::float32, {{std::bit_cast<std::uint32_t>(1e8F), std::bit_cast<std::uint32_t>(1.0F),
                               std::bit_cast<std::uint32_t>(-1e8F)}});
  const Tensor big = full({1}, 1e8, {.device = 0});
  const Tensor one = full({1}, 1.0, {.device = first_devices().back()});
  const Tensor minus = full({1}, -1e8, {.device = 0});
  carry(
      [&](const CollectiveOptions& options) {
        EXPECT_EQ(reduce_add({big, one, minus}, 0, options).item<float>(), 0.0F);
        EXPECT_EQ(reduce_add({big, minus, one}, 0, options).item<float>(), 1.0F);
      },
      bitwise);
}

TEST_P(ReduceAdd, KeepsShapesWithoutElements) {
  const std::vector<Device> devices = first_devices();
  check(random_inputs(DType::float32, {2, 0, 3}, devices.size()), devices, devices.back());
}

TEST_P(ReduceAdd, SumsScalars) {
  const std::vector<Device> devices = first_devices();
  check(random_inputs(DType::float64, {}, devices.size()), devices, devices.front());
}

TEST_P(ReduceAdd, FastestSumsOfExactNumbersAreExactToo) {
  // Small whole numbers have no rounding, so that every transport must agree, NCCL in its own order included.
  const std::vector<Device> devices = first_devices();
  for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16, DType::float64}) {
    std::vector<Tensor> inputs;
    double sum = 0;
    for (std::size_t i = 0; i < devices.size(); ++i) {
      inputs.push_back(
          full({scaled(100'000)}, static_cast<double>(i + 1), {.dtype = dtype, .device = devices[i]}));
      sum += static_cast<double>(i + 1);
    }
    Tensor result;
    carry([&](const CollectiveOptions& options) { result = reduce_add(inputs, devices.front(), options); });
    EXPECT_EQ(read(result), read(full({scaled(100'000)}, sum, {.dtype = dtype}))) << name_of(dtype);
  }
}

}  // namespace
}  // namespace tutti::test
