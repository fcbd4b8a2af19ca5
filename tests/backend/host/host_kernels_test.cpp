// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_machine.hpp"
#include "backend/numbers/arithmetic.hpp"
#include "backend/numbers/conversion.hpp"

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <random>

#include <gmock/gmock.h>

namespace tutti::backend {
namespace {

using Bytes = std::vector<std::uint8_t>;

class HostKernels : public HostMachine {
 protected:
  StreamRef stream() { return machine().default_stream(0); }

  /// Random bytes, of which every element type sees all kinds of values, NaN and infinity included.
  Bytes random_bytes(std::size_t count) {
    Bytes bytes(count);
    for (auto& byte : bytes) byte = static_cast<std::uint8_t>(generator_());
    return bytes;
  }

  std::mt19937 generator_{42};
};

/// One element after another, straight from the definition in `arithmetic.hpp`.
template <class T>
Bytes reference_sum(const std::vector<Bytes>& inputs) {
  using Sum = SumOf<T>;
  using Storage = typename Sum::Storage;
  Bytes result(inputs[0].size());
  for (std::size_t at = 0; at < result.size(); at += sizeof(T)) {
    const auto element = [at](const Bytes& input) {
      Storage value;
      std::memcpy(&value, input.data() + at, sizeof(T));
      return value;
    };
    auto sum = Sum::load(element(inputs[0]));
    for (std::size_t i = 1; i < inputs.size(); ++i) sum = Sum::add(sum, element(inputs[i]));
    const Storage stored = Sum::store(sum);
    std::memcpy(result.data() + at, &stored, sizeof(T));
  }
  return result;
}

class HostSums : public HostKernels, public testing::WithParamInterface<DType> {};

TEST_P(HostSums, AddInAscendingOrderForEveryCountOfInputs) {
  constexpr std::size_t count = 2500;  // more than two blocks, and a rest
  const std::size_t bytes = count * size_of(GetParam());
  for (const std::size_t input_count : {1U, 2U, 3U, 8U}) {
    std::vector<Bytes> inputs;
    std::vector<std::byte*> pointers;
    for (std::size_t i = 0; i < input_count; ++i) {
      inputs.push_back(random_bytes(bytes));
      pointers.push_back(bytes_of(upload(0, inputs.back())));
    }
    auto* first = allocate<std::uint8_t>(0, bytes);
    auto* second = allocate<std::uint8_t>(0, bytes);
    pointers.push_back(bytes_of(first));
    pointers.push_back(bytes_of(second));
    const OrderedReductionSegment segment{
        .count = count, .first_input = 0, .first_output = static_cast<std::uint32_t>(input_count)};
    machine().ordered_reduction(stream(), {.dtype = GetParam(),
                                           .input_count = static_cast<std::uint32_t>(input_count),
                                           .output_count = 2,
                                           .segments = {&segment, 1},
                                           .pointers = pointers});
    const Bytes expected = visit_dtype(GetParam(), [&]<class T>() { return reference_sum<T>(inputs); });
    EXPECT_EQ(download(0, first, bytes), expected) << input_count << " inputs";
    EXPECT_EQ(download(0, second, bytes), expected) << input_count << " inputs";
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, HostSums, testing::ValuesIn(all_dtypes),
                         [](const auto& parameter) { return std::string(name_of(parameter.param)); });

TEST_F(HostKernels, SumsDependOnTheOrderOfTheInputs) {
  const auto sum = [this](std::vector<float> values) {
    std::vector<std::byte*> pointers;
    for (const float value : values) pointers.push_back(bytes_of(upload<float>(0, {value})));
    auto* output = allocate<float>(0, 1);
    pointers.push_back(bytes_of(output));
    const OrderedReductionSegment segment{.count = 1, .first_input = 0, .first_output = 3};
    machine().ordered_reduction(stream(),
                                {.input_count = 3, .segments = {&segment, 1}, .pointers = pointers});
    return download(0, output, 1)[0];
  };
  EXPECT_EQ(sum({1e8F, -1e8F, 1.0F}), 1.0F);
  EXPECT_EQ(sum({1.0F, 1e8F, -1e8F}), 0.0F);
}

TEST_F(HostKernels, SumsMayBeStoredOverAnInput) {
  const std::vector<int> values(3000, 5);
  auto* first = upload(0, values);
  auto* second = upload(0, values);
  std::byte* pointers[] = {bytes_of(first), bytes_of(second), bytes_of(second)};
  const OrderedReductionSegment segment{.count = 3000, .first_input = 0, .first_output = 2};
  machine().ordered_reduction(
      stream(), {.dtype = DType::int32, .input_count = 2, .segments = {&segment, 1}, .pointers = pointers});
  EXPECT_EQ(download(0, second, 3000), std::vector<int>(3000, 10));
}

TEST_F(HostKernels, FanOutCopiesRectanglesToEveryTarget) {
  // Three rows of 5 bytes out of rows of 8, into rows of 6.
  Bytes source(24);
  std::iota(source.begin(), source.end(), std::uint8_t{1});
  std::vector<std::uint8_t*> targets;
  std::vector<std::byte*> pointers{bytes_of(upload(0, source))};
  for (int i = 0; i < 3; ++i) {
    targets.push_back(upload(0, Bytes(18)));
    pointers.push_back(bytes_of(targets.back()));
  }
  const FanOutSegment segment{.row_bytes = 5,
                              .source_pitch = 8,
                              .target_pitch = 6,
                              .rows = 3,
                              .source = 0,
                              .first_target = 1,
                              .target_count = 3};
  machine().fan_out(stream(), {.segments = {&segment, 1}, .pointers = pointers});
  const Bytes expected{1, 2, 3, 4, 5, 0, 9, 10, 11, 12, 13, 0, 17, 18, 19, 20, 21, 0};
  for (auto* target : targets) EXPECT_EQ(download(0, target, 18), expected);
}

TEST_F(HostKernels, FanOutServesManySegmentsOfManySizes) {
  std::vector<Bytes> sources;
  std::vector<std::byte*> pointers;
  std::vector<FanOutSegment> segments;
  for (std::uint32_t i = 0; i < 50; ++i) {
    sources.push_back(random_bytes(1 + i * 1777));
    pointers.push_back(bytes_of(upload(0, sources.back())));
    for (int t = 0; t < 2; ++t) pointers.push_back(allocate<std::byte>(0, sources.back().size()));
    segments.push_back(
        {.row_bytes = sources.back().size(), .source = 3 * i, .first_target = 3 * i + 1, .target_count = 2});
  }
  machine().fan_out(stream(), {.segments = segments, .pointers = pointers});
  for (std::size_t i = 0; i < 50; ++i) {
    for (std::size_t t = 1; t <= 2; ++t) {
      const auto* target = reinterpret_cast<const std::uint8_t*>(pointers[3 * i + t]);
      EXPECT_EQ(download(0, target, sources[i].size()), sources[i]);
    }
  }
}

TEST_F(HostKernels, TablesAreReadBeforeTheCallReturns) {
  auto* source = upload<int>(0, {1});
  auto* target = upload<int>(0, {0});
  Gate gate;
  gate.block(machine(), stream());
  {
    std::vector<std::byte*> pointers{bytes_of(source), bytes_of(target)};
    std::vector<FanOutSegment> segments{{.row_bytes = 4, .source = 0, .first_target = 1, .target_count = 1}};
    machine().fan_out(stream(), {.segments = segments, .pointers = pointers});
    pointers.assign(2, nullptr);
    segments.assign(1, {});
  }
  gate.open();
  EXPECT_EQ(download(0, target, 1)[0], 1);
}

TEST_F(HostKernels, CopiesCapturePageableSourcesAndFillPageableTargets) {
  Gate gate;
  gate.block(machine(), stream());
  auto* target = allocate<int>(0, 1);
  int value = 7;
  copy(stream(), target, &value, 4);
  value = 8;
  gate.open();
  int result = 0;
  copy(stream(), &result, target, 4);
  EXPECT_EQ(result, 7) << "a copy to pageable memory is complete when it returns";
}

TEST_F(HostKernels, CopiesMoveRectangles) {
  const Bytes source{1, 2, 3, 4, 5, 6};
  auto* target = upload(0, Bytes(8));
  machine().copy(stream(), {.target = bytes_of(target),
                            .target_pitch = 4,
                            .source = reinterpret_cast<const std::byte*>(source.data()),
                            .source_pitch = 3,
                            .row_bytes = 2,
                            .rows = 2});
  EXPECT_EQ(download(0, target, 8), (Bytes{1, 2, 0, 0, 4, 5, 0, 0}));
}

TEST_F(HostKernels, FillsRepeatTheValue) {
  for (const std::size_t size : {1U, 2U, 4U, 8U, 16U}) {
    for (const std::size_t count : {1U, 3U, 5000U}) {
      Fill fill{.target = allocate<std::byte>(0, count * size), .count = count, .element_bytes = size};
      for (std::size_t i = 0; i < 16; ++i) fill.value[i] = static_cast<std::byte>(i + 1);
      machine().fill(stream(), fill);
      Bytes expected(count * size);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] = static_cast<std::uint8_t>(i % size + 1);
      EXPECT_EQ(download(0, reinterpret_cast<std::uint8_t*>(fill.target), count * size), expected);
    }
  }
}

TEST_F(HostKernels, BadDescriptionsAreRefusedAtOnce) {
  const auto refused = [](auto call) { return error_message(ErrorCode::invalid_argument, call); };
  std::byte* pointers[] = {nullptr};
  const FanOutSegment fan{.row_bytes = 1, .source = 0, .first_target = 1, .target_count = 1};
  refused([&] { machine().fan_out(stream(), {.segments = {&fan, 1}, .pointers = pointers}); });
  const OrderedReductionSegment sum{.count = 1, .first_input = 0, .first_output = 1};
  refused([&] {
    machine().ordered_reduction(stream(), {.input_count = 1, .segments = {&sum, 1}, .pointers = pointers});
  });
  refused([&] { machine().ordered_reduction(stream(), {.segments = {&sum, 1}, .pointers = pointers}); });
  refused([&] { machine().fill(stream(), {.element_bytes = 3}); });
  refused([&] { machine().random_fill(stream(), {.dtype = DType::int32}); });
  refused([&] { machine().random_fill(stream(), {.offset = 2}); });
  refused([&] { machine().copy(stream(), {.source_pitch = 1, .row_bytes = 2, .rows = 2}); });
  Convert convert;
  convert.rank = max_dimensions + 1;
  refused([&] { machine().convert(stream(), convert); });
  EXPECT_EQ(control().operations_enqueued(), 0U);
}

class HostConversions : public HostKernels {
 protected:
  template <class To, class From>
  std::vector<To> convert(const std::vector<From>& values) {
    auto* target = allocate<To>(0, values.size());
    Convert task;
    task.target = bytes_of(target);
    task.source = bytes_of(upload(0, values));
    task.target_dtype = dtype_of<To>;
    task.source_dtype = dtype_of<From>;
    task.rank = 1;
    task.sizes[0] = static_cast<std::int64_t>(values.size());
    task.target_strides[0] = task.source_strides[0] = 1;
    machine().convert(stream(), task);
    return download(0, target, values.size());
  }
};

constexpr float infinity = std::numeric_limits<float>::infinity();
constexpr float nan = std::numeric_limits<float>::quiet_NaN();

TEST_F(HostConversions, TruncateAndSaturateToIntegers) {
  const std::vector<float> values{1.9F, -1.9F, 300.0F, -300.0F, infinity, -infinity, nan, 127.5F, -128.5F};
  EXPECT_EQ((convert<std::int8_t>(values)),
            (std::vector<std::int8_t>{1, -1, 127, -128, 127, -128, 0, 127, -128}));
  EXPECT_EQ((convert<std::uint8_t>(values)), (std::vector<std::uint8_t>{1, 0, 255, 0, 255, 0, 0, 127, 0}));
  constexpr auto most = std::numeric_limits<std::int64_t>::max();
  constexpr auto least = std::numeric_limits<std::int64_t>::min();
  EXPECT_EQ((convert<std::int64_t>(std::vector<double>{9.3e18, -9.3e18, 9007199254740993.0, -0.5})),
            (std::vector<std::int64_t>{most, least, 9007199254740992, 0}));
  EXPECT_EQ((convert<std::int32_t>(std::vector<float>{2147483648.0F, 2147483520.0F})),
            (std::vector<std::int32_t>{2147483647, 2147483520}));
  EXPECT_EQ(
      (convert<std::uint64_t>(std::vector<double>{1e20, -1.0, 0x1p63, nan})),
      (std::vector<std::uint64_t>{std::numeric_limits<std::uint64_t>::max(), 0, std::uint64_t{1} << 63U, 0}));
  EXPECT_EQ((convert<std::uint16_t>(std::vector<float>{65535.5F, 65536.0F, -0.5F})),
            (std::vector<std::uint16_t>{65535, 65535, 0}));
}

TEST_F(HostConversions, WrapBetweenIntegers) {
  EXPECT_EQ((convert<std::int8_t>(std::vector<std::int32_t>{200, -129, 5})),
            (std::vector<std::int8_t>{-56, 127, 5}));
  EXPECT_EQ((convert<std::int64_t>(std::vector<std::int8_t>{-3})), (std::vector<std::int64_t>{-3}));
  EXPECT_EQ((convert<std::uint32_t>(std::vector<std::int8_t>{-3})),
            (std::vector<std::uint32_t>{4294967293U}));
  EXPECT_EQ((convert<std::int64_t>(std::vector<std::uint32_t>{4294967295U})),
            (std::vector<std::int64_t>{4294967295}));
}

TEST_F(HostConversions, KeepWhatUnsignedIntegersHaveAboveSignedOnes) {
  const std::vector<std::uint64_t> values{std::uint64_t{1} << 63U, std::numeric_limits<std::uint64_t>::max()};
  EXPECT_EQ((convert<double>(values)), (std::vector<double>{0x1p63, 0x1p64}));
  EXPECT_EQ((convert<float>(values)), (std::vector<float>{0x1p63F, 0x1p64F}));
  EXPECT_EQ((convert<BFloat16>(values)), (std::vector{BFloat16(0x1p63F), BFloat16(0x1p64F)}));
}

TEST_F(HostConversions, ToBoolIsDifferentFromZero) {
  const auto truth = [](const auto& converted) {
    std::vector<int> result;
    for (const auto value : converted) result.push_back(value ? 1 : 0);
    return result;
  };
  const auto to_bool = [&]<class From>(const std::vector<From>& values) {
    Bytes source(values.size() * sizeof(From));
    std::memcpy(source.data(), values.data(), source.size());
    auto* target = upload(0, Bytes(values.size(), 9));
    Convert task;
    task.target = bytes_of(target);
    task.source = bytes_of(upload(0, source));
    task.target_dtype = DType::boolean;
    task.source_dtype = dtype_of<From>;
    task.rank = 1;
    task.sizes[0] = static_cast<std::int64_t>(values.size());
    task.target_strides[0] = task.source_strides[0] = 1;
    machine().convert(stream(), task);
    return truth(download(0, target, values.size()));
  };
  EXPECT_EQ(to_bool(std::vector<float>{0.0F, -0.0F, 1e-40F, nan, -2.0F}), (std::vector{0, 0, 1, 1, 1}));
  EXPECT_EQ(to_bool(std::vector<std::int64_t>{0, std::int64_t{1} << 40}), (std::vector{0, 1}));
  EXPECT_EQ(to_bool(std::vector<std::complex<float>>{{0, 0}, {0, 1}, {1, 0}}), (std::vector{0, 1, 1}));
}

TEST_F(HostConversions, DropAndAddImaginaryParts) {
  using Complex = std::complex<float>;
  EXPECT_EQ((convert<float>(std::vector<Complex>{{1.5F, 2.0F}})), std::vector<float>{1.5F});
  EXPECT_EQ((convert<Complex>(std::vector<std::int16_t>{-4})), (std::vector<Complex>{{-4.0F, 0.0F}}));
  EXPECT_EQ((convert<std::complex<double>>(std::vector<Complex>{{1.0F, -2.0F}})),
            (std::vector<std::complex<double>>{{1.0, -2.0}}));
}

TEST_F(HostConversions, RoundToNearestAndKeepNaNsCanonical) {
  EXPECT_EQ((convert<float>(std::vector<double>{1.0 + 0x1p-24, 1.0 + 0x1.8p-23, 1e300})),
            (std::vector<float>{1.0F, 1.0F + 0x1p-22F, infinity}));
  EXPECT_EQ((convert<Float16>(std::vector<double>{65519.0, 65520.0, 1.0})),
            (std::vector{Float16(65504.0F), Float16(infinity), Float16(1.0F)}));
  const auto negative_nan = std::bit_cast<double>(0xfff8000000000001ULL);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(convert<float>(std::vector{negative_nan})[0]), 0x7fffffffU);
  EXPECT_EQ(std::bit_cast<std::uint64_t>(convert<double>(std::vector{-nan})[0]), 0x7fffffffffffffffULL);
}

TEST_F(HostConversions, MoveBytesWithinOneType) {
  const auto odd = std::bit_cast<float>(0xffc12345U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(convert<float>(std::vector{odd})[0]), 0xffc12345U);
}

TEST_F(HostConversions, WorkForEveryPairOfTypes) {
  for (const DType from : all_dtypes) {
    for (const DType to : all_dtypes) {
      visit_dtype(from, [&]<class From>() {
        visit_dtype(to, [&]<class To>() {
          if constexpr (!std::is_same_v<To, bool> && !std::is_same_v<From, bool>) {
            // 1 and 0 are the same number everywhere.
            const std::vector<From> source{convert<From>(std::vector<float>{0.0F, 1.0F})};
            EXPECT_EQ(convert<float>(convert<To>(source)), (std::vector<float>{0.0F, 1.0F}))
                << name_of(from) << " to " << name_of(to);
          }
        });
      });
    }
  }
}

TEST_F(HostConversions, WalkStridedArraysOfEveryRank) {
  for (int rank = 0; rank <= max_dimensions; ++rank) {
    // Every dimension has 2 elements; the source is laid out backwards with gaps, the target contiguous.
    const auto count = std::size_t{1} << static_cast<unsigned>(rank);
    Convert task;
    task.rank = rank;
    task.source_dtype = DType::int32;
    task.target_dtype = DType::float64;
    for (std::size_t d = 0; d < static_cast<std::size_t>(rank); ++d) {
      task.sizes[d] = 2;
      task.target_strides[d] = std::int64_t{1} << (static_cast<unsigned>(rank) - 1 - d);
      task.source_strides[d] = std::int64_t{3} << d;
    }
    std::vector<int> source(3 * count);
    std::iota(source.begin(), source.end(), 0);
    std::vector<double> expected(count);
    for (std::size_t i = 0; i < count; ++i) {
      std::size_t at = 0;
      for (std::size_t d = 0; d < static_cast<std::size_t>(rank); ++d) {
        at += (i >> (static_cast<unsigned>(rank) - 1 - d) & 1U) * (std::size_t{3} << d);
      }
      expected[i] = static_cast<double>(at);
    }
    auto* target = allocate<double>(0, count);
    task.source = bytes_of(upload(0, source));
    task.target = bytes_of(target);
    machine().convert(stream(), task);
    EXPECT_EQ(download(0, target, count), expected) << "rank " << rank;

    task.target_dtype = DType::int32;  // the same type, so that rows may move as bytes
    auto* copied = allocate<int>(0, count);
    task.target = bytes_of(copied);
    machine().convert(stream(), task);
    EXPECT_EQ(download(0, copied, count), (std::vector<int>(expected.begin(), expected.end())))
        << "rank " << rank;
  }
}

TEST_F(HostConversions, RepeatElementsOfBroadcastDimensions) {
  Convert task;
  task.rank = 2;
  task.sizes = {2, 3};
  task.source_strides = {1, 0};
  task.target_strides = {3, 1};
  auto* target = allocate<float>(0, 6);
  task.target = bytes_of(target);
  task.source = bytes_of(upload<float>(0, {5.0F, 6.0F}));
  machine().convert(stream(), task);
  EXPECT_EQ(download(0, target, 6), (std::vector<float>{5, 5, 5, 6, 6, 6}));
}

}  // namespace
}  // namespace tutti::backend
