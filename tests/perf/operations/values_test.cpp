// SPDX-License-Identifier: Apache-2.0
#include "perf/operations/values.hpp"

#include <complex>
#include <cstring>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>

namespace tutti::perf {
namespace {

std::vector<std::byte> generated(const Content& content, std::int64_t first, std::int64_t count) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(count) * size_of(content.dtype));
  generate(content, first, count, bytes.data());
  return bytes;
}

Content flat(DType dtype, Pattern pattern, std::int64_t elements) {
  return {.dtype = dtype, .pattern = pattern, .seed = 7, .row_length = elements, .row_stride = elements};
}

/// The sum of two elements, rounded to the element type as any library would.
template <class T>
T sum_of(T a, T b) {
  if constexpr (std::is_same_v<T, bool>) {
    return a || b;
  } else if constexpr (std::is_arithmetic_v<T>) {
    return static_cast<T>(a + b);
  } else if constexpr (requires { a.real(); }) {
    return a + b;
  } else {
    return T(static_cast<float>(a) + static_cast<float>(b));
  }
}

class PerfValues : public testing::TestWithParam<DType> {};

TEST_P(PerfValues, DoNotDependOnHowTheyAreGeneratedInPieces) {
  for (const Pattern pattern : {Pattern::bits, Pattern::integers}) {
    const Content content = flat(GetParam(), pattern, 3000);
    std::vector<std::byte> pieces = generated(content, 0, 1);
    for (const auto& [first, count] : {std::pair{1, 1030}, std::pair{1031, 1969}}) {
      const std::vector<std::byte> piece = generated(content, first, count);
      pieces.insert(pieces.end(), piece.begin(), piece.end());
    }
    EXPECT_EQ(pieces, generated(content, 0, 3000));
  }
}

TEST_P(PerfValues, OfAWindowAreThoseOfTheWhole) {
  const std::size_t size = size_of(GetParam());
  const Content whole = flat(GetParam(), Pattern::bits, 10 * 7);
  Content window = whole;
  window.row_length = 3;  // columns 2 to 4 of 10 rows of 7
  window.row_stride = 7;
  window.offset = 2;
  const std::vector<std::byte> all = generated(whole, 0, 70);
  const std::vector<std::byte> part = generated(window, 0, 30);
  for (std::size_t k = 0; k < 30; ++k) {
    const std::size_t position = k / 3 * 7 + 2 + k % 3;
    EXPECT_EQ(std::memcmp(part.data() + k * size, all.data() + position * size, size), 0) << k;
  }
}

TEST_P(PerfValues, VaryWithPositionSeedAndSource) {
  for (const Pattern pattern : {Pattern::bits, Pattern::integers}) {
    Content content = flat(GetParam(), pattern, 256);
    content.all_sources = 2;
    const std::vector<std::byte> values = generated(content, 0, 256);
    const std::size_t half = values.size() / 2;
    EXPECT_FALSE(std::equal(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(half),
                            values.begin() + static_cast<std::ptrdiff_t>(half)));
    Content other_seed = content;
    other_seed.seed = 8;
    EXPECT_NE(generated(other_seed, 0, 256), values);
    Content other_source = content;
    other_source.first_source = 1;
    EXPECT_NE(generated(other_source, 0, 256), values);
  }
}

TEST_P(PerfValues, SumExactlyInAnyOrder) {
  for (const int sources : {1, 2, 3, 8, 16, 40}) {
    constexpr std::int64_t elements = 2000;
    Content content = flat(GetParam(), Pattern::integers, elements);
    content.all_sources = sources;
    Content expected = content;
    expected.source_count = sources;
    const std::vector<std::byte> sum = generated(expected, 0, elements);
    visit_dtype(GetParam(), [&]<class T>() {
      for (const bool descending : {false, true}) {
        std::vector<std::byte> total(sum.size());  // all bits zero: zero in every type
        auto* const totals = reinterpret_cast<T*>(total.data());
        for (int k = 0; k < sources; ++k) {
          content.first_source = descending ? sources - 1 - k : k;
          const std::vector<std::byte> input = generated(content, 0, elements);
          const auto* const inputs = reinterpret_cast<const T*>(input.data());
          for (std::int64_t i = 0; i < elements; ++i) totals[i] = sum_of(totals[i], inputs[i]);
        }
        EXPECT_EQ(total, sum) << sources << " sources, descending " << descending;
      }
    });
  }
}

TEST_P(PerfValues, OfASumNeedEverySource) {
  for (const int sources : {2, 8, 40}) {
    constexpr std::int64_t elements = 4000;
    Content expected = flat(GetParam(), Pattern::integers, elements);
    expected.all_sources = sources;
    expected.source_count = sources;
    Content incomplete = expected;
    incomplete.source_count = sources - 1;
    EXPECT_GT(count_wrong(expected, 0, elements, generated(incomplete, 0, elements).data()), 0U) << sources;
  }
}

TEST_P(PerfValues, OfPoisonDifferInEveryElement) {
  for (const Pattern pattern : {Pattern::bits, Pattern::integers}) {
    const Content content = flat(GetParam(), pattern, 5000);
    std::vector<std::byte> poison(5000 * size_of(GetParam()));
    generate_poison(content, 0, 5000, poison.data());
    EXPECT_EQ(count_wrong(content, 0, 5000, poison.data()), 5000U);
  }
}

TEST_P(PerfValues, CountsExactlyTheWrongElements) {
  const Content content = flat(GetParam(), Pattern::bits, 10000);
  std::vector<std::byte> values = generated(content, 0, 10000);
  EXPECT_EQ(count_wrong(content, 0, 10000, values.data()), 0U);
  const std::size_t size = size_of(GetParam());
  for (const std::size_t element : {0U, 4095U, 4096U, 9999U})
    values[element * size + size - 1] ^= std::byte{1};
  EXPECT_EQ(count_wrong(content, 0, 10000, values.data()), 4U);
  EXPECT_EQ(count_wrong(content, 4096, 5904, values.data() + 4096 * size), 2U);
}

INSTANTIATE_TEST_SUITE_P(All, PerfValues, testing::ValuesIn(all_dtypes),
                         [](const auto& dtype) { return std::string(name_of(dtype.param)); });

}  // namespace
}  // namespace tutti::perf
