// SPDX-License-Identifier: Apache-2.0
#include "support/errors.hpp"
#include "support/values/rng_state.hpp"
#include "tutti/rng.hpp"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

/// Fills beside the uniform and the normal ones of dense tensors.
namespace tutti {
namespace {

using test::refuses;
using test::unpack;

Tensor unfilled(std::int64_t count, DType dtype) {
  return empty({count}, {.dtype = dtype, .device = Device(0)});
}

/// What `fill` gives, with its default parameters in mind.
template <class T>
std::vector<T> drawn(void (*fill)(const Tensor&, double, double), std::int64_t count) {
  const Tensor tensor = unfilled(count, dtype_of<T>);
  fill(tensor, 0.0, 1.0);
  return tensor.to_vector<T>();
}

std::vector<double> doubles_of(const Tensor& tensor) {
  return tensor.to(DType::float64).to_vector<double>();
}

TEST(RngFill, FillsStridedTensorsInIndexOrder) {
  const Tensor whole = zeros({30, 8}, {.device = Device(0)});
  const Tensor part = whole.narrow(1, 2, 5);
  manual_seed(3);
  normal_(part);
  manual_seed(3);
  EXPECT_EQ(part.to_vector<float>(), drawn<float>(normal_, 150));
  const std::vector<float> all = whole.to_vector<float>();
  for (std::size_t i = 0; i < all.size(); ++i) {
    if (i % 8 < 2 || i % 8 > 6) {
      EXPECT_EQ(all[i], 0.0F) << "beside it, at " << i;
    }
  }
}

TEST(RngFill, RefusesElementsThatShareAPlaceAndDrawsNothingThen) {
  const Tensor one = zeros({1}, {.device = Device(0)});
  const Tensor repeated = from_blob(one.data(), {3}, {.device = 0}, {0}, [](void*) {});
  manual_seed(3);
  EXPECT_TRUE(refuses([&] { normal_(repeated); }, ErrorCode::invalid_argument,
                      {"normal_: the tensor has sizes", "several indices share an element"}));
  const auto next = drawn<float>(normal_, 150);
  manual_seed(3);
  EXPECT_EQ(next, drawn<float>(normal_, 150));
}

TEST(RngIntegers, TakeTwoWordsEachAsAFractionOfTheRange) {
  // The known answer of Philox4x32-10 for key 0 and counter 0.
  constexpr std::uint64_t fractions[] = {0xe169c58d6627e8d5, 0x9b00dbd8bc57ac4c};
  manual_seed(0);
  const Tensor tensor = unfilled(2, DType::int64);
  random_(tensor, -1000, -1000 + (std::int64_t{1} << 32));
  const auto values = tensor.to_vector<std::int64_t>();
  for (std::size_t i = 0; i < 2; ++i)
    EXPECT_EQ(values[i], -1000 + static_cast<std::int64_t>(fractions[i] >> 32U));
  EXPECT_EQ(unpack(get_rng_state()).offset, 4U);
  constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
  constexpr std::int64_t greatest = std::numeric_limits<std::int64_t>::max();
  manual_seed(0);
  random_(tensor, least, greatest);
  // (2^64 - 1) of the fraction: one less than the fraction is, rounded down.
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(
        static_cast<std::uint64_t>(tensor.to_vector<std::int64_t>()[i]) - static_cast<std::uint64_t>(least),
        fractions[i] - 1);
  }
}

TEST(RngIntegers, AreAllInTheRangeEquallyLikely) {
  for (const DType dtype : {DType::int8, DType::uint8, DType::int16, DType::uint16, DType::int32,
                            DType::uint32, DType::int64, DType::uint64}) {
    manual_seed(9);
    constexpr std::int64_t count = 60'001;
    const Tensor tensor = randint(3, 9, {count}, {.dtype = dtype, .device = Device(0)});
    std::vector<int> seen(6, 0);
    for (const std::int64_t value : tensor.to(DType::int64).to_vector<std::int64_t>()) {
      ASSERT_GE(value, 3) << name_of(dtype);
      ASSERT_LT(value, 9) << name_of(dtype);
      ++seen[static_cast<std::size_t>(value - 3)];
    }
    // Deviations of 10'000 have a standard deviation of 91.
    for (const int times : seen) EXPECT_NEAR(times, 10'000, 500) << name_of(dtype);
  }
}

TEST(RngIntegers, RefuseRangesThatAreNotTheTypes) {
  const auto refuse = [](DType dtype, std::int64_t low, std::int64_t high,
                         const std::vector<std::string>& fragments) {
    EXPECT_TRUE(
        refuses([&] { random_(unfilled(4, dtype), low, high); }, ErrorCode::invalid_argument, fragments));
  };
  refuse(DType::int8, 5, 5, {"random_", "low is 5 and high is 5", "low < high"});
  refuse(DType::int8, -129, 0, {"from -128 to 127"});
  refuse(DType::uint8, 0, 257, {"uint8", "from 0 to 255"});
  refuse(DType::uint8, -1, 2, {"low is -1"});
  refuse(DType::uint16, 0, 65537, {"uint16", "from 0 to 65535"});
  refuse(DType::uint32, -1, 2, {"uint32", "from 0 to 4294967295"});
  refuse(DType::uint64, -1, 2, {"uint64", "from 0 to 9223372036854775807"});
  refuse(DType::float32, 0, 2, {"float32", "integer type"});
  refuse(DType::boolean, 0, 2, {"integer type"});
  EXPECT_NO_THROW(random_(unfilled(4, DType::uint8), 0, 256));
  EXPECT_NO_THROW(random_(unfilled(4, DType::uint32), 0, std::int64_t{1} << 32));
  EXPECT_NO_THROW(random_(unfilled(4, DType::uint64), 0, std::numeric_limits<std::int64_t>::max()));
}

TEST(RngBernoulli, GivesOnesWithTheProbability) {
  for (const DType dtype : all_dtypes) {
    if (dtype == DType::complex64 || dtype == DType::complex128) {
      EXPECT_TRUE(refuses([&] { bernoulli_(unfilled(4, dtype)); }, ErrorCode::invalid_argument,
                          {"bernoulli_", "real type"}));
      continue;
    }
    manual_seed(17);
    const Tensor tensor = unfilled(40'003, dtype);
    bernoulli_(tensor, 0.25);
    const std::vector<double> values = doubles_of(tensor);
    const auto ones = std::ranges::count(values, 1.0);
    EXPECT_EQ(ones + std::ranges::count(values, 0.0), 40'003) << name_of(dtype);
    EXPECT_NEAR(static_cast<double>(ones), 10'000, 500) << name_of(dtype);
    EXPECT_EQ(unpack(get_rng_state()).offset, 40'004U);
  }
  const Tensor tensor = unfilled(1000, DType::int32);
  for (const double probability : {0.0, 1.0}) {
    bernoulli_(tensor, probability);
    EXPECT_EQ(tensor.to_vector<std::int32_t>(),
              std::vector<std::int32_t>(1000, static_cast<std::int32_t>(probability)));
  }
  for (const double probability : {-0.1, 1.1, std::numeric_limits<double>::quiet_NaN()}) {
    EXPECT_TRUE(refuses([&] { bernoulli_(tensor, probability); }, ErrorCode::invalid_argument,
                        {"probability", "0 to 1"}));
  }
}

TEST(RngCreation, MakesFilledTensors) {
  const TensorOptions there{.dtype = DType::float64, .device = Device(0)};
  manual_seed(21);
  const auto made = rand({7, 3}, there).to_vector<double>();
  manual_seed(21);
  EXPECT_EQ(made, drawn<double>(uniform_, 21));
  manual_seed(21);
  const Tensor normal_made = randn({7, 3}, there);
  manual_seed(21);
  EXPECT_EQ(normal_made.to_vector<double>(), drawn<double>(normal_, 21));
  manual_seed(21);
  const Tensor like = rand_like(normal_made);
  EXPECT_EQ(like.to_vector<double>(), made);
  manual_seed(21);
  const Tensor singles = randn_like(normal_made, {.dtype = DType::float32});
  EXPECT_EQ(singles.dtype(), DType::float32);
  manual_seed(21);
  EXPECT_EQ(singles.to_vector<float>(), drawn<float>(normal_, 21));
  const Tensor integers = randint_like(normal_made, 0, 2, {.dtype = DType::uint8});
  EXPECT_EQ(integers.numel(), 21);
  for (const std::uint8_t value : integers.to_vector<std::uint8_t>()) EXPECT_LT(value, 2);
}

TEST(RngCreation, NamesItselfInErrors) {
  const auto invalid = ErrorCode::invalid_argument;
  EXPECT_TRUE(
      refuses([] { static_cast<void>(rand({2}, {})); }, invalid, {"rand: the tensor is on the host"}));
  EXPECT_TRUE(refuses([] { static_cast<void>(randn({-1}, {})); }, invalid, {"randn: sizes[0] is -1"}));
  EXPECT_TRUE(refuses([] { static_cast<void>(randint(0, 2, {2}, {.device = 0})); }, invalid,
                      {"randint: the tensor holds float32"}));
  EXPECT_TRUE(refuses([] { static_cast<void>(rand_like(Tensor())); }, invalid, {"rand_like: other"}));
  EXPECT_TRUE(
      refuses([] { static_cast<void>(randn_like(zeros({2}))); }, invalid, {"randn_like: the tensor"}));
  EXPECT_TRUE(refuses([] { static_cast<void>(randint_like(Tensor(), 0, 2)); }, invalid, {"randint_like"}));
}

}  // namespace
}  // namespace tutti
