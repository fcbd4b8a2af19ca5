// SPDX-License-Identifier: Apache-2.0
#include "tutti/rng.hpp"

#include "backend/philox.hpp"
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/values/rng_state.hpp"
#include "support/values/test_tensor.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <mutex>
#include <numbers>
#include <numeric>
#include <set>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using test::pack;
using test::refuses;
using test::unpack;
using State = test::GeneratorState;

constexpr auto invalid = ErrorCode::invalid_argument;
constexpr DType float_types[] = {DType::float16, DType::bfloat16, DType::float32, DType::float64};

Tensor fresh(std::int64_t count, DType dtype = DType::float32, int device = 0) {
  return empty({count}, {.dtype = dtype, .device = Device(device)});
}

template <class T>
std::vector<T> uniform(std::int64_t count, double low = 0, double high = 1) {
  const Tensor tensor = fresh(count, dtype_of<T>);
  uniform_(tensor, low, high);
  return tensor.to_vector<T>();
}

template <class T>
std::vector<T> normal(std::int64_t count, double mean = 0, double deviation = 1) {
  const Tensor tensor = fresh(count, dtype_of<T>);
  normal_(tensor, mean, deviation);
  return tensor.to_vector<T>();
}

/// Numbers of any floating-point element type as doubles.
std::vector<double> as_doubles(const Tensor& tensor) {
  return tensor.to(DType::float64).to_vector<double>();
}

// The generator.

TEST(RngUniform, GivesThePublishedPhiloxWords) {
  // The known answer of Philox4x32-10 for key 0 and counter 0.
  constexpr std::uint32_t words[] = {0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8};
  manual_seed(0);
  const std::vector<float> floats = uniform<float>(4);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(floats[i], std::ldexp(static_cast<float>(words[i] >> 8U), -24));
  manual_seed(0);
  const std::vector<double> doubles = uniform<double>(2);
  for (std::size_t i = 0; i < 2; ++i) {
    const std::uint64_t both = std::uint64_t{words[2 * i + 1]} << 32U | words[2 * i];
    EXPECT_EQ(doubles[i], std::ldexp(static_cast<double>(both >> 11U), -53));
  }
  manual_seed(0);
  const std::vector<Float16> halves = uniform<Float16>(4);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(static_cast<float>(halves[i]), std::ldexp(static_cast<float>(words[i] >> 21U), -11));
  }
  manual_seed(0);
  const std::vector<BFloat16> brains = uniform<BFloat16>(4);
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(static_cast<float>(brains[i]), std::ldexp(static_cast<float>(words[i] >> 24U), -8));
  }
}

TEST(RngUniform, TakesKeyAndCounterFromSeedAndOffset) {
  // A counter has 128 bits; the offset, in words, gives the lowest 62 in blocks of four.
  set_rng_state(pack({.seed = ~std::uint64_t{0}, .offset = ~std::uint64_t{3}}));
  const std::vector<float> last = uniform<float>(4);
  const backend::PhiloxWords words =
      backend::philox4x32_10({{0xffffffff, 0x3fffffff, 0, 0}}, 0xffffffff, 0xffffffff);
  for (std::size_t i = 0; i < 4; ++i)
    EXPECT_EQ(last[i], std::ldexp(static_cast<float>(words.word[i] >> 8U), -24));
}

TEST(RngUniform, ScalesToTheBoundsAndNeverReachesTheUpper) {
  for (const DType dtype : float_types) {
    for (const auto& [low, high] :
         {std::pair{-3.0, 5.0}, {0.0, 1e-3}, {100.0, 100.5}, {2.0, 2.0}, {-1.0, 0.0}}) {
      manual_seed(11);
      const Tensor tensor = fresh(20'000, dtype);
      uniform_(tensor, low, high);
      const std::vector<double> values = as_doubles(tensor);
      // The bounds count as the element type rounds them.
      const double least = as_doubles(full({1}, low, {.dtype = dtype})).front();
      const double beyond = as_doubles(full({1}, high, {.dtype = dtype})).front();
      const auto [smallest, greatest] = std::ranges::minmax(values);
      EXPECT_GE(smallest, least) << name_of(dtype);
      if (least == beyond) {
        EXPECT_EQ(greatest, least) << name_of(dtype);
      } else {
        EXPECT_LT(greatest, beyond) << name_of(dtype);
      }
    }
  }
}

/// The greatest distance between the distribution of `values` and `cumulative`.
template <class Cumulative>
double distance(std::vector<double> values, const Cumulative& cumulative) {
  std::ranges::sort(values);
  const auto count = static_cast<double>(values.size());
  double greatest = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double expected = cumulative(values[i]);
    greatest = std::max({greatest, std::abs(expected - static_cast<double>(i) / count),
                         std::abs(expected - static_cast<double>(i + 1) / count)});
  }
  return greatest;
}

