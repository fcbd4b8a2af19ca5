// SPDX-License-Identifier: Apache-2.0
#include "support/collectives/collective_test.hpp"
#include "support/values/reference_sum.hpp"

#include <algorithm>
#include <map>

/// Sums have the same bits whatever the size, the split, the placement, the transport and the backend.
namespace tutti::test {
namespace {

constexpr CollectiveOptions bitwise{.determinism = Determinism::bitwise};

std::vector<HostArray> fixed_inputs(DType dtype, const Sizes& sizes, std::size_t count = 5) {
  std::vector<HostArray> arrays;
  for (std::size_t i = 0; i < count; ++i) arrays.push_back(random_numbers(dtype, sizes, 1000 + i));
  return arrays;
}

std::vector<Tensor> spread(const std::vector<HostArray>& arrays, const std::vector<Device>& devices) {
  std::vector<Tensor> tensors;
  for (std::size_t i = 0; i < arrays.size(); ++i)
    tensors.push_back(make_tensor(arrays[i], devices[i % devices.size()]));
  return tensors;
}

class SameBits : public CollectiveTest {
 protected:
  HostArray sum(const std::vector<Tensor>& inputs, Device root) {
    Tensor result;
    carry([&](const CollectiveOptions& options) { result = reduce_add(inputs, root, options); }, bitwise);
    return read(result);
  }
};
TUTTI_FOR_EVERY_TRANSPORT(SameBits);

/// Fingerprints of the sum of five fixed inputs of 1003 elements. Both backends are compared with these
/// constants.
const std::map<DType, std::uint64_t> golden{
    {DType::float16, 0xc62548897fc67db0ULL},     {DType::bfloat16, 0xad79bc52a2c802b8ULL},
    {DType::float32, 0x90114d60a49d3ec0ULL},     {DType::float64, 0xc6a0de99007084eeULL},
    {DType::int8, 0x97b83f2ac2e0b574ULL},        {DType::uint8, 0x97b83f2ac2e0b574ULL},
    {DType::int16, 0xad99787c643f9b1fULL},       {DType::int32, 0x9b574cc98a6657ffULL},
    {DType::int64, 0x372202f5efad06f1ULL},       {DType::boolean, 0xcb46b52b7636f8b8ULL},
    {DType::complex64, 0xd22e5054773a5710ULL},   {DType::complex128, 0xa651e1c054a9de36ULL},
    {DType::float8_e4m3, 0x895c9e471a4e783cULL}, {DType::float8_e5m2, 0xc0a6d2eec2ad4ec1ULL},
    {DType::uint16, 0xad99787c643f9b1fULL},      {DType::uint32, 0x9b574cc98a6657ffULL},
    {DType::uint64, 0x372202f5efad06f1ULL},
};

TEST_P(SameBits, AsOnEveryOtherBackendAndMachine) {
  for (const DType dtype : all_dtypes) {
    const std::vector<HostArray> arrays = fixed_inputs(dtype, {1003});
    EXPECT_EQ(fingerprint(sum(spread(arrays, first_devices()), 0)), golden.at(dtype)) << name_of(dtype);
  }
}

TEST(Golden, IsWhatTheContractsArithmeticGives) {
  for (const DType dtype : all_dtypes) {
    EXPECT_EQ(fingerprint(reference_sum(fixed_inputs(dtype, {1003}))), golden.at(dtype)) << name_of(dtype);
  }
}

TEST(Golden, DependsOnTheOrderOfTheInputs) {
  // Otherwise the inputs would prove nothing.
  for (const DType dtype : {DType::float32, DType::float64, DType::complex64, DType::complex128}) {
    std::vector<HostArray> arrays = fixed_inputs(dtype, {1003});
    std::ranges::reverse(arrays);
    EXPECT_NE(fingerprint(reference_sum(arrays)), golden.at(dtype)) << name_of(dtype);
  }
}

TEST_P(SameBits, WhereverTheInputsAndTheSumAre) {
  const std::vector<HostArray> arrays = fixed_inputs(DType::float32, {5001});
  const HostArray expected = reference_sum(arrays);
  for (const std::vector<Device>& devices :
       {first_devices(), shuffled(first_devices()), first_devices(2), first_devices(1)}) {
    for (const Device root : first_devices()) EXPECT_EQ(sum(spread(arrays, devices), root), expected);
  }
}

TEST_P(SameBits, ForAWholeAndForItsPieces) {
  const std::int64_t count = scaled(1'200'007);
  const std::vector<HostArray> arrays = fixed_inputs(DType::float16, {count}, 3);
  const std::vector<Tensor> whole = spread(arrays, first_devices());
  const HostArray expected = sum(whole, 0);
  EXPECT_EQ(expected, reference_sum(arrays));
  for (std::int64_t start = 0, length = 1; start < count; start += length, length = length * 7 + 3) {
    length = std::min(length, count - start);
    std::vector<Tensor> pieces;
    for (const Tensor& tensor : whole) pieces.push_back(tensor.narrow(0, start, length));
    ASSERT_EQ(sum(pieces, 0), slice(expected, 0, start, length)) << start << " to " << start + length;
  }
}

TEST_P(SameBits, ForEveryRepetition) {
  const std::vector<Tensor> inputs =
      spread(fixed_inputs(DType::bfloat16, {scaled(300'001)}), first_devices());
  const HostArray first = sum(inputs, 0);
  for (int repetition = 0; repetition < 5; ++repetition) ASSERT_EQ(sum(inputs, 0), first);
}

TEST_P(SameBits, CoalescedOrNot) {
  std::vector<std::vector<Tensor>> rows(3);
  for (const std::int64_t size : {1, 17, 4096, 70'001}) {
    const std::vector<HostArray> arrays = fixed_inputs(DType::float32, {size}, rows.size());
    for (std::size_t d = 0; d < rows.size(); ++d) {
      rows[d].push_back(make_tensor(arrays[d], static_cast<int>(d) % device_count()));
    }
  }
  std::vector<Tensor> together;
  carry(
      [&](const CollectiveOptions& options) {
        together = reduce_add_coalesced(rows, 0, default_buffer_size, options);
      },
      bitwise);
  for (std::size_t t = 0; t < together.size(); ++t) {
    EXPECT_EQ(read(together[t]), sum({rows[0][t], rows[1][t], rows[2][t]}, 0)) << t;
  }
}

TEST_P(SameBits, InPlaceOrNot) {
  const std::vector<HostArray> arrays = fixed_inputs(DType::float32, {scaled(50'000)});
  const std::vector<Tensor> inputs = spread(arrays, first_devices());
  const HostArray expected = sum(inputs, inputs.back().device());
  carry([&](const CollectiveOptions& options) { reduce_add(inputs, inputs.back(), options); }, bitwise);
  EXPECT_EQ(read(inputs.back()), expected);
}

}  // namespace
}  // namespace tutti::test
