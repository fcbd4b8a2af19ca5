// SPDX-License-Identifier: Apache-2.0
#include "tutti/layout.hpp"

#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/values/random.hpp"
#include "tensor/overlap.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <limits>
#include <set>
#include <vector>

#include <gtest/gtest.h>

namespace tutti {
namespace {

using Sizes = std::vector<std::int64_t>;
using test::refuses;

Sizes strides_of(const Layout& layout) {
  return {layout.strides().begin(), layout.strides().end()};
}

/// Where the elements are, in index order.
Sizes offsets_of(const Layout& layout) {
  Sizes offsets;
  for (std::int64_t element = 0; element < layout.numel(); ++element) {
    std::int64_t rest = element;
    std::int64_t offset = 0;
    for (std::size_t d = layout.sizes().size(); d-- > 0;) {
      offset += rest % layout.sizes()[d] * layout.strides()[d];
      rest /= layout.sizes()[d];
    }
    offsets.push_back(offset);
  }
  return offsets;
}

TEST(Layout, IsContiguousByDefault) {
  const Layout layout(DType::float32, Sizes{2, 3, 4});
  EXPECT_EQ(strides_of(layout), (Sizes{12, 4, 1}));
  EXPECT_EQ(layout.rank(), 3);
  EXPECT_EQ(layout.numel(), 24);
  EXPECT_EQ(layout.nbytes(), 96U);
  EXPECT_EQ(layout.span_bytes(), 96U);
  EXPECT_TRUE(layout.is_contiguous());
  EXPECT_TRUE(layout.is_dense());
  EXPECT_TRUE(layout.is_non_overlapping());
  EXPECT_FALSE(layout.is_channels_last());
  EXPECT_EQ(layout.preferred_format(), MemoryFormat::contiguous);
}

TEST(Layout, PutsChannelsFastest) {
  const Layout images(DType::float16, Sizes{2, 3, 4, 5}, MemoryFormat::channels_last);
  EXPECT_EQ(strides_of(images), (Sizes{60, 1, 15, 3}));
  EXPECT_TRUE(images.is_channels_last());
  EXPECT_TRUE(images.is_dense());
  EXPECT_FALSE(images.is_contiguous());
  EXPECT_EQ(images.preferred_format(), MemoryFormat::channels_last);
  const Layout volumes(DType::float16, Sizes{2, 3, 4, 5, 6}, MemoryFormat::channels_last);
  EXPECT_EQ(strides_of(volumes), (Sizes{360, 1, 90, 18, 3}));
  EXPECT_TRUE(volumes.is_channels_last());
}

TEST(Layout, IsBothFormatsWithOneChannelAndPrefersContiguous) {
  const Layout layout(DType::int8, Sizes{2, 1, 4, 5}, MemoryFormat::channels_last);
  EXPECT_TRUE(layout.is_contiguous());
  EXPECT_TRUE(layout.is_channels_last());
  EXPECT_EQ(layout.preferred_format(), MemoryFormat::contiguous);
}

TEST(Layout, ScalarHasOneElement) {
  const Layout scalar(DType::complex128, Sizes{});
  EXPECT_EQ(scalar.rank(), 0);
  EXPECT_EQ(scalar.numel(), 1);
  EXPECT_EQ(scalar.nbytes(), 16U);
  EXPECT_EQ(scalar.span_bytes(), 16U);
  EXPECT_TRUE(scalar.is_contiguous());
}

TEST(Layout, WithoutElementsIsDenseWhateverItsStrides) {
  const Layout layout(DType::float64, Sizes{3, 0, 5, 2}, Sizes{7, 7, 7, 7});
  EXPECT_EQ(layout.numel(), 0);
  EXPECT_EQ(layout.nbytes(), 0U);
  EXPECT_EQ(layout.span_bytes(), 0U);
  EXPECT_TRUE(layout.is_contiguous());
  EXPECT_TRUE(layout.is_channels_last());
  EXPECT_TRUE(layout.is_dense());
  EXPECT_TRUE(layout.is_non_overlapping());
  EXPECT_FALSE(Layout(DType::float64, Sizes{0}).is_channels_last());
}

TEST(Layout, IgnoresStridesOfSizeOne) {
  const Layout layout(DType::float32, Sizes{1, 3, 1, 4}, Sizes{99, 4, 0, 1});
  EXPECT_TRUE(layout.is_contiguous());
  EXPECT_TRUE(layout.is_dense());
  EXPECT_EQ(layout.span_bytes(), 48U);
}

TEST(Layout, ExpandedDimensionsOverlap) {
  const Layout layout(DType::float32, Sizes{5, 4}, Sizes{0, 1});
  EXPECT_FALSE(layout.is_dense());
  EXPECT_FALSE(layout.is_non_overlapping());
  EXPECT_EQ(layout.span_bytes(), 16U);
}

TEST(Layout, GapsAreNeitherDenseNorOverlapping) {
  const Layout layout(DType::float32, Sizes{5, 4}, Sizes{6, 1});
  EXPECT_FALSE(layout.is_contiguous());
  EXPECT_FALSE(layout.is_dense());
  EXPECT_TRUE(layout.is_non_overlapping());
  EXPECT_EQ(layout.span_bytes(), (4U * 6 + 4) * 4);
}

TEST(Layout, FlagsSayWhatAnEnumerationOfAllElementsSays) {
  test::Random random(test::test_seed());
  for (std::int64_t round = 0; round < test::scaled(20'000); ++round) {
    Sizes sizes;
    Sizes strides;
    const std::int64_t rank = random.between(0, 4);
    for (std::int64_t d = 0; d < rank; ++d) {
      sizes.push_back(random.between(0, 4));
      strides.push_back(random.between(0, 12));
    }
    const Layout layout(DType::int16, sizes, strides);
    const Sizes offsets = offsets_of(layout);
    const std::set<std::int64_t> places(offsets.begin(), offsets.end());
    const bool each_once = places.size() == offsets.size();
    const std::int64_t last = places.empty() ? -1 : *places.rbegin();
    SCOPED_TRACE(to_string(sizes) + " with strides " + to_string(strides));
    ASSERT_EQ(layout.numel(), static_cast<std::int64_t>(offsets.size()));
    ASSERT_EQ(layout.span_bytes(), static_cast<std::size_t>(last + 1) * 2);
    ASSERT_EQ(layout.is_contiguous(),
              std::ranges::is_sorted(offsets) && each_once && last + 1 == layout.numel());
    ASSERT_EQ(layout.is_dense(), each_once && last + 1 == layout.numel());
    ASSERT_TRUE(each_once || !layout.is_non_overlapping());
    ASSERT_TRUE(layout.is_non_overlapping() || !layout.is_dense());
  }
}

TEST(Layout, EqualsOneThatPutsEveryElementAtTheSamePlace) {
  const Layout layout(DType::float32, Sizes{2, 1, 3});
  EXPECT_EQ(layout, Layout(DType::float32, Sizes{2, 1, 3}, Sizes{3, 77, 1}));
  EXPECT_NE(layout, Layout(DType::int32, Sizes{2, 1, 3}));
  EXPECT_NE(layout, Layout(DType::float32, Sizes{2, 3, 1}));
  EXPECT_NE(layout, Layout(DType::float32, Sizes{2, 1, 3}, Sizes{1, 2, 2}));
  EXPECT_EQ(Layout(DType::float32, Sizes{0, 4}, Sizes{1, 9}), Layout(DType::float32, Sizes{0, 4}));
}

TEST(Layout, RefusesWhatNoTensorCanBe) {
  const auto make = [](DType dtype, const Sizes& sizes) { return [=] { Layout(dtype, sizes); }; };
  const auto invalid = ErrorCode::invalid_argument;
  constexpr std::int64_t huge = std::int64_t{1} << 40;
  EXPECT_TRUE(refuses(make(DType::float32, {2, -3}), invalid, {"sizes[1] is -3", "0 or more"}));
  EXPECT_TRUE(
      refuses(make(DType::float32, {1, 1, 1, 1, 1, 1, 1, 1, 1}), invalid, {"9 dimensions", "at most 8"}));
  EXPECT_TRUE(refuses(make(DType::float32, {huge, huge}), invalid,
                      {"[1099511627776, 1099511627776]", "2^63 - 1 bytes"}));
  EXPECT_TRUE(refuses(make(DType::float32, {huge, 0, huge}), invalid, {"2^63 - 1 bytes"}));
  EXPECT_TRUE(refuses(make(DType::float64, {std::int64_t{1} << 60}), invalid, {"float64"}));
  EXPECT_NO_THROW(Layout(DType::int8, Sizes{std::int64_t{1} << 62}));
}

TEST(Layout, RefusesStridesNoTensorCanHave) {
  const auto make = [](const Sizes& sizes, const Sizes& strides) {
    return [=] { Layout(DType::int32, sizes, strides); };
  };
  const auto invalid = ErrorCode::invalid_argument;
  EXPECT_TRUE(refuses(make({2, 3}, {3}), invalid, {"strides [3] have 1 dimensions", "expected 2", "[2, 3]"}));
  EXPECT_TRUE(refuses(make({2, 3}, {3, -1}), invalid, {"strides[1] is -1"}));
  EXPECT_TRUE(refuses(make({1}, {-1}), invalid, {"strides[0] is -1"}));
  constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();
  EXPECT_TRUE(refuses(make({3}, {most}), invalid, {"strides [9223372036854775807]", "span more than"}));
  EXPECT_TRUE(refuses(make({2, 2}, {most / 4, most / 4}), invalid, {"span more than"}));
  EXPECT_NO_THROW(Layout(DType::int32, Sizes{1}, Sizes{most}));
}

TEST(Layout, ChannelsLastNeedsFourOrFiveDimensions) {
  for (const Sizes& sizes : {Sizes{}, Sizes{2, 3, 4}, Sizes{1, 2, 3, 4, 5, 6}}) {
    EXPECT_TRUE(refuses([&] { Layout(DType::int8, sizes, MemoryFormat::channels_last); },
                        ErrorCode::invalid_argument, {to_string(sizes), "4 or 5", "channels_last"}));
  }
}

TEST(Layout, PrintsSizes) {
  EXPECT_EQ(to_string(Sizes{2, 3, 4}), "[2, 3, 4]");
  EXPECT_EQ(to_string(Sizes{}), "[]");
}

/// Views of one buffer, for which sharing is a question of sets of bytes.
std::set<std::int64_t> bytes_of(const TensorView& view, const std::byte* buffer) {
  std::set<std::int64_t> bytes;
  const auto width = static_cast<std::int64_t>(size_of(view.dtype()));
  for (const std::int64_t offset : offsets_of(*view.layout())) {
    for (std::int64_t b = 0; b < width; ++b) {
      bytes.insert(static_cast<std::byte*>(view.data()) - buffer + offset * width + b);
    }
  }
  return bytes;
}

TEST(Overlap, SharesMemoryExactlyWhereSetsOfBytesMeet) {
  alignas(16) std::vector<std::byte> buffer(1024);
  test::Random random(test::test_seed());
  const std::vector<DType> dtypes{DType::int8, DType::int16, DType::float32};
  const auto random_view = [&] {
    Sizes sizes;
    Sizes strides;
    const std::int64_t rank = random.between(0, 3);
    for (std::int64_t d = 0; d < rank; ++d) {
      sizes.push_back(random.between(random.one_in(20) ? 0 : 1, 4));
      strides.push_back(random.between(0, 20));
    }
    const DType dtype = random.pick(dtypes);
    const auto start = static_cast<std::size_t>(random.between(0, 40)) * size_of(dtype);
    return TensorView(buffer.data() + start, make_layout(dtype, sizes, strides), Device::host());
  };
  std::int64_t sharing = 0;
  const std::int64_t rounds = test::scaled(20'000);
  for (std::int64_t round = 0; round < rounds; ++round) {
    const TensorView a = random_view();
    const TensorView b = random_view();
    const std::set<std::int64_t> a_bytes = bytes_of(a, buffer.data());
    const std::set<std::int64_t> b_bytes = bytes_of(b, buffer.data());
    const bool expected =
        std::ranges::any_of(a_bytes, [&](std::int64_t byte) { return b_bytes.contains(byte); });
    ASSERT_EQ(shares_memory(a, b), expected) << to_string(a.sizes()) << to_string(a.strides()) << " and "
                                             << to_string(b.sizes()) << to_string(b.strides());
    ASSERT_EQ(shares_memory(b, a), expected);
    sharing += expected ? 1 : 0;
  }
  EXPECT_GT(sharing, rounds / 10);
  EXPECT_LT(sharing, rounds * 9 / 10);
}

TEST(Overlap, AnswersForLargeInterleavedViewsAtOnce) {
  // Never dereferenced: only the addresses count.
  auto* const base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
  constexpr std::int64_t rows = 1 << 20;
  const LayoutPtr columns = make_layout(DType::float32, Sizes{rows, 3, 100}, Sizes{1000, 300, 1});
  const TensorView left(base, columns, Device::host());
  const TensorView right(base + 400, columns, Device::host());
  const TensorView straddling(base + 398, columns, Device::host());
  EXPECT_FALSE(shares_memory(left, right));
  EXPECT_TRUE(shares_memory(left, straddling));
}

TEST(Overlap, DevicesShareNothing) {
  auto* const base = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);
  const LayoutPtr layout = make_layout(DType::int8, Sizes{8});
  EXPECT_FALSE(shares_memory({base, layout, Device(0)}, {base, layout, Device(1)}));
  EXPECT_TRUE(shares_memory({base, layout, Device(0)}, {base, layout, Device(0)}));
}

}  // namespace
}  // namespace tutti