struct Moments {
  double mean = 0;
  double variance = 0;
  double skewness = 0;
  double kurtosis = 0;
  double lag_correlation = 0;  ///< of neighbours
};

Moments moments_of(const std::vector<double>& values) {
  const auto count = static_cast<double>(values.size());
  Moments m;
  for (const double value : values) m.mean += value / count;
  for (const double value : values) {
    const double d = value - m.mean;
    m.variance += d * d / count;
    m.skewness += d * d * d / count;
    m.kurtosis += d * d * d * d / count;
  }
  m.skewness /= std::pow(m.variance, 1.5);
  m.kurtosis /= m.variance * m.variance;
  for (std::size_t i = 1; i < values.size(); ++i) {
    m.lag_correlation += (values[i] - m.mean) * (values[i - 1] - m.mean) / (m.variance * count);
  }
  return m;
}

/// Kolmogorov's test rejects a true distribution with probability 0.001 above this.
double critical_distance(std::size_t count) {
  return 1.95 / std::sqrt(static_cast<double>(count));
}

/// How far a value of the element type is from those it stands for: half a step near 1.
double resolution(DType dtype) {
  switch (dtype) {
    case DType::float16:
      return 0x1p-11;
    case DType::bfloat16:
      return 0x1p-8;
    default:
      return 0;
  }
}

