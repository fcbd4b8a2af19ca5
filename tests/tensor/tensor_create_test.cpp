// SPDX-License-Identifier: Apache-2.0
#include "support/environment.hpp"
#include "support/errors.hpp"
#include "support/values/small_tensors.hpp"
#include "support/values/test_tensor.hpp"
#include "tutti/tensor.hpp"

#include <algorithm>
#include <array>
#include <complex>
#include <vector>

#include <gtest/gtest.h>

/// Making tensors, and views of memory that is there already.
namespace tutti {
namespace {

using test::ascending;
using test::places;
using test::refuses;
using test::Sizes;
using test::sizes_of;

constexpr auto invalid = ErrorCode::invalid_argument;

Sizes strides_of(const Tensor& tensor) {
  return {tensor.strides().begin(), tensor.strides().end()};
}

TEST(TensorView, DescribesMemory) {
  alignas(16) std::array<float, 12> memory{};
  const TensorView contiguous(memory.data(), DType::float32, {3, 4}, Device::host());
  EXPECT_TRUE(contiguous.defined());
  EXPECT_EQ(contiguous.data(), memory.data());
  EXPECT_EQ(contiguous.numel(), 12);
  EXPECT_EQ(contiguous.nbytes(), 48U);
  EXPECT_EQ(contiguous.dim(), 2);
  EXPECT_EQ(contiguous.size(0), 3);
  EXPECT_EQ(contiguous.size(-1), 4);
  EXPECT_TRUE(contiguous.is_contiguous());
  const TensorView column(memory.data(), DType::float32, {3}, {4}, Device::host());
  EXPECT_FALSE(column.is_contiguous());
  EXPECT_FALSE(TensorView().defined());
}

TEST(TensorView, AcceptsSizesInEveryForm) {
  const std::vector<std::int64_t> vector{2, 3};
  const std::array<std::int64_t, 2> array{2, 3};
  const std::span<const std::int64_t> span(vector);
  for (const Tensor& tensor :
       {tutti::empty({2, 3}), tutti::empty(vector), tutti::empty(array), tutti::empty(span)}) {
    EXPECT_EQ(sizes_of(tensor), vector);
  }
  EXPECT_EQ(empty({}).dim(), 0);
  EXPECT_EQ(empty({}).numel(), 1);
}

TEST(TensorView, RefusesBadAddressesAndDimensions) {
  alignas(16) std::array<std::byte, 64> memory{};
  const auto at = [&](std::size_t offset) {
    return [&memory, offset] { TensorView(memory.data() + offset, DType::float32, {3}, Device::host()); };
  };
  EXPECT_NO_THROW(at(4)());
  EXPECT_TRUE(refuses(at(2), invalid, {"TensorView", "data is 0x", "multiple of the 4 bytes of float32"}));
  EXPECT_TRUE(refuses([] { TensorView(nullptr, DType::float32, {3}, Device::host()); }, invalid,
                      {"data is nullptr", "3 elements"}));
  EXPECT_NO_THROW(TensorView(nullptr, DType::float32, {3, 0}, Device::host()));
  const TensorView view(memory.data(), DType::float32, {3, 2}, Device::host());
  EXPECT_TRUE(refuses([&] { static_cast<void>(view.size(2)); }, invalid, {"dimension is 2", "-2 to 1"}));
  EXPECT_TRUE(refuses([&] { static_cast<void>(view.size(-3)); }, invalid, {"dimension is -3"}));
  const TensorView scalar(memory.data(), DType::float32, {}, Device::host());
  EXPECT_TRUE(refuses([&] { static_cast<void>(scalar.size(0)); }, invalid, {"scalar"}));
}

TEST(TensorCreation, GivesTheSizesTypeAndPlaceAskedFor) {
  for (const Device device : places()) {
    for (const DType dtype : all_dtypes) {
      const Tensor tensor = empty({2, 3}, {.dtype = dtype, .device = device});
      EXPECT_EQ(tensor.device(), device);
      EXPECT_EQ(tensor.dtype(), dtype);
      EXPECT_EQ(sizes_of(tensor), (Sizes{2, 3}));
      EXPECT_TRUE(tensor.is_contiguous());
      EXPECT_NE(tensor.data(), nullptr);
      EXPECT_GE(tensor.storage()->bytes(), tensor.nbytes());
      EXPECT_EQ(tensor.storage()->device(), device);
    }
    const Tensor images = empty({2, 3, 4, 5}, {.device = device, .format = MemoryFormat::channels_last});
    EXPECT_TRUE(images.is_channels_last());
  }
}

TEST(TensorCreation, FillsEveryElementTypeEverywhere) {
  for (const Device device : places()) {
    for (const DType dtype : all_dtypes) {
      const TensorOptions options{.dtype = dtype, .device = device};
      visit_dtype(dtype, [&]<class T>() {
        const auto expect_all = [&](const Tensor& tensor, T value) {
          test::HostArray expected{dtype, {3, 5}, {}};
          for (int i = 0; i < 15; ++i) {
            const auto* const bytes = reinterpret_cast<const std::byte*>(&value);
            expected.bytes.insert(expected.bytes.end(), bytes, bytes + sizeof(T));
          }
          EXPECT_TRUE(test::holds(tensor, device, expected)) << name_of(dtype) << " on " << to_string(device);
        };
        expect_all(zeros({3, 5}, options), T(0));
        expect_all(ones({3, 5}, options), T(1));
        expect_all(full({3, 5}, 3, options), T(3));
        expect_all(zeros_like(full({3, 5}, 3, options)), T(0));
        expect_all(ones_like(full({3, 5}, 3, options)), T(1));
        expect_all(full_like(empty({3, 5}, options), 2), T(2));
      });
    }
  }
}

TEST(TensorCreation, FillConvertsAsCopyDoes) {
  const auto filled = [](double value, DType dtype, Device device) {
    return full({1}, value, {.dtype = dtype, .device = device});
  };
  for (const Device device : places()) {
    EXPECT_EQ(filled(300, DType::int8, device).item<std::int8_t>(), 127);
    EXPECT_EQ(filled(-1, DType::uint8, device).item<std::uint8_t>(), 0);
    EXPECT_EQ(filled(std::nan(""), DType::int32, device).item<std::int32_t>(), 0);
    EXPECT_EQ(filled(2.9, DType::int64, device).item<std::int64_t>(), 2);
    EXPECT_EQ(filled(0.5, DType::boolean, device).item<bool>(), true);
    EXPECT_EQ(filled(1e9, DType::float16, device).item<Float16>().bits, 0x7c00);
    EXPECT_EQ(filled(1.5, DType::complex64, device).item<std::complex<float>>(),
              std::complex<float>(1.5F, 0.0F));
  }
}

TEST(TensorCreation, LikeKeepsDenseStridesAndPacksOthers) {
  for (const Device device : places()) {
    const Tensor images =
        empty({2, 3, 4, 5}, {.dtype = DType::int16, .device = device, .format = MemoryFormat::channels_last});
    const Tensor like = empty_like(images);
    EXPECT_EQ(like.layout(), images.layout());
    EXPECT_EQ(like.device(), device);
    EXPECT_NE(like.data(), images.data());
    const Tensor transposed = empty({3, 4}, {.device = device}).transpose(0, 1);
    EXPECT_EQ(strides_of(empty_like(transposed)), (Sizes{1, 4}));
    const Tensor narrowed = images.narrow(1, 0, 2);
    EXPECT_EQ(strides_of(empty_like(narrowed)), (Sizes{40, 20, 5, 1}));
  }
}

TEST(TensorCreation, LikeAndNewTakeOverrides) {
  const Tensor other = empty(
      {2, 3, 4, 5}, {.dtype = DType::int16, .device = Device(0), .format = MemoryFormat::channels_last});
  const Tensor converted = full_like(other, 7, {.dtype = DType::float64});
  EXPECT_EQ(converted.dtype(), DType::float64);
  EXPECT_EQ(converted.device(), Device(0));
  EXPECT_TRUE(converted.is_channels_last());
  EXPECT_EQ(converted.to_vector<double>(), std::vector<double>(120, 7.0));
  EXPECT_TRUE(zeros_like(other, {.format = MemoryFormat::contiguous}).is_contiguous());
  const Tensor pinned = ones_like(other, {.device = Device::host(), .host_memory = HostMemory::pinned});
  EXPECT_TRUE(pinned.device().is_host());
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_FALSE(empty_like(pinned).is_pinned());
  EXPECT_EQ(pinned.to_vector<std::int16_t>(), std::vector<std::int16_t>(120, 1));

  EXPECT_EQ(other.new_zeros({3}).to_vector<std::int16_t>(), std::vector<std::int16_t>(3, 0));
  EXPECT_EQ(other.new_ones({3}).to_vector<std::int16_t>(), std::vector<std::int16_t>(3, 1));
  EXPECT_EQ(other.new_full({2}, -4).to_vector<std::int16_t>(), std::vector<std::int16_t>(2, -4));
  const Tensor fresh = other.new_empty({2, 2}, {.dtype = DType::float32});
  EXPECT_EQ(fresh.device(), Device(0));
  EXPECT_EQ(fresh.dtype(), DType::float32);
  EXPECT_TRUE(fresh.is_contiguous());
  EXPECT_TRUE(other.new_empty({2}, {.device = Device::host()}).device().is_host());

  EXPECT_TRUE(refuses([] { static_cast<void>(Tensor().new_empty({2})); }, invalid,
                      {"Tensor::new_empty", "undefined"}));
  EXPECT_TRUE(refuses([&] { static_cast<void>(other.new_zeros({-1})); }, invalid, {"Tensor::new_zeros"}));
  EXPECT_TRUE(refuses([&] { static_cast<void>(empty_like(other, {.host_memory = HostMemory::pinned})); },
                      invalid, {"empty_like", "pinned"}));
}

TEST(TensorCreation, TakesElementsFromTheHost) {
  for (const Device device : places()) {
    const std::vector<double> values{1.5, -2.0, 3.25, 0.0, 5.0, 6.5};
    const Tensor tensor = tutti::tensor(values, {2, 3}, {.device = device});
    EXPECT_EQ(tensor.dtype(), DType::float64);
    EXPECT_EQ(tensor.to_vector<double>(), values);
    const std::array<bool, 3> flags{true, false, true};
    EXPECT_EQ(tutti::tensor(std::span<const bool>(flags), {3}, {.device = device}).to_bytes(),
              (std::vector<std::byte>{std::byte{1}, std::byte{0}, std::byte{1}}));
  }
}

TEST(TensorCreation, TakesElementsFromTheHostInIndexOrderWhateverTheFormat) {
  for (const Device device : places()) {
    for (const HostMemory memory : {HostMemory::pageable, HostMemory::pinned}) {
      if (memory == HostMemory::pinned && !device.is_host()) continue;
      const std::vector<std::int32_t> values = ascending(2 * 3 * 4 * 5);
      const Tensor tensor =
          tutti::tensor(values, {2, 3, 4, 5},
                        {.device = device, .format = MemoryFormat::channels_last, .host_memory = memory});
      EXPECT_TRUE(tensor.is_channels_last());
      EXPECT_EQ(tensor.is_pinned(), memory == HostMemory::pinned);
      EXPECT_EQ(tensor.to_vector<std::int32_t>(), values);
    }
  }
}

TEST(TensorCreation, TakesValuesAsTheyAreWritten) {
  for (const Device device : places()) {
    const TensorOptions options{.device = device};
    const Tensor reals = tutti::tensor({1.0, 2.5}, options);
    EXPECT_EQ(reals.dtype(), DType::float64);
    EXPECT_EQ(reals.device(), device);
    EXPECT_EQ(reals.to_vector<double>(), (std::vector<double>{1.0, 2.5}));
    EXPECT_EQ(tutti::tensor({true, false}, options).dtype(), DType::boolean);
    EXPECT_EQ(tutti::tensor({1, 2}, options).dtype(), DType::int32);
    EXPECT_EQ(tutti::tensor({1U, 2U}, options).dtype(), DType::uint32);
    EXPECT_EQ(tutti::tensor({1LL, 2LL}, options).dtype(), DType::int64);
    EXPECT_EQ(tutti::tensor({1ULL, 2ULL}, options).dtype(), DType::uint64);
    EXPECT_EQ(tutti::tensor(std::vector<Float16>(3), options).dtype(), DType::float16);
    EXPECT_EQ(tutti::tensor(std::array<std::complex<float>, 2>{}, options).dtype(), DType::complex64);

    const Tensor matrix = tutti::tensor({{1, 2, 3}, {4, 5, 6}}, options);
    EXPECT_EQ(to_string(matrix.sizes()), "[2, 3]");
    EXPECT_EQ(matrix.to_vector<std::int32_t>(), (std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}));
  }
}

TEST(TensorCreation, ConvertsValuesToTheTypeThatOptionsName) {
  for (const Device device : places()) {
    const Tensor halves = tutti::tensor({1.5, -2.0, 70000.0}, {.dtype = DType::bfloat16, .device = device});
    EXPECT_EQ(halves.dtype(), DType::bfloat16);
    EXPECT_EQ(halves.to(DType::float32).to_vector<float>(), (std::vector<float>{1.5F, -2.0F, 70144.0F}));
    const Tensor bytes = tutti::tensor({{300, 1}, {-1, 2}}, {.dtype = DType::uint8, .device = device});
    EXPECT_EQ(bytes.to_vector<std::uint8_t>(), (std::vector<std::uint8_t>{44, 1, 255, 2}));
  }
}

TEST(TensorCreation, RefusesRowsOfDifferentLengths) {
  EXPECT_TRUE(refuses(
      [] {
        static_cast<void>(tutti::tensor({{1, 2}, {3}}));
      },
      invalid, {"tensor: rows[1] has 1 values, expected 2"}));
}

TEST(TensorCreation, TheSourceIsReusableOnReturn) {
  for (int round = 0; round < 20; ++round) {
    std::vector<std::int32_t> values = ascending(100'000);
    const Tensor tensor = tutti::tensor(values, {100'000}, {.device = Device(0)});
    std::ranges::fill(values, -1);
    ASSERT_EQ(tensor.to_vector<std::int32_t>(), ascending(100'000));
  }
}

TEST(TensorCreation, WithoutElementsWorksEverywhere) {
  for (const Device device : places()) {
    const Tensor tensor = zeros({3, 0, 2}, {.dtype = DType::float64, .device = device});
    EXPECT_TRUE(tensor.defined());
    EXPECT_EQ(tensor.numel(), 0);
    EXPECT_TRUE(tensor.to_vector<double>().empty());
    EXPECT_TRUE(tutti::tensor(std::vector<float>{}, {0}, {.device = device}).to_bytes().empty());
    EXPECT_EQ(tensor.to(Device(0)).to(Device::host()).numel(), 0);
    EXPECT_EQ(tensor.narrow(0, 3, 0).numel(), 0);
    EXPECT_EQ(tensor.narrow(2, 1, 1).numel(), 0);
  }
}

TEST(TensorCreation, RefusesWhatItCannotMake) {
  const int beyond = device_count();
  EXPECT_TRUE(refuses([&] { static_cast<void>(empty({1}, {.device = Device(beyond)})); }, invalid,
                      {"empty", std::to_string(beyond)}));
  EXPECT_TRUE(refuses([&] { static_cast<void>(zeros({1}, {.device = Device(beyond + 5)})); }, invalid,
                      {"zeros", std::to_string(beyond + 5)}));
  EXPECT_TRUE(refuses([&] { static_cast<void>(empty({2, -1})); }, invalid, {"sizes[1] is -1"}));
  EXPECT_TRUE(refuses(
      [&] { static_cast<void>(empty({1}, {.device = Device(0), .host_memory = HostMemory::pinned})); },
      invalid, {"empty", "pinned", "device:0"}));
  EXPECT_TRUE(refuses(
      [&] {
        static_cast<void>(tutti::tensor(std::vector<float>{1, 2, 3}, {2, 2}));
      },
      invalid, {"tensor: 3 values", "expected 4", "[2, 2]"}));
  for (Tensor (*like)(const Tensor&, const LikeOptions&) : {empty_like, zeros_like, ones_like}) {
    EXPECT_TRUE(
        refuses([&] { static_cast<void>(like(Tensor(), {})); }, invalid, {"_like: other is undefined"}));
  }
}

}  // namespace
}  // namespace tutti
