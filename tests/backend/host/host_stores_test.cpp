// SPDX-License-Identifier: Apache-2.0
#include "backend/host/host_machine.hpp"
#include "backend/host/kernels/kernels.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <random>

namespace tutti::backend::host {
namespace {

using Bytes = std::vector<std::byte>;

constexpr std::byte untouched{0xa5};

Bytes random_bytes(std::size_t count, std::uint32_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<std::uint64_t> words(count / sizeof(std::uint64_t) + 1);
  std::ranges::generate(words, std::ref(generator));
  Bytes bytes(count);
  std::memcpy(bytes.data(), words.data(), count);
  return bytes;
}

TEST(HostStores, PutJustTheBytesWhateverTheirAlignment) {
  const Bytes source = random_bytes(512, 1);
  for (const Stores stores : {Stores::cached, Stores::streamed}) {
    for (std::size_t offset = 0; offset <= line_bytes; ++offset) {  // wherever in its line the memory begins
      for (const std::size_t bytes : {0U, 1U, 15U, 16U, 63U, 64U, 65U, 200U, 384U}) {
        Bytes target(512, untouched);
        Bytes expected = target;
        std::copy_n(source.begin() + 3, bytes, expected.begin() + static_cast<std::ptrdiff_t>(offset));
        put(target.data() + offset, source.data() + 3, bytes, stores);
        finish(stores);
        ASSERT_EQ(target, expected) << bytes << " bytes at " << offset;
      }
    }
  }
}

std::vector<const std::byte*> places_of(const std::vector<Bytes>& arrays) {
  std::vector<const std::byte*> places;
  for (const Bytes& array : arrays) places.push_back(array.data());
  return places;
}

/// What `ordered_reduction_segment` leaves in two outputs, `gap` bytes after beginnings of lines.
std::array<Bytes, 2> sums(DType dtype, const std::vector<Bytes>& inputs, std::size_t gap, Stores stores) {
  const std::size_t bytes = inputs.front().size();
  std::array<Bytes, 2> memory;
  std::array<std::byte*, 2> outputs{};
  for (std::size_t i = 0; i < 2; ++i) {
    memory[i].assign(bytes + 2 * gap + line_bytes, untouched);
    void* line = memory[i].data();
    std::size_t space = memory[i].size();
    outputs[i] = static_cast<std::byte*>(std::align(line_bytes, bytes + 2 * gap, line, space)) + gap;
  }
  ordered_reduction_segment(dtype, {}, bytes / size_of(dtype), places_of(inputs), outputs, stores);
  for (std::size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(Bytes(outputs[i] - gap, outputs[i]), Bytes(gap, untouched));
    EXPECT_EQ(Bytes(outputs[i] + bytes, outputs[i] + bytes + gap), Bytes(gap, untouched));
    memory[i] = Bytes(outputs[i], outputs[i] + bytes);
  }
  return memory;
}

class HostStreamedSums : public testing::TestWithParam<DType> {};

TEST_P(HostStreamedSums, AreThoseOfTheCaches) {
  constexpr std::size_t count = 4100;  // more than a few lines, more than a block of either kind, and a rest
  const std::size_t element = size_of(GetParam());
  // At the beginnings of lines, and behind them.
  std::vector<std::size_t> gaps{0, element, line_bytes - element};
  // Where no element is at the beginning of a line.
  if (GetParam() == DType::complex64 || GetParam() == DType::complex128) gaps.push_back(element / 2);
  for (const std::size_t input_count : {1U, 2U, 3U, 4U, 5U, 8U, 9U}) {
    std::vector<Bytes> inputs;
    for (std::size_t i = 0; i < input_count; ++i)
      inputs.push_back(random_bytes(count * element, static_cast<std::uint32_t>(i)));
    for (const std::size_t gap : gaps) {
      EXPECT_EQ(sums(GetParam(), inputs, gap, Stores::streamed),
                sums(GetParam(), inputs, gap, Stores::cached))
          << input_count << " inputs, " << gap << " bytes after a line";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(DTypes, HostStreamedSums, testing::ValuesIn(all_dtypes),
                         [](const auto& parameter) { return std::string(name_of(parameter.param)); });

/// Then they are not streamed; nor is a second output that is none.
TEST(HostStores, SumsMayBeStoredOverAnyInput) {
  constexpr std::size_t count = 5000;
  for (const std::size_t input_count : {2U, 6U}) {
    std::vector<Bytes> inputs;
    for (std::size_t i = 0; i < input_count; ++i)
      inputs.push_back(random_bytes(count * sizeof(int), static_cast<std::uint32_t>(i)));
    const Bytes expected = sums(DType::int32, inputs, 0, Stores::cached)[0];
    for (std::size_t over = 0; over < input_count; ++over) {
      std::vector<Bytes> memory = inputs;
      Bytes other(count * sizeof(int));
      const std::array<std::byte*, 2> outputs{other.data(), memory[over].data()};
      ordered_reduction_segment(DType::int32, {}, count, places_of(memory), outputs, Stores::streamed);
      EXPECT_EQ(memory[over], expected) << "over input " << over << " of " << input_count;
      EXPECT_EQ(other, expected);
    }
  }
}

TEST(HostStores, StreamedFanOutsReachEveryTarget) {
  const Bytes source = random_bytes(3 * 20000, 7);
  std::vector<Bytes> targets(3, Bytes(3 * 20011 + 1, untouched));
  std::vector<std::byte*> places;
  for (Bytes& target : targets) places.push_back(target.data() + 1);
  const FanOutSegment segment{
      .row_bytes = 19999, .source_pitch = 20000, .target_pitch = 20011, .rows = 3, .target_count = 3};
  fan_out_segment(segment, source.data(), places, Stores::streamed);
  Bytes expected(3 * 20011 + 1, untouched);
  for (std::size_t row = 0; row < 3; ++row)
    std::memcpy(expected.data() + 1 + row * 20011, source.data() + row * 20000, 19999);
  for (const Bytes& target : targets) EXPECT_EQ(target, expected);
}

constexpr std::size_t large = (std::size_t{16} << 20) + 5;  // which is streamed
static_assert(stores_for(large) == Stores::streamed);

TEST(HostStores, LargeCopiesWithinAnArrayMoveIt) {
  for (const std::size_t shift : {std::size_t{1}, std::size_t{4096}}) {
    const Bytes bytes = random_bytes(large + shift, 3);
    Bytes up = bytes;
    copy_rows(up.data() + shift, large, up.data(), large, large, 1);
    EXPECT_EQ(std::memcmp(up.data() + shift, bytes.data(), large), 0);
    Bytes down = bytes;
    copy_rows(down.data(), large, down.data() + shift, large, large, 1);
    EXPECT_EQ(std::memcmp(down.data(), bytes.data() + shift, large), 0);
  }
}

TEST(HostStores, LargeRectanglesWithinAnArrayMoveTheirRows) {
  constexpr std::size_t rows = 3;
  constexpr std::size_t pitch = large / rows + 1;
  const Bytes bytes = random_bytes(rows * pitch + 100, 5);
  Bytes moved = bytes;
  copy_rows(moved.data() + 100, pitch, moved.data(), pitch, pitch - 100, rows);
  for (std::size_t row = 0; row < rows; ++row)
    EXPECT_EQ(std::memcmp(moved.data() + 100 + row * pitch, bytes.data() + row * pitch, pitch - 100), 0);
}

class HostLargeStores : public HostMachine {};

TEST_F(HostLargeStores, AreThereForWhoeverWaits) {
  const std::size_t count = large / sizeof(std::int32_t) + 1;
  std::vector<std::int32_t> values(count);
  std::iota(values.begin(), values.end(), 0);
  auto* const first = reinterpret_cast<std::byte*>(upload(0, values));
  auto* const sum = reinterpret_cast<std::byte*>(allocate<std::int32_t>(0, count));
  auto* const copied = reinterpret_cast<std::byte*>(allocate<std::int32_t>(0, count));
  const std::array addends{first, first, sum};
  const OrderedReductionSegment summed{.count = count, .first_input = 0, .first_output = 2};
  const StreamRef earlier = machine().create_stream(0, 0);
  const StreamRef later = machine().create_stream(0, 0);
  const EventHandle done = machine().create_event(0, EventTiming::off, EventWait::spin);
  machine().ordered_reduction(
      earlier, {.dtype = DType::int32, .input_count = 2, .segments = {&summed, 1}, .pointers = addends});
  machine().record_event(done, earlier);
  machine().wait_event(later, done);
  const std::array ends{sum, copied};
  const FanOutSegment moved{.row_bytes = count * sizeof(std::int32_t), .first_target = 1, .target_count = 1};
  machine().fan_out(later, {.segments = {&moved, 1}, .pointers = ends});
  machine().synchronize_stream(later);
  for (std::int32_t& value : values) value *= 2;
  EXPECT_EQ(download(0, reinterpret_cast<const std::int32_t*>(copied), count), values);
  machine().destroy_event(done);
  machine().destroy_stream(earlier);
  machine().destroy_stream(later);
}

}  // namespace
}  // namespace tutti::backend::host