TEST(RngUniform, IsUniform) {
  for (const DType dtype : float_types) {
    manual_seed(test::test_seed());
    const Tensor tensor = fresh(test::scaled(200'000), dtype);
    uniform_(tensor);
    const std::vector<double> values = as_doubles(tensor);
    const auto count = static_cast<double>(values.size());
    SCOPED_TRACE(name_of(dtype));
    EXPECT_LT(distance(values, [](double x) { return x; }),
              critical_distance(values.size()) + resolution(dtype));
    const Moments m = moments_of(values);
    // Five standard errors, and what the missing low bits take away.
    EXPECT_NEAR(m.mean, 0.5, 5 * std::sqrt(1.0 / 12 / count) + resolution(dtype));
    EXPECT_NEAR(m.variance, 1.0 / 12, 5 * std::sqrt(1.0 / 180 / count) + resolution(dtype));
    EXPECT_NEAR(m.lag_correlation, 0, 5 / std::sqrt(count));
  }
}

TEST(RngNormal, IsNormal) {
  for (const DType dtype : float_types) {
    manual_seed(test::test_seed());
    const Tensor tensor = fresh(test::scaled(200'000), dtype);
    normal_(tensor);
    const std::vector<double> values = as_doubles(tensor);
    const auto count = static_cast<double>(values.size());
    SCOPED_TRACE(name_of(dtype));
    const auto cumulative = [](double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; };
    EXPECT_LT(distance(values, cumulative), critical_distance(values.size()) + resolution(dtype));
    const Moments m = moments_of(values);
    EXPECT_NEAR(m.mean, 0, 5 / std::sqrt(count));
    EXPECT_NEAR(m.variance, 1, 5 * std::sqrt(2 / count) + resolution(dtype));
    EXPECT_NEAR(m.skewness, 0, 5 * std::sqrt(6 / count));
    EXPECT_NEAR(m.kurtosis, 3, 5 * std::sqrt(24 / count) + resolution(dtype));
    EXPECT_NEAR(m.lag_correlation, 0, 5 / std::sqrt(count));
  }
}

TEST(RngNormal, IsBoxAndMullersOfTheUniformWords) {
  constexpr std::int64_t count = 10'000;
  constexpr std::uint64_t seed = 99;
  manual_seed(seed);
  const std::vector<float> floats = normal<float>(count);
  manual_seed(seed);
  const std::vector<double> doubles = normal<double>(count);
  const auto word = [](std::uint64_t index) {
    return backend::philox_block(seed, index / 4).word[index % 4];
  };
  const auto pair = [](long double radius_uniform, long double turn) {
    const long double radius = std::sqrt(-2 * std::log(radius_uniform));
    const long double angle = 2 * std::numbers::pi_v<long double> * turn;
    return std::pair{static_cast<double>(radius * std::cos(angle)),
                     static_cast<double>(radius * std::sin(angle))};
  };
  for (std::uint64_t i = 0; i < count; i += 2) {
    const auto [x, y] = pair((word(i) + 0.5L) * 0x1p-32L, word(i + 1) * 0x1p-32L);
    ASSERT_NEAR(floats[i], x, 2e-6) << i;
    ASSERT_NEAR(floats[i + 1], y, 2e-6) << i;
    const auto wide = [&](std::uint64_t element) {
      return static_cast<long double>(std::uint64_t{word(2 * element + 1)} << 32U | word(2 * element));
    };
    const auto [u, v] = pair((wide(i) + 0.5L) * 0x1p-64L, wide(i + 1) * 0x1p-64L);
    ASSERT_NEAR(doubles[i], u, 1e-14) << i;
    ASSERT_NEAR(doubles[i + 1], v, 1e-14) << i;
  }
}

TEST(RngNormal, ScalesByMeanAndDeviation) {
  manual_seed(5);
  const std::vector<double> standard = normal<double>(1000);
  manual_seed(5);
  const std::vector<double> scaled = normal<double>(1000, 10, 0.25);
  for (std::size_t i = 0; i < 1000; ++i) ASSERT_EQ(scaled[i], 10 + 0.25 * standard[i]);
  EXPECT_EQ(normal<float>(3, -2, 0), (std::vector<float>{-2, -2, -2}));
}

std::uint64_t fingerprint(const Tensor& tensor) {
  return test::fingerprint(test::read(tensor));
}

TEST(RngFill, GivesTheSameBitsForever) {
  struct Golden {
    DType dtype;
    std::uint64_t uniform;
    std::uint64_t normal;
  };
  constexpr Golden goldens[] = {
      {DType::float16, 0x8c9e504b77a0420f, 0x4b0f9606c247abbf},
      {DType::bfloat16, 0x6f4e99c8024916d2, 0x141fe2b19e8a941c},
      {DType::float32, 0xa173249aa71e3d51, 0xae7ce0b39cf3c068},
      {DType::float64, 0x9af703899ebb44ea, 0xa9fd4f1591f2b0e0},
  };
  for (const Golden& golden : goldens) {
    const Tensor tensor = fresh(100'003, golden.dtype);
    manual_seed(0x0123456789abcdef);
    uniform_(tensor, -1.5, 2.0);
    EXPECT_EQ(fingerprint(tensor), golden.uniform)
        << name_of(golden.dtype) << std::hex << " " << fingerprint(tensor);
    normal_(tensor, 0.5, 3.0);
    EXPECT_EQ(fingerprint(tensor), golden.normal)
        << name_of(golden.dtype) << std::hex << " " << fingerprint(tensor);
  }
}

TEST(RngFill, DoesNotDependOnHowItIsSplit) {
  for (const DType dtype : float_types) {
    for (void (*fill)(const Tensor&, double, double) : {uniform_, normal_}) {
      const Tensor whole = fresh(1003, dtype);
      manual_seed(17);
      fill(whole, 0, 1);
      const State after = unpack(get_rng_state());
      const Tensor parts = fresh(1003, dtype);
      manual_seed(17);
      // Multiples of 4 words, so multiples of 4 elements are enough for every type; only the last part is
      // odd.
      std::int64_t start = 0;
      for (const std::int64_t length : {4, 8, 400, 4, 64, 523}) {
        fill(parts.narrow(0, start, length), 0, 1);
        start += length;
      }
      ASSERT_EQ(start, 1003);
      EXPECT_EQ(parts.to_bytes(), whole.to_bytes()) << name_of(dtype);
      EXPECT_EQ(unpack(get_rng_state()), after);
    }
  }
}

TEST(RngFill, NumbersElementsAsTheyLieInMemory) {
  const Tensor images = empty({2, 3, 4, 5}, {.device = Device(0), .format = MemoryFormat::channels_last});
  manual_seed(3);
  uniform_(images);
  manual_seed(3);
  const std::vector<float> expected = uniform<float>(120);
  EXPECT_EQ(Tensor(TensorView(images.data(), DType::float32, {120}, Device(0))).to_vector<float>(), expected);
}

TEST(RngFill, TouchesItsOwnElementsOnly) {
  for (const DType dtype : float_types) {
    const auto memory = test::TestTensor::poisoned(dtype, {7}, Device(0), test::Placement::misaligned);
    manual_seed(3);
    uniform_(memory);
    manual_seed(3);
    const Tensor expected = fresh(7, dtype);
    uniform_(expected);
    EXPECT_TRUE(memory.holds(test::read(expected))) << name_of(dtype);
  }
}

TEST(RngFill, AdvancesTheOffsetByTheWordsItTookRoundedUp) {
  struct Advance {
    DType dtype;
    std::int64_t count;
    std::uint64_t words;
  };
  constexpr Advance advances[] = {
      {DType::float32, 0, 0}, {DType::float32, 1, 4},  {DType::float32, 4, 4},
      {DType::float32, 5, 8}, {DType::float16, 9, 12}, {DType::bfloat16, 8, 8},
      {DType::float64, 1, 4}, {DType::float64, 2, 4},  {DType::float64, 3, 8},
  };
  for (const Advance& advance : advances) {
    manual_seed(1);
    uniform_(fresh(advance.count, advance.dtype));
    EXPECT_EQ(unpack(get_rng_state()), (State{1, advance.words})) << advance.count;
    normal_(fresh(advance.count, advance.dtype));
    EXPECT_EQ(unpack(get_rng_state()), (State{1, 2 * advance.words})) << advance.count;
  }
}

TEST(RngFill, SeveralThreadsNeverGetTheSameNumbers) {
  constexpr int threads = 4;
  constexpr int fills = 50;
  manual_seed(8);
  std::mutex mutex;
  std::set<double> first_values;
  std::vector<std::thread> workers;
  for (int t = 0; t < threads; ++t) {
    workers.emplace_back([&] {
      for (int i = 0; i < fills; ++i) {
        const double value = uniform<double>(5).front();
        const std::lock_guard lock(mutex);
        first_values.insert(value);
      }
    });
  }
  for (std::thread& worker : workers) worker.join();
  EXPECT_EQ(first_values.size(), static_cast<std::size_t>(threads * fills));
  EXPECT_EQ(unpack(get_rng_state()).offset, static_cast<std::uint64_t>(threads * fills) * 12);
}

TEST(RngFill, RefusesTensorsItCannotFill) {
  for (void (*fill)(const Tensor&, double, double) : {uniform_, normal_}) {
    const State before = unpack(get_rng_state());
    for (const DType dtype : {DType::int32, DType::boolean, DType::complex64, DType::float8_e4m3}) {
      EXPECT_TRUE(refuses([&] { fill(fresh(4, dtype), 0, 1); }, invalid,
                          {"the tensor holds " + std::string(name_of(dtype))}));
    }
    EXPECT_TRUE(refuses([&] { fill(empty({4}), 0, 1); }, invalid, {"host", "expected a device"}));
    EXPECT_TRUE(refuses([&] { fill({}, 0, 1); }, invalid, {"undefined"}));
    const Tensor nowhere(TensorView(reinterpret_cast<void*>(64), DType::float32, {2}, Device(99)));
    EXPECT_TRUE(refuses([&] { fill(nowhere, 0, 1); }, invalid, {"99"}));
    EXPECT_EQ(unpack(get_rng_state()), before);
  }
}

TEST(RngFill, RefusesParametersThatMakeNoDistribution) {
  const Tensor tensor = fresh(4);
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  constexpr double infinity = std::numeric_limits<double>::infinity();
  const auto uniform_with = [&](double low, double high) {
    return [&, low, high] { uniform_(tensor, low, high); };
  };
  EXPECT_TRUE(refuses(uniform_with(1, 0), invalid, {"uniform_: low is 1 and high is 0", "low <= high"}));
  EXPECT_TRUE(refuses(uniform_with(nan, 0), invalid, {"low is nan"}));
  EXPECT_TRUE(refuses(uniform_with(0, infinity), invalid, {"high is inf"}));
  EXPECT_TRUE(refuses(uniform_with(0, 1e39), invalid, {"high is 1e+39", "float32"}));
  EXPECT_TRUE(refuses(uniform_with(-3e38, 3e38), invalid, {"high - low"}));
  EXPECT_TRUE(refuses([] { uniform_(fresh(4, DType::float16), 0, 65536); }, invalid, {"float16"}));
  const auto normal_with = [&](double mean, double deviation) {
    return [&, mean, deviation] { normal_(tensor, mean, deviation); };
  };
  EXPECT_TRUE(refuses(normal_with(0, -1), invalid, {"normal_: standard_deviation is -1", "0 or more"}));
  EXPECT_TRUE(refuses(normal_with(nan, 1), invalid, {"mean is nan"}));
  EXPECT_TRUE(refuses(normal_with(0, infinity), invalid, {"standard_deviation is inf"}));
}

}  // namespace
}  // namespace tutti
